"""Pairs of heads that tokens of two values cannot tell from another pair.

Two heads with one value V act through f(M + W) + f(M - W), M the mean of their attn and W half
their difference.  Let W = w v^T, and let the query coordinate x w take only the values a and
-a.  If another query coordinate x u takes only these values, too, then for every query

    { x M + (x w) v^T,  x M - (x w) v^T }  =  { x M + (x u) v^T,  x M - (x u) v^T }

as sets: the heads M + u v^T, M - u v^T are the same function on these tokens.  Parity heads on
Boolean tokens are of this kind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Values are equal, differences of rank one, and sizes constant, up to this.
ALIKE = 1e-3


def interchangeable_pairs(
    attn: Matrix, value: Matrix, queries: Matrix, tolerance: float = ALIKE
) -> list[tuple[int, int]]:
    """Pairs of heads that another pair could replace on queries (rows, d)."""
    two_valued = _constant_sizes(queries, tolerance)
    if np.count_nonzero(two_valued) < 2:
        return []
    return [
        (i, j)
        for i in range(len(attn))
        for j in range(i + 1, len(attn))
        if _same(value[i], value[j], tolerance)
        and _replaceable(attn[i] - attn[j], queries, two_valued, tolerance)
    ]


def _replaceable(
    difference: Matrix, queries: Matrix, two_valued: NDArray[np.bool_], tolerance: float
) -> bool:
    """Whether W = w v^T where x w takes two opposite values, and another coordinate does."""
    left, sizes, _ = np.linalg.svd(difference)
    if sizes[0] == 0.0 or np.any(sizes[1:] > tolerance * sizes[0]):
        return False
    direction = left[:, 0]
    if not _constant_sizes((queries @ direction)[:, None], tolerance)[0]:
        return False
    return any(abs(direction[c]) < 1 - tolerance for c in np.flatnonzero(two_valued))


def _constant_sizes(columns: Matrix, tolerance: float) -> NDArray[np.bool_]:
    """Which columns take two opposite values only, neither of them zero."""
    sizes = np.abs(columns)
    largest = sizes.max(axis=0)
    return (largest > 0) & (sizes.min(axis=0) > (1 - tolerance) * largest)


def _same(one: Matrix, other: Matrix, tolerance: float) -> bool:
    size = max(np.linalg.norm(one), np.linalg.norm(other))
    return bool(np.linalg.norm(one - other) <= tolerance * size)
