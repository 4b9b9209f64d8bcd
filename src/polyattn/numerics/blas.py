"""Products added in place, and Cholesky's factorisation by tiles, while other threads run.

numpy's ``matmul`` cannot add to its result, and scipy's BLAS wrappers keep the interpreter
locked.  The entries that SciPy exports for compiled extensions (``scipy.linalg.cython_blas``),
called from here, do both.  LAPACK on several threads rounds in another order than on one; the
tiles of ``factor_lower`` are the same for any number of workers: as fast, and reproducible.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, lapack

from polyattn.numerics.parallel import map_pieces, single_threaded_blas

Matrix = NDArray[np.float64]

# Columns that are factored together, and columns of the rest that a worker updates together.
PANEL, TILE = 256, 256


def add_product(total: Matrix, left: Matrix, right: Matrix) -> None:
    """total += left @ right.T, for float64 matrices whose rows are contiguous."""
    n_columns, (n_rows, inner) = len(right), left.shape
    if right.shape[1] != inner or total.shape != (n_rows, n_columns):
        raise ValueError(f"shapes do not fit: {total.shape} += {left.shape} @ {right.shape}.T")
    # Row-major matrices are the transposes of what BLAS sees: total^T += right left^T.
    sizes = (_integer(n_columns), _integer(n_rows), _integer(inner))
    _DGEMM(b"T", b"N", *sizes, _ONE, *_operand(right), *_operand(left), _ONE, *_operand(total))


def add_square(total: Matrix, rows: Matrix) -> None:
    """total += rows @ rows.T on and below the diagonal only; rows of both are contiguous."""
    size, inner = rows.shape
    if total.shape != (size, size):
        raise ValueError(f"shapes do not fit: {total.shape} += {rows.shape} @ its transpose")
    sizes = (_integer(size), _integer(inner))
    _DSYRK(b"U", b"T", *sizes, _ONE, *_operand(rows), _ONE, *_operand(total))


def subtract_product(total: Matrix, left: Matrix, right: Matrix) -> None:
    """total -= left.T @ right, for float64 matrices whose rows are contiguous."""
    (inner, n_rows), n_columns = left.shape, right.shape[1]
    if len(right) != inner or total.shape != (n_rows, n_columns):
        raise ValueError(f"shapes do not fit: {total.shape} -= {left.shape}.T @ {right.shape}")
    sizes = (_integer(n_columns), _integer(n_rows), _integer(inner))
    _DGEMM(
        b"N", b"T", *sizes, _MINUS_ONE, *_operand(right), *_operand(left), _ONE, *_operand(total)
    )


def subtract_square(total: Matrix, rows: Matrix) -> None:
    """total -= rows.T @ rows on and above the diagonal only; rows of both are contiguous."""
    inner, size = rows.shape
    if total.shape != (size, size):
        raise ValueError(f"shapes do not fit: {total.shape} -= its transpose @ {rows.shape}")
    sizes = (_integer(size), _integer(inner))
    _DSYRK(b"L", b"N", *sizes, _MINUS_ONE, *_operand(rows), _ONE, *_operand(total))


def divide_by_triangle(rows: Matrix, triangle: Matrix) -> None:
    """rows = inverse(triangle.T) @ rows in place, of an upper triangle; rows are contiguous."""
    size, n_columns = rows.shape
    if triangle.shape != (size, size):
        raise ValueError(f"shapes do not fit: {rows.shape} / {triangle.shape}")
    sizes = (_integer(n_columns), _integer(size))
    _DTRSM(b"R", b"L", b"T", b"N", *sizes, _ONE, *_operand(triangle), *_operand(rows))


@single_threaded_blas()
def factor_lower(matrix: NDArray[np.float64]) -> bool:
    """Write L with L L^T = ``matrix`` (m, m) in place of its lower triangle; False: not definite.

    ``matrix`` is in Fortran order; above the diagonal it is neither read nor written.
    Cost: m^3/3 flops on all workers.
    """
    # BLAS is called with rows in C order: U^T U with U = L^T, right of the diagonal.
    upper, size = matrix.T, len(matrix)
    for first in range(0, size, PANEL):
        stop = min(first + PANEL, size)
        corner = matrix[first:stop, first:stop]
        corner[:], failed = lapack.dpotrf(corner, lower=1, clean=0)
        if failed:
            return False
        # The factor's new rows; then what they explain is subtracted from the rows of the rest.
        tiles = [slice(start, min(start + TILE, size)) for start in range(stop, size, TILE)]
        map_pieces(partial(_divide, upper[first:stop], corner.T), tiles)
        map_pieces(partial(_update, upper, upper[first:stop]), tiles)
    return True


def _divide(panel: NDArray, corner: NDArray, tile: slice) -> None:
    divide_by_triangle(panel[:, tile], corner)


def _update(upper: NDArray, panel: NDArray, tile: slice) -> None:
    subtract_square(upper[tile, tile], panel[:, tile])
    subtract_product(upper[tile, tile.stop :], panel[:, tile], panel[:, tile.stop :])


def _operand(matrix: Matrix) -> tuple[ctypes.c_void_p, ctypes._Pointer]:
    """Address and row length of a matrix as BLAS takes them."""
    rows, columns = matrix.shape
    across, along = matrix.strides
    contiguous = (along == 8 or columns <= 1) and (across >= 8 * columns or rows <= 1)
    contiguous = contiguous or matrix.size == 0
    if matrix.dtype != np.float64 or not contiguous:
        raise ValueError(
            "BLAS needs float64 matrices whose rows are contiguous; got "
            f"{matrix.dtype} of shape {matrix.shape} and strides {matrix.strides}."
        )
    return ctypes.c_void_p(matrix.ctypes.data), _integer(max(across // 8, columns, 1))


def _integer(value: int) -> ctypes._Pointer:
    # 64 bits whose lower half comes first: right for BLAS of 32-bit and of 64-bit integers.
    return ctypes.pointer(_Long(value))


_Long = ctypes.c_int64.__ctype_le__
_FLAG, _INT, _REAL = ctypes.c_char_p, ctypes.POINTER(_Long), ctypes.POINTER(ctypes.c_double)
_ONE = ctypes.pointer(ctypes.c_double(1.0))
_MINUS_ONE = ctypes.pointer(ctypes.c_double(-1.0))
_ARRAY = (ctypes.c_void_p, _INT)


def _entry(name: str, *arguments: type) -> Callable[..., None]:
    """A BLAS routine by the address that SciPy exports; calls release the interpreter lock."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *arguments)(address)


_DGEMM = _entry("dgemm", _FLAG, _FLAG, _INT, _INT, _INT, _REAL, *_ARRAY, *_ARRAY, _REAL, *_ARRAY)
_DSYRK = _entry("dsyrk", _FLAG, _FLAG, _INT, _INT, _REAL, *_ARRAY, _REAL, *_ARRAY)
_DTRSM = _entry("dtrsm", _FLAG, _FLAG, _FLAG, _FLAG, _INT, _INT, _REAL, *_ARRAY, *_ARRAY)
