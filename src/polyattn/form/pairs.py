"""The pair index j <= k, and the fold between heads and coefficients.

A symmetric (d, d) matrix is stored as its q = d(d+1)/2 entries with j <= k, in the order of
``numpy.triu_indices(d)``.  Folding a tensor T[a, j, k, l] over that index gives what data can
see of it [yau2024: Corollary A.4]:

    P[a, (j<k), l] = T[a, j, k, l] + T[a, k, j, l],      P[a, (j=j), l] = T[a, j, j, l].

Here and wherever a layer is meant, d is the ``width`` of a token: the constant of ``bias`` counts.

Where keys and values are different columns of the tokens, only pairs of one column with another
that occur in both orders fold: ``FoldedPairs`` holds the general case, and the above is that of
keys and values which are both the whole token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.parallel import require_physical_memory

LARGE_COEFFICIENTS = (
    "The heads attn and value say the same in less memory, and coefficient_distance compares "
    "them; for more, reduce the number of coordinates or of outputs."
)


@dataclass(frozen=True)
class FoldedPairs:
    """The products of a value column and a key column that differ, in order of value and key.

    value, key : the columns of the tokens that are values (c) and keys (b); none occurs twice in
        one of them
    """

    value: tuple[int, ...]
    key: tuple[int, ...]

    @classmethod
    def whole(cls, width: int) -> FoldedPairs:
        """Keys and values are the whole token: the pairs j <= k."""
        return _pairs(tuple(range(width)), tuple(range(width)))

    @classmethod
    def of(cls, value: tuple[int, ...], key: tuple[int, ...]) -> FoldedPairs:
        """The pairs of these columns; the same object for the same columns."""
        return _pairs(value, key)

    def __len__(self) -> int:
        return self.n_values * self.n_keys - self.n_shared * (self.n_shared - 1) // 2

    @property
    def n_values(self) -> int:
        """Numbers that are seen of a token as a value."""
        return len(self.value)

    @property
    def n_keys(self) -> int:
        """Numbers that are seen of a token as a key."""
        return len(self.key)

    @cached_property
    def position(self) -> NDArray[np.intp]:
        """The table (n_values, n_keys) of where each product stands."""
        return self._found[0]

    @cached_property
    def first(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places in ``value`` and in ``key`` of each pair, two arrays (m,)."""
        return self._found[1]

    @cached_property
    def second(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The same for the other order of the pair; equal to ``first`` where there is none."""
        return self._found[2]

    @cached_property
    def folded(self) -> NDArray[np.bool_]:
        """Which pairs stand for two products, (m,)."""
        return np.asarray(self.first[0] != self.second[0])

    @cached_property
    def norm_weights(self) -> NDArray[np.float64]:
        """s (m,): sqrt(1/2) where two products are one pair, so that ||T||_F = ||s * P||_F."""
        weights = np.where(self.folded, np.sqrt(0.5), 1.0)
        weights.setflags(write=False)
        return weights

    @cached_property
    def n_shared(self) -> int:
        """How many columns are both key and value; two or more of them fold."""
        return len(set(self.value) & set(self.key))

    @cached_property
    def _found(self) -> tuple[NDArray[np.intp], tuple[NDArray, NDArray], tuple[NDArray, NDArray]]:
        value, key = np.array(self.value)[:, None], np.array(self.key)[None, :]
        most = int(max(value.max(), key.max())) + 1
        codes = (np.minimum(value, key) * most + np.maximum(value, key)).ravel()
        _, begin, inverse = np.unique(codes, return_index=True, return_inverse=True)
        # The last place of a code is the first in the reversed order.
        end = codes.size - 1 - np.unique(codes[::-1], return_index=True)[1]
        order = np.argsort(begin)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        shape = (self.n_values, self.n_keys)
        first, second = (divmod(at[order], self.n_keys) for at in (begin, end))
        position = rank[inverse].reshape(shape)
        for array in (position, *first, *second):
            array.setflags(write=False)
        return position, first, second


@lru_cache(maxsize=64)
def _pairs(value: tuple[int, ...], key: tuple[int, ...]) -> FoldedPairs:
    return FoldedPairs(value, key)


def n_pairs(width: int) -> int:
    """q = d(d+1)/2, the number of pairs j <= k."""
    return width * (width + 1) // 2


def n_features(width: int) -> int:
    """p = q d, the number of cubic features."""
    return n_pairs(width) * width


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


def fold_heads(
    attn: NDArray, value: NDArray, pairs: FoldedPairs | None = None
) -> NDArray[np.float64]:
    """The folded coefficients P (e, m, r) of heads attn (H, r, keys) and value (H, values, e).

    pairs : how products fold (default: keys and values are the whole token)
    Cost: O(H e d^3) time, O(e d^3) memory.
    """
    n_heads, n_values, n_outputs = value.shape
    # The tensor, two parts of it that are added, and their sum.
    n_bytes = 20 * n_values * n_outputs * attn[0].size
    require_physical_memory(
        n_bytes, f"the coefficients of {attn.shape[1]:,} numbers of a query", LARGE_COEFFICIENTS
    )
    # T[(c,a), (l,b)] = sum_h V_h[c,a] A_h[l,b] is one matrix product.
    tensor = value.reshape(n_heads, -1).T @ attn.reshape(n_heads, -1)
    tensor = tensor.reshape(n_values, n_outputs, *attn.shape[1:])
    return fold_tensor(tensor.transpose(1, 0, 3, 2), pairs)


def fold_tensor(tensor: NDArray, pairs: FoldedPairs | None = None) -> NDArray[np.float64]:
    """P (e, m, r) from any T (e, values, keys, r) with axes [a, c, b, l]."""
    pairs = pairs or FoldedPairs.whole(tensor.shape[1])
    folded = tensor[:, *pairs.first] + tensor[:, *pairs.second]
    folded[:, ~pairs.folded] *= 0.5
    return folded


def unfold_coef(coef: NDArray, pairs: FoldedPairs | None = None) -> NDArray[np.float64]:
    """The T (e, values, keys, r), axes [a, c, b, l], of least norm whose fold is ``coef``.

    Products that are one pair have equal entries.
    """
    pairs = pairs or FoldedPairs.whole(coef.shape[2])
    halved = coef * np.where(pairs.folded, 0.5, 1.0)[None, :, None]
    return halved[:, pairs.position]
