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

LARGEST_PRIME = (1 << 23) - 15

# How many products of residues are added before they are reduced.
INNER = 256

# Columns that are eliminated one by one before the others follow in one product.
PANEL = 64

# Numbers of one block of Gram matrices, and of features.
BLOCK_NUMBERS = 1 << 20

# Combinations of rows beyond the rank that is expected: fewer would not always reach it.
EXTRA_ROWS = 16


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
    rank = 0
    for start in range(0, matrix.shape[1], PANEL):
        stop = min(start + PANEL, matrix.shape[1])
        found = _eliminate_panel(matrix, rank, start, stop, prime)
        top, rest = matrix[rank : rank + found, stop:], matrix[rank + found :, stop:]
        factors = matrix[rank:, start : start + found]
        for row in range(1, found):
            top[row] -= product(factors[row : row + 1, :row], top[:row], prime)[0]
            reduce(top[row], prime)
        rest -= product(factors[found:], top, prime)
        reduce(rest, prime)
        rank += found
        if rank == len(matrix):
            break
    return rank


def _eliminate_panel(
    matrix: NDArray[np.float64], rank: int, start: int, stop: int, prime: int
) -> int:
    """Eliminate columns start..stop below row ``rank``; how many pivots there are.

    Rows are exchanged as wholes; the factor by which pivot row i was taken from each row is left
    in column start + i, which is not needed any more.
    """
    panel = matrix[rank:, start:stop].copy()
    factors = np.zeros_like(panel)
    found = 0
    for column in range(stop - start):
        candidates = np.flatnonzero(panel[found:, column])
        if not len(candidates):
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
        if found == len(panel):
            break
    matrix[rank:, start:stop] = factors
    return found


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

    Random combinations of the rows have their rank, or less with a probability below 1e-100.
    ``expected``: no rank is larger.  Cost: 2 rows * c * (expected + 16) flops; where a share of
    the sequences reaches the expected rank, only those are read.
    """
    n_combinations = expected + EXTRA_ROWS
    batch = tables[0].batch
    step = batch.n_rows(tables[0].mode) // (4 * n_combinations)
    if len(tables) == 1 and step > 1 and len(batch) > 1:
        # Evenly spread sequences with about four rows for each combination.
        some = tables[0].chosen(np.arange(0, len(batch), step))
        if rank_modulo([some], prime, expected, rng) == expected:
            return expected
    combined = np.zeros((n_combinations, len(tables[0].columns)))
    half = prime // 2
    for table in tables:
        for block in table.features(prime):
            weights = rng.integers(-half, half + 1, (n_combinations, len(block)))
            combined += product(weights.astype(np.float64), block, prime)
            reduce(combined, prime)
    return rank_of(combined, prime)


def rounded_coordinates(batch: SequenceBatch) -> NDArray[np.bool_]:
    """Which coordinates (d,) hold floats that rounding may have made what they are.

    Not integers; not floats of one grid, multiples of 2^(e - b - 1) below 2^e for the b bits of
    the dtype; nor floats that leave their last bit unused.
    """
    values = batch.values
    if values.dtype.kind != "f":
        return np.zeros(batch.n_dims, dtype=bool)
    bits = np.finfo(values.dtype).nmant + 1
    sizes = np.max([np.abs(piece).max(axis=0) for piece in pieces(values)], axis=0)
    tops = np.frexp(sizes.astype(np.float64))[1]
    odd, off_grid = np.zeros((2, batch.n_dims), dtype=bool)
    for piece in pieces(values):
        numbers = piece.astype(np.float64)
        odd |= np.any(np.ldexp(np.frexp(numbers)[0], bits) % 2 == 1, axis=0)
        # What underflows in here is no integer either.
        steps = np.ldexp(numbers, np.minimum(bits + 1 - tops, 1000))
        off_grid |= np.any(steps != np.rint(steps), axis=0)
    return odd & off_grid
