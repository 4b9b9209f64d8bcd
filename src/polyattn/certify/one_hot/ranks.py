"""Ranks of counts of symbols, one group for each symbol that asks; proved, in integers.

Groups share no feature, so the rank of all features is the sum of theirs.  Rows that are
independent modulo a prime are independent: what is found is a lower bound, and the rank itself
where it is as large as the number of different rows, or of symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.certify.exact.integers import lifted, reconstruct
from polyattn.certify.exact.modular import Echelon, primes
from polyattn.features.symbol_counts import QueryGroup, equal_rows

# Counts lie below every prime that is used: none vanishes by accident.
PRIME = next(primes())

# Rows that are absorbed together, null vectors that are read off, and digits that are lifted.
ABSORBED, CANDIDATES, MOST_DIGITS = 1024, 64, 2000


@dataclass(frozen=True, eq=False)
class GroupRank:
    """What is known of one group.

    query : the symbol that asks
    symbols : those that it attends to (k,)
    n_different : how many of its rows differ
    rank : of its counts, modulo PRIME
    """

    query: int
    symbols: NDArray[np.int64]
    n_different: int
    rank: int

    @property
    def is_full(self) -> bool:
        """Whether the counts of all its symbols are independent."""
        return self.rank == len(self.symbols)

    @property
    def is_short(self) -> bool:
        """Whether rows are too few for all symbols: then the rank is deficient for certain."""
        return self.n_different < len(self.symbols)


def group_rank(group: QueryGroup) -> GroupRank:
    """The rank of a group.  Cost: 2 r (k - r) flops per different row."""
    rows = different_rows(group)
    rank = _echelon(rows)[0].rank
    return GroupRank(group.query, group.symbols, rows.shape[0], rank)


def null_vector(group: QueryGroup) -> list[int] | None:
    """Integers (k,), not all zero, that every row of counts is orthogonal to; checked.

    None if the rank is full, or nothing was confirmed within MOST_DIGITS digits.
    """
    rows = different_rows(group)
    found, independent = _echelon(rows)
    if not len(found.free):
        return None
    sparsest = np.argsort(np.count_nonzero(found.coefficients, axis=0), kind="stable")
    for place in sparsest[:CANDIDATES].tolist():
        column = found.coefficients[:, place]
        support = np.flatnonzero(column)
        entries = reconstruct([1, *(-column[support]).astype(np.int64).tolist()], PRIME)
        touched = [int(found.free[place]), *found.pivots[support].tolist()]
        if entries is not None and _is_orthogonal(rows, touched, entries):
            return _vector(rows.shape[1], touched, entries)
    return _lifted_vector(rows, found, independent, int(found.free[sparsest[0]]))


def different_rows(group: QueryGroup) -> csr_array:
    """The counts of a group, each row once."""
    return group.counts[equal_rows(group.counts)[1]]


def _echelon(rows: csr_array) -> tuple[Echelon, NDArray[np.int64]]:
    """The echelon form of the rows, and which of them are independent."""
    found, independent = Echelon(rows.shape[1], PRIME), []
    for first in range(0, rows.shape[0], ABSORBED):
        if found.rank == rows.shape[1]:
            break
        dense = rows[first : first + ABSORBED].toarray()
        independent.append(first + found.absorb(dense))
    return found, np.concatenate([np.empty(0, dtype=np.int64), *independent])


def _lifted_vector(
    rows: csr_array, found: Echelon, independent: NDArray[np.int64], free: int
) -> list[int] | None:
    """The null vector of a free column, lifted to as many digits as it has."""
    if not len(independent):
        return _vector(rows.shape[1], [free], [1])
    chosen = rows[np.sort(independent)].toarray().astype(np.int64)
    refused = None
    for solution, modulus in lifted(
        chosen[:, found.pivots], -chosen[:, [free]], PRIME, MOST_DIGITS
    ):
        entries = reconstruct([1, *solution[:, 0].tolist()], modulus)
        # What more digits do not change is the solution, and no null vector.
        if entries is None or entries == refused:
            continue
        touched = [free, *found.pivots.tolist()]
        if _is_orthogonal(rows, touched, entries):
            return _vector(rows.shape[1], touched, entries)
        refused = entries
    return None


def _is_orthogonal(rows: csr_array, touched: list[int], entries: list[int]) -> bool:
    """Whether counts times these entries vanish in every row, in Python's integers."""
    known = dict(zip(touched, entries, strict=True))
    counts, columns = rows.data.astype(np.int64).tolist(), rows.indices.tolist()
    products = [count * known.get(column, 0) for count, column in zip(counts, columns, strict=True)]
    borders = rows.indptr.tolist()
    return all(sum(products[first:stop]) == 0 for first, stop in pairwise(borders))


def _vector(length: int, touched: list[int], entries: list[int]) -> list[int]:
    vector = [0] * length
    for place, entry in zip(touched, entries, strict=True):
        vector[place] = entry
    return vector
