"""The dual road: one N x N kernel matrix, whatever the width of the tokens.

Accepts any data; meant for fewer rows than features (wide tokens).  Equals
``sklearn.kernel_ridge.KernelRidge(kernel="precomputed")`` with the kernel <G,G'> <x,x'>.

The kernel and its Cholesky factor share one array: the factor below the diagonal, the kernel
above it, so the residual can be refined without a second N x N array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyattn.cholesky import factor_lower
from polyattn.features.cubic import correlate
from polyattn.features.kernel import kernel_lower
from polyattn.features.pairs import n_pairs, norm_weights
from polyattn.parallel import map_pieces
from polyattn.solve.auto import DIRECT_NUMBERS
from polyattn.solve.direct import solve_direct
from polyattn.solve.outcome import Solution
from polyattn.solve.spectral import EPS
from polyattn.stats.rows import Rows

# A kernel matrix better conditioned than this is solved by Cholesky and refined.
SAFE_RCOND = 1e-12

MIRROR_BLOCK = 256


def solve_dual(rows: Rows, ridge: float) -> Solution:
    """The minimiser theta = sum_i alpha_i phi_i with (K + ridge) alpha = y."""
    pairs, queries, targets = gather(rows)
    matrix = kernel_lower(pairs, queries)
    diagonal = matrix.diagonal().copy()
    _mirror(matrix)
    norm = float(lapack.dlange("1", matrix)) + ridge
    matrix[np.diag_indices_from(matrix)] += ridge
    definite = factor_lower(matrix)
    rcond = lapack.dpocon(matrix, norm, uplo="L")[0] if definite else 0.0
    if rcond <= SAFE_RCOND and rows.n_rows * rows.n_features <= DIRECT_NUMBERS:
        # The kernel squares the condition number; what it lost is still in the features.
        return solve_direct(rows, ridge)
    note = ""
    if rcond > SAFE_RCOND:
        alpha, residual = _refined(matrix, diagonal, targets, ridge)
        rank, condition = len(diagonal), float(np.sqrt(1.0 / rcond))
    else:
        alpha, residual, rank, condition = _by_eigenvalues(matrix, diagonal, targets, ridge)
        note = (
            " The kernel matrix is singular to working precision: what is below 1e-7 of its "
            "largest features was taken as zero."
        )
    theta = combine(pairs, queries, alpha)
    power = float(np.sum(residual**2))
    return Solution(theta, rank if ridge == 0 else None, power, condition, ridge, note)


def gather(rows: Rows) -> tuple[NDArray, NDArray, NDArray]:
    """All summaries at once: pairs (q, N), queries (d, N) and targets (N, e).

    Rows of weight zero say nothing and would make the kernel singular: they are left out.
    """
    weights = rows.row_weights
    pairs = np.empty((n_pairs(rows.width), rows.n_positive))
    queries = np.empty((rows.width, rows.n_positive))
    targets = np.empty((rows.n_positive, rows.n_outputs))
    at = 0
    for block in rows.blocks():
        # A slice of all rows copies several times faster than their indices.
        inside: slice | NDArray = slice(None)
        if weights is not None:
            inside = np.flatnonzero(weights[block.first : block.stop])
        some = block.queries[:, inside]
        to = slice(at, at := at + some.shape[1])
        queries[:, to] = some
        pairs[:, to] = block.pairs[:, inside]
        targets[to] = block.targets[:, inside].T
    return pairs, queries, targets


def combine(pairs: NDArray, queries: NDArray, alpha: NDArray) -> NDArray[np.float64]:
    """theta (p, e) = sum_i phi_i alpha_i, without forming the features of any row."""
    q, d, n_outputs = len(pairs), len(queries), alpha.shape[1]
    theta = np.empty((q, d, n_outputs))
    # Outputs in groups, so that the products of queries and alpha stay small beside the kernel.
    step = max(1, (1 << 25) // (d * pairs.shape[1]))
    for first in range(0, n_outputs, step):
        some = np.ascontiguousarray(alpha[:, first : first + step].T)
        theta[:, :, first : first + step] = correlate(pairs, queries, some)
    theta /= norm_weights(d)[:, None, None]
    return theta.reshape(q * d, n_outputs)


def _refined(
    matrix: NDArray, diagonal: NDArray, targets: NDArray, ridge: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """alpha after one refinement, and the residual y - K alpha."""
    alpha, _ = lapack.dpotrs(matrix, np.asfortranarray(targets), lower=1)
    residual = targets - _kernel_product(matrix, diagonal, alpha)
    correction, _ = lapack.dpotrs(matrix, np.asfortranarray(residual - ridge * alpha), lower=1)
    alpha = alpha + correction
    return alpha, targets - _kernel_product(matrix, diagonal, alpha)


def _by_eigenvalues(
    matrix: NDArray, diagonal: NDArray, targets: NDArray, ridge: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, float]:
    """The pseudo-inverse where the kernel is singular: alpha, residual, rank, condition."""
    kernel = np.triu(matrix, 1)
    kernel += kernel.T
    kernel[np.diag_indices_from(kernel)] = diagonal
    values, vectors = np.linalg.eigh(kernel)
    floor = EPS * 10.0 * len(values) * values[-1]
    # Under a penalty smaller than rounding, an eigenvalue of pure rounding means zero.
    kept = (values > floor) | (ridge > floor)
    if not np.any(kept):
        return np.zeros_like(targets), targets, 0, 1.0
    shifted, basis = values[kept] + ridge, vectors[:, kept]
    alpha = basis @ ((basis.T @ targets) / shifted[:, None])
    condition = float(np.sqrt(shifted[-1] / shifted[0]))
    return alpha, targets - kernel @ alpha, len(shifted), condition


def _kernel_product(matrix: NDArray, diagonal: NDArray, alpha: NDArray) -> NDArray[np.float64]:
    """K alpha from the kernel above the diagonal of the shared array."""
    product = blas.dsymm(1.0, matrix, np.asfortranarray(alpha), lower=0)
    return product + (diagonal - matrix.diagonal())[:, None] * alpha


def _mirror(matrix: NDArray) -> None:
    """Copy the lower triangle to the upper one, block by block, in place."""

    def copy(start: int) -> None:
        stop = min(start + MIRROR_BLOCK, len(matrix))
        corner = np.tril(matrix[start:stop, start:stop])
        matrix[start:stop, start:stop] = corner + np.tril(corner, -1).T
        for below in range(stop, len(matrix), MIRROR_BLOCK):
            rows = slice(below, below + MIRROR_BLOCK)
            matrix[start:stop, rows] = matrix[rows, start:stop].T

    map_pieces(copy, range(0, len(matrix), MIRROR_BLOCK))
