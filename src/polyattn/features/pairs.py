"""The pair index j <= k, and the fold between heads and coefficients.

A symmetric (d, d) matrix is stored as its q = d(d+1)/2 entries with j <= k, in the order of
``numpy.triu_indices(d)``.  Folding a tensor T[a, j, k, l] over that index gives what data can
see of it [yau2024: Corollary A.4]:

    P[a, (j<k), l] = T[a, j, k, l] + T[a, k, j, l],      P[a, (j=j), l] = T[a, j, j, l].

Here and wherever a layer is meant, d is the ``width`` of a token: the constant of ``bias`` counts.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def n_pairs(width: int) -> int:
    """q = d(d+1)/2, the number of pairs j <= k."""
    return width * (width + 1) // 2


def n_features(width: int) -> int:
    """p = q d, the number of cubic features."""
    return n_pairs(width) * width


def feature_sizes(coordinates: NDArray) -> NDArray[np.float64]:
    """Products of the sizes of coordinates (d,), shape (q, d): the largest comes out as 1."""
    sizes = coordinates / (coordinates.max() or 1.0)
    rows, columns = pair_index(len(sizes))
    return np.asarray((sizes[rows] * sizes[columns])[:, None] * sizes)


@lru_cache(maxsize=32)
def pair_index(width: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The index arrays (j, k) of all pairs j <= k, read-only, each of shape (q,)."""
    rows, columns = np.triu_indices(width)
    rows.setflags(write=False)
    columns.setflags(write=False)
    return rows, columns


@lru_cache(maxsize=32)
def pair_position(width: int) -> NDArray[np.intp]:
    """The symmetric table (d, d) that says where the pair (j, k) or (k, j) stands."""
    rows, columns = pair_index(width)
    table = np.empty((width, width), dtype=np.intp)
    table[rows, columns] = table[columns, rows] = np.arange(len(rows))
    table.setflags(write=False)
    return table


@lru_cache(maxsize=32)
def distance_position(width: int) -> NDArray[np.intp]:
    """Like ``pair_position``, with pairs in the order of k - j, and of j where that is equal."""
    rows, columns = pair_index(width)
    table = np.argsort(np.lexsort((rows, columns - rows)))[pair_position(width)]
    table.setflags(write=False)
    return table


@lru_cache(maxsize=32)
def norm_weights(width: int) -> NDArray[np.float64]:
    """s (q,): 1 on the diagonal, sqrt(1/2) off it, so that ||T||_F = ||s * P||_F.

    T is the symmetric tensor of P: an off-diagonal P is shared by two entries P/2.
    """
    rows, columns = pair_index(width)
    weights = np.where(rows == columns, 1.0, np.sqrt(0.5))
    weights.setflags(write=False)
    return weights


@lru_cache(maxsize=32)
def feature_weights(width: int) -> NDArray[np.float64]:
    """``norm_weights`` repeated for each query coordinate: shape (p,), order (pair, l)."""
    weights = np.repeat(norm_weights(width), width)
    weights.setflags(write=False)
    return weights


def fold_heads(attn: NDArray, value: NDArray) -> NDArray[np.float64]:
    """The folded coefficients P (e, q, d) of heads attn (H, d, d) and value (H, d, e).

    Cost: O(H e d^3) time, O(e d^3) memory.
    """
    n_heads, width, n_outputs = value.shape
    # T[(j,a), (l,k)] = sum_h V_h[j,a] A_h[l,k] is one matrix product.
    tensor = value.reshape(n_heads, -1).T @ attn.reshape(n_heads, -1)
    tensor = tensor.reshape(width, n_outputs, width, width)
    return fold_tensor(tensor.transpose(1, 0, 3, 2))


def fold_tensor(tensor: NDArray) -> NDArray[np.float64]:
    """P (e, q, d) from any T (e, d, d, d) with axes [a, j, k, l]."""
    rows, columns = pair_index(tensor.shape[1])
    folded = tensor[:, rows, columns] + tensor[:, columns, rows]
    folded[:, rows == columns] *= 0.5
    return folded


def unfold_coef(coef: NDArray) -> NDArray[np.float64]:
    """The symmetric T (e, d, d, d), axes [a, j, k, l], whose fold is ``coef`` (e, q, d)."""
    width = coef.shape[2]
    rows, columns = pair_index(width)
    halved = coef * np.where(rows == columns, 1.0, 0.5)[None, :, None]
    return halved[:, pair_position(width)]
