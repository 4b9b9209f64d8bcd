"""Expectations of products of features when all entries of a sequence are independent.

A feature is G[j, k] x[l] with G[j, k] = sum_t x_t[j] x_t[k].  The product of r features is a sum
over the tokens t_1 .. t_r that their sums run through, and its expectation depends only on which of
these are equal, and which are the query: on a partition of {query, 1 .. r}.  Given the partition,
entries of different coordinates and of different tokens are independent, so that it is a product
over coordinates of products of moments (docs/derivations/independent_entries.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import perm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is seen of one coordinate: how often it stands in each pair (0, 1, 2), then in the queries.
PAIR_COUNTS = 3


class ProductExpectations:
    """E of products of ``n_factors`` features, for every position that is predicted together.

    moments : m_0 = 1, m_1, .. of an entry, up to 3 ``n_factors``; fractions, or floats
    n_others : for k = 0 .. n_factors the mean over predicted positions of the number of ways to
        choose k different tokens beside the query, in order

    Expectations of fractions are exact.

    Cost: a table of 3^r (r + 1) rows and as many columns as partitions of r + 1 things (5 for two
    factors, 52 for four).
    """

    def __init__(self, moments: Sequence[Any], n_others: Sequence[Any], n_factors: int) -> None:
        self.n_factors = n_factors
        partitions = list(_partitions(n_factors + 1))
        dtype = np.float64 if isinstance(moments[-1], float) else object
        self._weights = np.array([n_others[max(each)] for each in partitions], dtype=dtype)
        counts = [range(n_factors + 1)] + [range(PAIR_COUNTS)] * n_factors
        rows = [[_moment(seen, each, moments) for each in partitions] for seen in product(*counts)]
        self._table = np.array(rows, dtype=dtype)

    def codes(self, features: NDArray[np.intp], n_dims: int, factor: int) -> NDArray[np.intp]:
        """What features (f, 3), rows j, k, l, add to the code of each coordinate: (f, n_dims)."""
        in_pair = PAIR_COUNTS ** (self.n_factors - 1 - factor)
        codes = np.zeros((len(features), n_dims), dtype=np.intp)
        rows = np.arange(len(features))
        for column, step in zip(
            features.T, (in_pair, in_pair, PAIR_COUNTS**self.n_factors), strict=True
        ):
            np.add.at(codes, (rows, column), step)
        return codes

    def of(self, codes: NDArray[np.intp]) -> NDArray:
        """Expectations (...,) for sums of codes (..., n_dims) of all factors."""
        # The order of coordinates does not matter, so that few products are different ones.
        ordered = np.sort(codes, axis=-1).reshape(-1, codes.shape[-1])
        patterns, place = np.unique(ordered, axis=0, return_inverse=True)
        total = np.repeat(self._weights[None], len(patterns), axis=0)
        for column in patterns.T:
            total = total * self._table[column]
        return np.asarray(total.sum(axis=1)[place.reshape(-1)]).reshape(codes.shape[:-1])


def features_of(n_dims: int) -> NDArray[np.intp]:
    """All features (p, 3) as rows j <= k, l, in the order of the library."""
    j, k = np.triu_indices(n_dims)
    l = np.arange(n_dims)  # noqa: E741 - the letter of the query's coordinate everywhere
    return np.stack([np.repeat(j, n_dims), np.repeat(k, n_dims), np.tile(l, len(j))], axis=1)


def ways_to_choose_others(n_tokens: int, mode: str, most: int) -> list[Fraction]:
    """For k = 0 .. most, (t - 1)(t - 2) .. (t - k) of the t tokens that a position attends to.

    The mean over positions: t is 1 .. n in mode "causal", and n else.
    """
    # The sum over t of (t - 1) .. (t - k) is n (n - 1) .. (n - k) / (k + 1).
    shares = [k + 1 if mode == "causal" else 1 for k in range(most + 1)]
    return [Fraction(perm(n_tokens - 1, k), share) for k, share in enumerate(shares)]


def _partitions(size: int) -> Iterator[tuple[int, ...]]:
    """Every partition of 0 .. size - 1: the number of the part of each, parts in order."""
    if size == 1:
        yield (0,)
        return
    for first in _partitions(size - 1):
        for part in range(max(first) + 2):
            yield (*first, part)


def _moment(seen: tuple[int, ...], parts: tuple[int, ...], moments: Sequence[Any]) -> Any:
    """E of the entries of one coordinate, which stands ``seen`` times in queries and pairs."""
    powers = [0] * (max(parts) + 1)
    for count, part in zip(seen, parts, strict=True):
        powers[part] += count
    return prod(moments[power] for power in powers)
