"""Cubic features psi[(j<=k), l] = G[j,k] x[l], the two products with them, and their kernel.

A layer is linear in these p = q d features [yau2024: Algorithm 1].  Neither product needs them
one by one: both contract the pairs first.  The kernel k((G, x), (G', x')) = <G, G'>_F <x, x'> is
their inner product in the norm of T (off-diagonal features weigh sqrt(2)), so a kernel machine
minimises the same objective as the primal, whatever d is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import norm_weights
from polyattn.numerics.blas import add_product
from polyattn.numerics.parallel import map_pieces

# Products that are made together: they stay in the cache of a core.
BLOCK_NUMBERS, MIN_ROWS = 1 << 16, 64

# Columns of the kernel that are finished together, so that no second N x N array is needed.
COLUMN_BLOCK = 256


def cubic_features(
    pairs: NDArray, queries: NDArray, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """psi (p, rows), order (pair, l), of pairs (q, rows) and queries (d, rows); or in ``out``."""
    shape = (len(pairs), len(queries), pairs.shape[1])
    psi = np.empty((shape[0] * shape[1], shape[2])) if out is None else out
    # Faster than ``multiply``, whose loops are slow for rows that lie apart.
    np.einsum("gr,lr->glr", pairs, queries, out=psi.reshape(shape))
    return psi


def apply_coef(coef: NDArray, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """Predictions y (e, rows) = sum P[a, (jk), l] G[jk] x[l].

    Cost: 2 e p flops per row on all workers, memory of the result and a block for each.
    """
    n_outputs, n_pairs, width = coef.shape
    by_query = coef.transpose(0, 2, 1).reshape(n_outputs * width, n_pairs)
    outputs = np.empty((n_outputs, pairs.shape[1]))
    step = max(MIN_ROWS, BLOCK_NUMBERS // len(by_query))

    def fill(start: int) -> None:
        some = slice(start, start + step)
        products = (by_query @ pairs[:, some]).reshape(n_outputs, width, -1)
        np.einsum("alr,lr->ar", products, queries[:, some], out=outputs[:, some])

    map_pieces(fill, range(0, pairs.shape[1], step))
    return outputs


def correlate(pairs: NDArray, queries: NDArray, targets: NDArray) -> NDArray[np.float64]:
    """sum over rows of psi y^T, shape (q, d, e): the transpose of ``apply_coef``."""
    total = np.zeros((len(pairs), len(queries), len(targets)))
    add_correlation(total, np.ascontiguousarray(pairs), queries, targets)
    return total


def add_correlation(total: NDArray, pairs: NDArray, queries: NDArray, targets: NDArray) -> None:
    """Add ``correlate`` to ``total`` (q, d, e), contiguous; so are the rows of ``pairs``.

    ``targets`` is (e, rows).  Cost: 2 e p flops per row, memory that of one block.
    """
    n_products = len(queries) * len(targets)
    step = max(MIN_ROWS, BLOCK_NUMBERS // max(1, n_products))
    flat = total.reshape(len(pairs), n_products)
    for start in range(0, pairs.shape[1], step):
        some = slice(start, start + step)
        products = np.multiply(queries[:, None, some], targets[None, :, some], order="C")
        add_product(flat, pairs[:, some], products.reshape(n_products, products.shape[2]))


def kernel(
    pairs: NDArray, queries: NDArray, other_pairs: NDArray, other_queries: NDArray
) -> NDArray[np.float64]:
    """The kernel (rows, other rows) between two sets of summaries."""
    weights = norm_weights(len(queries))[:, None] ** -2
    return (pairs.T @ (weights * other_pairs)) * (queries.T @ other_queries)


def kernel_lower(pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """The kernel of one set with itself, Fortran order; only its lower triangle has meaning.

    Cost: N^2 q flops on all workers, and some N q above the diagonal; memory one N x N array.
    """
    weighted = pairs / norm_weights(len(queries))[:, None]
    size = pairs.shape[1]
    result = np.empty((size, size), order="F")

    def finish(start: int) -> None:
        stop = min(start + COLUMN_BLOCK, size)
        # Transposed, the columns of the result are contiguous rows.
        columns = result.T[start:stop, start:]
        np.matmul(weighted[:, start:stop].T, weighted[:, start:], out=columns)
        columns *= queries[:, start:stop].T @ queries[:, start:]

    map_pieces(finish, range(0, size, COLUMN_BLOCK))
    return result
