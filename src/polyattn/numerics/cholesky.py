"""Cholesky's factorisation in place, by tiles: as fast as threaded LAPACK, and reproducible.

LAPACK on several threads rounds in another order than on one.  Here the tiles are the same for
any number of workers, and each is the work of one.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.numerics.blas import divide_by_triangle, subtract_product, subtract_square
from polyattn.numerics.parallel import map_pieces, single_threaded_blas

# Columns that are factored together, and columns of the rest that a worker updates together.
PANEL, TILE = 256, 256


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
        starts, panel = range(stop, size, TILE), upper[first:stop]
        map_pieces(partial(_divide, panel, corner.T), starts)
        map_pieces(partial(_update, upper, panel), starts)
    return True


def _divide(panel: NDArray, corner: NDArray, start: int) -> None:
    """Columns ``start`` and following of the factor's new rows."""
    divide_by_triangle(panel[:, start : start + TILE], corner)


def _update(upper: NDArray, panel: NDArray, start: int) -> None:
    """Subtract from rows ``start`` and following of the rest what the new rows explain."""
    stop = min(start + TILE, len(upper))
    some = panel[:, start:stop]
    subtract_square(upper[start:stop, start:stop], some)
    subtract_product(upper[start:stop, stop:], some, panel[:, stop:])
