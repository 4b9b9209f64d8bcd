"""Cubic features psi[(j<=k), l] = G[j,k] x[l], and the two products with them.

A layer is linear in these p = q d features [yau2024: Algorithm 1].  Neither product needs them
one by one: both contract the pairs first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Products of queries and targets that are made together: they stay in the cache.
BLOCK_NUMBERS = 1 << 17


def cubic_features(pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """psi (p, rows), order (pair, l), from pairs (q, rows) and queries (d, rows)."""
    return (pairs[:, None, :] * queries[None, :, :]).reshape(
        len(pairs) * len(queries), pairs.shape[1]
    )


def apply_coef(coef: NDArray, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """Predictions y (e, rows) = sum P[a, (jk), l] G[jk] x[l].

    Cost: 2 e p flops per row, memory O(e d rows).
    """
    n_outputs, n_pairs, n_dims = coef.shape
    by_query = coef.transpose(0, 2, 1).reshape(n_outputs * n_dims, n_pairs) @ pairs
    return np.einsum(
        "alr,lr->ar", by_query.reshape(n_outputs, n_dims, pairs.shape[1]), queries, optimize=False
    )


def correlate(pairs: NDArray, queries: NDArray, targets: NDArray) -> NDArray[np.float64]:
    """sum over rows of psi y^T, shape (q, d, e): the transpose of ``apply_coef``.

    ``targets`` is (e, rows).  Cost: 2 e p flops per row, memory that of one block.
    """
    n_dims, n_outputs = len(queries), len(targets)
    total = np.zeros((len(pairs), n_dims * n_outputs))
    width = max(64, BLOCK_NUMBERS // max(1, n_dims * n_outputs))
    for start in range(0, pairs.shape[1], width):
        some = slice(start, start + width)
        products = queries[:, None, some] * targets[None, :, some]
        total += pairs[:, some] @ products.reshape(n_dims * n_outputs, products.shape[2]).T
    return total.reshape(len(pairs), n_dims, n_outputs)
