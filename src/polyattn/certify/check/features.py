"""Features and their ranks modulo a prime, computed once more for the checker alone.

Nothing here is shared with the code that makes certificates: plain numpy, from the tokens on,
block by block.  The same few lines serve residues modulo a prime and, where ``prime`` is None,
float64.

Residues are integers of magnitude at most 2^22 in float64, so INNER = 256 products of two add up
to at most 2^52: exact, in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import pieces, ranges_of_rows
from polyattn.numerics.scaling import exponent_for, largest_magnitude
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Primes of certificates lie between these: counts of tokens are smaller than all of them.
LEAST_PRIME, LARGEST_PRIME = 1 << 21, (1 << 23) - 15

# How many products of residues are added before they are reduced.
INNER = 256

# Columns that are eliminated one by one before the others follow in one product.
PANEL = 64

# Numbers of one block of Gram matrices, and of features.
BLOCK_NUMBERS = 1 << 20

# Combinations of rows beyond the rank that is expected: fewer would not always reach it.
EXTRA_ROWS = 16

# Rows that are tried first, for each that is expected to be independent, and how many random sums
# of all rows are compared with them.
SHARE, CHECKED_SUMS = 1.25, 4


def random_prime(rng: np.random.Generator, other_than: int | None = None) -> int:
    """A prime between 2^22 and 2^23, of which there are 268,000: no forger can foresee it."""
    while True:
        candidate = int(rng.integers(1 << 22, LARGEST_PRIME)) | 1
        if candidate != other_than and is_prime(candidate):
            return candidate


def is_prime(number: int) -> bool:
    """Whether this is a prime between 3 and LARGEST_PRIME, by trial division."""
    if not 2 < number <= LARGEST_PRIME or number % 2 == 0:
        return False
    return bool(np.all(number % np.arange(3, int(number**0.5) + 1, 2)))


def reduce(numbers: NDArray[np.float64], prime: int | None) -> NDArray[np.float64]:
    """Integers below 2^53 to residues about zero, in place; without a prime they stay."""
    if prime is not None:
        numbers -= prime * np.rint(numbers / prime)
    return numbers


def product(left: NDArray, right: NDArray, prime: int) -> NDArray[np.float64]:
    """left @ right modulo the prime."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for start in range(0, left.shape[1], INNER):
        total += left[:, start : start + INNER] @ right[start : start + INNER]
        reduce(total, prime)
    return total


def rank_of(matrix: NDArray[np.float64], prime: int) -> int:
    """The rank of residues (rows, columns), which are overwritten.

    Cost: 2/3 of rows * columns * rank * 2 flops, nearly all in matrix products.
    """
    return rank_and_span(matrix, 0, prime)[0]


def rank_and_span(matrix: NDArray[np.float64], n_last: int, prime: int) -> tuple[int, bool]:
    """The rank of all but the last so many rows, and whether those lie in the span of the others.

    The matrix is overwritten.
    """
    rank, inside, most = 0, True, len(matrix) - n_last
    for start in range(0, matrix.shape[1], PANEL):
        stop = min(start + PANEL, matrix.shape[1])
        found, in_panel = _eliminate_panel(matrix, rank, start, stop, most, prime)
        inside = inside and in_panel
        top, rest = matrix[rank : rank + found, stop:], matrix[rank + found :, stop:]
        factors = matrix[rank:, start : start + found]
        for row in range(1, found):
            top[row] -= product(factors[row : row + 1, :row], top[:row], prime)[0]
            reduce(top[row], prime)
        rest -= product(factors[found:], top, prime)
        reduce(rest, prime)
        rank += found
        if rank == most:
            inside = inside and not matrix[most:, stop:].any()
            break
    return rank, bool(inside)


def _eliminate_panel(
    matrix: NDArray[np.float64], rank: int, start: int, stop: int, most: int, prime: int
) -> tuple[int, bool]:
    """Eliminate columns start..stop below row ``rank``: how many pivots there are above ``most``.

    And whether rows from there on are zero where there is no pivot.
    Rows are exchanged as wholes; the factor by which pivot row i was taken from each row is left
    in column start + i, which is not needed any more.
    """
    panel = matrix[rank:, start:stop].copy()
    factors = np.zeros_like(panel)
    found, inside, most = 0, True, most - rank
    for column in range(stop - start):
        candidates = np.flatnonzero(panel[found:most, column])
        if not len(candidates):
            inside = inside and not panel[most:, column].any()
            continue
        swap, into = [found, found + int(candidates[0])], [found + int(candidates[0]), found]
        for each in (panel, factors, matrix[rank:, stop:]):
            each[swap] = each[into]
        inverse = pow(int(panel[found, column]), -1, prime)
        inverse -= prime if inverse > prime // 2 else 0
        below = reduce(panel[found + 1 :, column] * inverse, prime)
        factors[found + 1 :, found] = below
        panel[found + 1 :] -= np.outer(below, panel[found])
        reduce(panel[found + 1 :], prime)
        found += 1
    matrix[rank:, start:stop] = factors
    return found, inside


def residues(tokens: NDArray, prime: int) -> NDArray[np.float64]:
    """Numbers of any dtype modulo an odd prime; a float64 is m 2^e, so it has a residue, too."""
    if tokens.dtype.kind != "f":
        # Large unsigned integers do not fit int64, and the prime does not fit small ones.
        whole = tokens.astype(np.uint64 if tokens.dtype.kind == "u" else np.int64)
        return reduce((whole % whole.dtype.type(prime)).astype(np.float64), prime)
    mantissas, exponents = np.frexp(tokens.astype(np.float64))
    least = int(exponents.min())
    powers = [pow(2, e - 53, prime) for e in range(least, int(exponents.max()) + 1)]
    whole = np.ldexp(mantissas, 53).astype(np.int64) % prime
    found = whole * np.array(powers, dtype=np.int64)[exponents - least] % prime
    return reduce(found.astype(np.float64), prime)


@dataclass(frozen=True, eq=False)
class Table:
    """psi[(j<=k), l] = G[j,k] x[l] of all predicted positions.

    ``one_hot``: leave out G[j,k] of two different symbols, which are zero for one-hot tokens.
    Memory: one block, or for a longer sequence its length times q.
    """

    batch: SequenceBatch
    mode: str
    bias: bool
    one_hot: bool = False

    @property
    def width(self) -> int:
        return self.batch.n_dims + self.bias

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pairs j <= k of this table, row after row."""
        first, second = np.triu_indices(self.width)
        kept = np.full(len(first), not self.one_hot)
        kept |= (first == second) | (self.bias & (second == self.width - 1))
        return first[kept], second[kept]

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """Where the features of this table stand among all p, shape (c,)."""
        first, second = self.pairs
        # Rows 0..first - 1 of the triangle are width, width - 1, ... entries long.
        place = first * self.width - first * (first - 1) // 2 + second - first
        return (place[:, None] * self.width + np.arange(self.width)).reshape(-1)

    @cached_property
    def exponent(self) -> int:
        """The power of two by which floating-point tokens are divided."""
        largest = largest_magnitude(self.batch.values)
        return exponent_for(max(largest, 1.0) if self.bias else largest) or 0

    def summaries(self, prime: int | None = None) -> Iterator[tuple[NDArray, NDArray]]:
        """(Gram entries (rows, pairs), queries (rows, width)) of all rows, in order.

        Modulo a prime; or in float64, tokens divided by 2**exponent.
        """
        first, second = self.pairs
        offsets, total = self.batch.offsets, self.batch.n_rows(self.mode)
        done = 0
        for start, stop in ranges_of_rows(offsets, max(1, BLOCK_NUMBERS // len(first))):
            tokens = self._tokens(offsets[start], offsets[stop], prime)
            products = reduce(tokens[:, first] * tokens[:, second], prime)
            borders = offsets[start : stop + 1] - offsets[start]
            if self.mode == "causal":
                for first_of, stop_of in pairwise(borders.tolist()):
                    np.cumsum(products[first_of:stop_of], axis=0, out=products[first_of:stop_of])
                grams, queries = products, tokens
            else:
                grams = np.add.reduceat(products, borders[:-1], axis=0)
                queries = tokens[borders[1:] - 1]
            if self.mode == "full":
                grams, queries = np.repeat(grams, np.diff(borders), axis=0), tokens
            reduce(grams, prime)
            step = max(64, 2 * BLOCK_NUMBERS // len(self.columns))
            for row in range(0, len(queries), step):
                yield grams[row : row + step], queries[row : row + step]
            done += len(queries)
            report(done, total)

    def features(self, prime: int | None = None) -> Iterator[NDArray[np.float64]]:
        """The features (rows, c) of all rows, in order."""
        for grams, queries in self.summaries(prime):
            yield reduce(self.features_of(grams, queries), prime)

    def occurring(self, prime: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which features (c,), and which entries of the query, are not always zero."""
        features = asked = np.zeros(1, dtype=bool)
        for sums, queries in self.summaries(prime):
            together = (sums != 0).T.astype(np.float64) @ (queries != 0).astype(np.float64)
            features = features | (self.vector_of(together) != 0)
            asked = asked | queries.any(axis=0)
        return features, asked

    def column_occurs(self, number: int) -> bool:
        """Whether a column of the tokens attended to is not always zero; the constant is last."""
        return number >= self.batch.n_dims or any(
            np.any(piece[:, number]) for piece in pieces(self.batch.values)
        )

    def features_of(self, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """The features (rows, c) of summaries, their products."""
        return (sums[:, :, None] * queries[:, None, :]).reshape(len(queries), -1)

    def grid_of(self, vector: NDArray) -> NDArray:
        """A number for each product of a sum and a query, from one for each feature (c,)."""
        return vector.reshape(-1, self.width)

    def vector_of(self, grid: NDArray) -> NDArray:
        """The inverse of ``grid_of``."""
        return grid.reshape(-1)

    def chosen(self, numbers: NDArray[np.int64]) -> Self:
        """The table of some sequences."""
        return replace(self, batch=self.batch.chosen(numbers))

    def some_features(self, n_rows: float, prime: int) -> Iterator[NDArray[np.float64]]:
        """The features of about so many rows, or of all, of evenly spread sequences."""
        last = len(self.batch) - 1
        count = int(np.ceil((last + 1) * n_rows / self.batch.n_rows(self.mode)))
        numbers = np.unique(np.linspace(0, last, min(count, last + 1)).astype(np.int64))
        read = 0
        for block in self.chosen(numbers).features(prime):
            yield block
            read += len(block)
            # A single sequence may be longer than all that was asked for.
            if read > 2 * n_rows:
                break

    def random_sums(self, count: int, prime: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Random combinations (count, c) of all rows."""
        half, total = prime // 2, np.zeros((count, len(self.columns)))
        for sums, queries in self.summaries(prime):
            for each in total:
                weights = rng.integers(-half, half + 1, (len(sums), 1)).astype(np.float64)
                grid = product(sums.T, reduce(queries * weights, prime), prime)
                each += self.vector_of(grid)
                reduce(each, prime)
        return total

    def products(self, vector: NDArray, prime: int) -> Iterator[NDArray[np.float64]]:
        """<vector, psi> of all rows modulo a prime, for residues (c,)."""
        for grams, queries in self.summaries(prime):
            forms = product(grams, self.grid_of(vector), prime)
            yield reduce(reduce(forms * queries, prime).sum(axis=1), prime)

    def _tokens(self, start: int, stop: int, prime: int | None) -> NDArray[np.float64]:
        chosen = self.batch.values[start:stop]
        constant = np.ones((len(chosen), int(self.bias)))
        if prime is not None:
            return np.concatenate([residues(chosen, prime), constant], axis=1)
        tokens = np.concatenate([chosen.astype(np.float64), constant], axis=1)
        return np.ldexp(tokens, -self.exponent)


def rank_modulo(
    tables: Sequence[Table], prime: int, expected: int, rng: np.random.Generator
) -> int:
    """The rank of the features of all tables together modulo a prime, at most the true one.

    ``expected``: no rank is larger.
    A share of the rows is enough where random combinations of all rows lie in its span: others
    would not, with a probability of 1e-26.  Otherwise the rank is that of as many combinations.
    Cost: an elimination of 1.25 expected rows, and a pass; or 2 rows * c * expected flops.
    """
    wanted = SHARE * (expected + EXTRA_ROWS)
    rows = [block for table in tables for block in table.some_features(wanted, prime)]
    sums = [table.random_sums(CHECKED_SUMS, prime, rng) for table in tables]
    n_sums = CHECKED_SUMS * len(tables)
    rank, inside = rank_and_span(np.concatenate([*rows, *sums]), n_sums, prime)
    if inside or rank == expected:
        return rank
    n_combinations = expected + EXTRA_ROWS
    combined = np.zeros((n_combinations, len(tables[0].columns)))
    half = prime // 2
    for table in tables:
        for block in table.features(prime):
            weights = rng.integers(-half, half + 1, (n_combinations, len(block)))
            combined += product(weights.astype(np.float64), block, prime)
            reduce(combined, prime)
    return rank_of(combined, prime)
