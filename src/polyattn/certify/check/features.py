"""Features and their ranks modulo a prime, computed once more for the checker alone.

Nothing here is shared with the code that makes certificates: plain numpy, from the tokens on,
block by block.  The same few lines serve float64 and residues modulo a prime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.check.elimination import product, rank_of, reduce
from polyattn.numerics.arrays import pieces, ranges_of_rows
from polyattn.numerics.scaling import exponent_for, largest_magnitude
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Numbers of one block of Gram matrices, and of features.
BLOCK_NUMBERS = 1 << 20

# Combinations of rows beyond the rank that is expected: fewer would not always reach it.
EXTRA_ROWS = 16


class Arithmetic(Protocol):
    """How tokens become numbers, and what is done after every operation."""

    def numbers(self, tokens: NDArray) -> NDArray[np.float64]:
        """The tokens as numbers of this arithmetic."""

    def settle(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same numbers, reduced in place."""


@dataclass(frozen=True)
class Floats:
    """float64, tokens divided by a power of two."""

    exponent: int = 0

    def numbers(self, tokens: NDArray) -> NDArray[np.float64]:
        return np.ldexp(tokens.astype(np.float64), -self.exponent)

    def settle(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return numbers


@dataclass(frozen=True)
class Modulo:
    """Residues modulo an odd prime.  A float64 is m 2^e, so it has one, without rounding."""

    prime: int

    def numbers(self, tokens: NDArray) -> NDArray[np.float64]:
        if tokens.dtype.kind != "f":
            # Large unsigned integers do not fit int64, and the prime does not fit small ones.
            whole = tokens.astype(np.uint64 if tokens.dtype.kind == "u" else np.int64)
            return self.settle((whole % whole.dtype.type(self.prime)).astype(np.float64))
        mantissas, exponents = np.frexp(tokens.astype(np.float64))
        least = int(exponents.min())
        powers = [pow(2, e - 53, self.prime) for e in range(least, int(exponents.max()) + 1)]
        whole = np.ldexp(mantissas, 53).astype(np.int64) % self.prime
        residues = whole * np.array(powers, dtype=np.int64)[exponents - least] % self.prime
        return self.settle(residues.astype(np.float64))

    def settle(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return reduce(numbers, self.prime)


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
        """Coordinates per token, the constant included."""
        return self.batch.n_dims + self.bias

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """(j, k) with j <= k, row after row."""
        every = list(combinations_with_replacement(range(self.width), 2))
        if not self.one_hot:
            return every
        return [(j, k) for j, k in every if j == k or (self.bias and k == self.width - 1)]

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """Where the features of this table stand among all p, shape (c,)."""
        every = combinations_with_replacement(range(self.width), 2)
        position = {pair: index for index, pair in enumerate(every)}
        starts = np.array([position[pair] * self.width for pair in self.pairs])
        return (starts[:, None] + np.arange(self.width)).reshape(-1)

    @cached_property
    def exponent(self) -> int:
        """The power of two by which floating-point tokens are divided."""
        largest = largest_magnitude(pieces(self.batch.values))
        return exponent_for(max(largest, 1.0) if self.bias else largest) or 0

    def summaries(self, arithmetic: Arithmetic) -> Iterator[tuple[NDArray, NDArray]]:
        """(Gram entries (rows, pairs), queries (rows, width)) of all rows, in order."""
        first, second = np.array(self.pairs).T
        offsets, total = self.batch.offsets, self.batch.n_rows(self.mode)
        done = 0
        for start, stop in ranges_of_rows(offsets, max(1, BLOCK_NUMBERS // len(first))):
            tokens = self._tokens(int(offsets[start]), int(offsets[stop]), arithmetic)
            products = arithmetic.settle(tokens[:, first] * tokens[:, second])
            borders = offsets[start : stop + 1] - offsets[start]
            grams, queries = self._of_mode(tokens, products, borders)
            arithmetic.settle(grams)
            for row in range(0, len(queries), self._block_rows):
                block = slice(row, row + self._block_rows)
                yield grams[block], queries[block]
            done += len(queries)
            report(done, total)

    def features(self, arithmetic: Arithmetic) -> Iterator[NDArray[np.float64]]:
        """The features (rows, c) of all rows, in order."""
        for grams, queries in self.summaries(arithmetic):
            block = grams[:, :, None] * queries[:, None, :]
            yield arithmetic.settle(block.reshape(len(queries), -1))

    def products(self, vector: NDArray, arithmetic: Arithmetic) -> Iterator[NDArray[np.float64]]:
        """<vector, psi> of all rows, for a vector (c,) of the arithmetic's numbers."""
        table = vector.reshape(len(self.pairs), self.width)
        for grams, queries in self.summaries(arithmetic):
            if isinstance(arithmetic, Modulo):
                forms = product(grams, table, arithmetic.prime)
            else:
                forms = grams @ table
            yield arithmetic.settle(arithmetic.settle(forms * queries).sum(axis=1))

    @property
    def _block_rows(self) -> int:
        return max(64, 2 * BLOCK_NUMBERS // len(self.columns))

    def _tokens(self, start: int, stop: int, arithmetic: Arithmetic) -> NDArray[np.float64]:
        tokens = arithmetic.numbers(self.batch.values[start:stop])
        if not self.bias:
            return tokens
        one = arithmetic.numbers(np.ones((1, 1)))
        return np.concatenate([tokens, np.repeat(one, len(tokens), axis=0)], axis=1)

    def _of_mode(
        self, tokens: NDArray, products: NDArray, borders: NDArray[np.int64]
    ) -> tuple[NDArray, NDArray]:
        """Gram entries and queries of the predicted positions of some sequences."""
        if self.mode == "causal":
            for start, stop in pairwise(borders.tolist()):
                np.cumsum(products[start:stop], axis=0, out=products[start:stop])
            return products, tokens
        grams = np.add.reduceat(products, borders[:-1], axis=0)
        if self.mode == "full":
            return np.repeat(grams, np.diff(borders), axis=0), tokens
        return grams, tokens[borders[1:] - 1]


def rank_modulo(
    tables: Sequence[Table], prime: int, expected: int, rng: np.random.Generator
) -> int:
    """The rank of the features of all tables together modulo a prime, at most the true one.

    Random combinations of the rows have their rank, or less with a probability below 1e-100.
    ``expected``: no rank is larger.  Cost: 2 rows * c * (expected + 16) flops; where a share of
    the sequences reaches the expected rank, only those are read.
    """
    some = [_share(table, 4 * (expected + EXTRA_ROWS)) for table in tables]
    if len(tables) == 1 and some[0] is not tables[0]:
        rank = rank_modulo(some, prime, expected, rng)
        if rank == expected:
            return rank
    arithmetic = Modulo(prime)
    n_combinations = expected + EXTRA_ROWS
    combined = np.zeros((n_combinations, len(tables[0].columns)))
    half = prime // 2
    for table in tables:
        for block in table.features(arithmetic):
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


def _share(table: Table, n_rows: int) -> Table:
    """Evenly spread sequences with about so many rows, or the table itself if it has no more."""
    step = table.batch.n_rows(table.mode) // n_rows
    if step < 2 or len(table.batch) < 2:
        return table
    chosen = [table.batch[i] for i in range(0, len(table.batch), step)]
    return Table(SequenceBatch.from_sequences(chosen), table.mode, table.bias, table.one_hot)
