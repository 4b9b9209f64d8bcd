"""Cubic features of sequences in exact arithmetic: modulo a prime, or as integers.

Every float64 is m 2^e with an integer m, and 2 is invertible modulo an odd prime: data of any
kind have residues, without rounding.  Of each coordinate a power of two can also be taken out,
which leaves integers; features then lose a power of two per column, and no rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import INNER, Residues, centre, multiply
from polyattn.certify.exact.numbers import Extents, number_residues, shifted
from polyattn.errors import InvalidInput, require_choice
from polyattn.features.pairs import n_features, pair_index
from polyattn.numerics.arrays import even_ranges, ranges_of_rows
from polyattn.numerics.parallel import map_pieces
from polyattn.sequences import MODES, SequenceBatch

# Terms added together: so many products of residues, and a carry, are exact.
TOKENS = INNER - 1

# Numbers in a block of summaries.
BLOCK_NUMBERS = 1 << 20

# Features that a thread makes at a time, and numbers in a block of partial products.
TILE_NUMBERS, PRODUCT_NUMBERS = 1 << 16, 1 << 21


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Columns of the rows psi[(j<=k), l] = G[j,k] x[l] of all predicted positions.

    ``columns``: which of the p features, in the order of ``features.cubic_features``; others are
    never formed, and of the pairs only those that occur.
    """

    batch: SequenceBatch
    columns: NDArray[np.int64]
    mode: str = "last"
    bias: bool = False

    def __post_init__(self) -> None:
        require_choice("mode", self.mode, MODES)
        columns, every = np.asarray(self.columns), n_features(self.width)
        whole = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
        if not whole or columns.min() < 0 or columns.max() >= every:
            raise InvalidInput(
                f"columns must be integers from 0 to {every - 1}, at least one; got "
                f"{columns.dtype} of shape {columns.shape}."
            )
        object.__setattr__(self, "columns", columns.astype(np.int64))

    @property
    def width(self) -> int:
        """Coordinates per token, the constant one included."""
        return self.batch.n_dims + self.bias

    @property
    def n_rows(self) -> int:
        return self.batch.n_rows(self.mode)

    @property
    def n_columns(self) -> int:
        return len(self.columns)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pairs (j, k) that occur in the columns, two arrays (u,)."""
        (rows, columns), used = pair_index(self.width), np.unique(self.columns // self.width)
        return rows[used], columns[used]

    @cached_property
    def factors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place in ``pairs`` and the query coordinate of each column."""
        pair, query = np.divmod(self.columns, self.width)
        return np.unique(pair, return_inverse=True)[1], query

    @cached_property
    def extents(self) -> Extents:
        """Sizes of the coordinates, the constant one included."""
        return Extents.of(self.batch, self.bias)

    def per_column(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """values[j] + values[k] + values[l] for each column, from ``values`` (d,)."""
        (rows, columns), (pair, query) = self.pairs, self.factors
        return (values[rows] + values[columns])[pair] + values[query]

    def summaries(self, prime: int | None, block_rows: int | None = None) -> Iterator[ExactSummary]:
        """The summaries of all rows, in order.

        With a prime: residues.  Without: integers, the powers of two taken out; these are exact
        while sums over a sequence and over TOKENS tokens are below 2^53, for the caller to know.
        Cost: memory of one block, whatever the number and length of the sequences.
        """
        n_rows = block_rows or max(64, BLOCK_NUMBERS // (len(self.pairs[0]) + self.width))
        if self.mode == "causal":
            yield from self._running(prime, n_rows)
            return
        offsets = self.batch.offsets
        # Sequence i owns the rows borders[i]..borders[i + 1].
        borders = np.arange(len(offsets)) if self.mode == "last" else offsets
        for start, end in ranges_of_rows(borders, n_rows):
            grams = self._grams(prime, start, end)
            if self.mode == "last":
                last = offsets[start + 1 : end + 1] - 1
                yield ExactSummary(prime, start, grams, self._read(last, prime).T, self.factors)
                continue
            # A sequence longer than a block comes alone and is cut into several.
            for one, other in even_ranges(int(offsets[end] - offsets[start]), n_rows):
                tokens = np.arange(offsets[start] + one, offsets[start] + other)
                owner = np.searchsorted(offsets, tokens, side="right") - 1 - start
                queries = self._read(tokens, prime).T
                yield ExactSummary(prime, int(tokens[0]), grams[owner], queries, self.factors)

    def _grams(self, prime: int | None, first: int, stop: int) -> Residues:
        """The used entries of the token Gram of sequences first..stop, (sequences, u)."""
        offsets = self.batch.offsets
        grams = np.zeros((stop - first, len(self.pairs[0])))
        for start in range(int(offsets[first]), int(offsets[stop]), TOKENS):
            end = min(start + TOKENS, int(offsets[stop]))
            owner = int(np.searchsorted(offsets, start, side="right")) - 1
            beyond = int(np.searchsorted(offsets, end))
            starts = np.maximum(offsets[owner:beyond], start) - start
            tokens = self._read(slice(start, end), prime)
            touched = grams[owner - first : beyond - first]
            # From 32 tokens per sequence on, one small product each beats sums of pair products.
            if tokens.shape[1] < 32 * len(starts):
                products = tokens[self.pairs[0]] * tokens[self.pairs[1]]
                touched += np.add.reduceat(products, starts, axis=1).T
            else:
                segments = np.split(tokens, starts[1:], axis=1)
                touched += np.stack([(segment @ segment.T)[self.pairs] for segment in segments])
            centre(touched, prime)
        return grams

    def _running(self, prime: int | None, n_rows: int) -> Iterator[ExactSummary]:
        """Mode causal: running sums; ``carry`` links a sequence across blocks."""
        offsets, (rows, columns) = self.batch.offsets, self.pairs
        carry = np.zeros((len(rows), 1))
        for begin, close in even_ranges(len(self.batch.values), min(n_rows, TOKENS)):
            tokens = self._read(slice(begin, close), prime)
            sums = np.zeros((len(rows), close - begin + 1))
            np.cumsum(tokens[rows] * tokens[columns], axis=1, out=sums[:, 1:])
            # From each sequence that starts in here, what ran up before is taken off again.
            fresh = offsets[np.searchsorted(offsets, begin) : np.searchsorted(offsets, close)]
            before = np.concatenate([-carry, sums[:, fresh - begin]], axis=1)
            sums = sums[:, 1:] - np.repeat(before, np.diff([begin, *fresh, close]), axis=1)
            centre(sums, prime)
            carry = sums[:, -1:].copy()
            pairs = np.ascontiguousarray(sums.T)
            yield ExactSummary(prime, begin, pairs, tokens.T, self.factors)

    def _read(self, which: slice | NDArray[np.int64], prime: int | None) -> Residues:
        """The chosen tokens (d, tokens) as residues, or as integers."""
        chosen = self.batch.values[which]
        tokens, n_dims = np.ones((self.width, len(chosen))), self.batch.n_dims
        if prime is None:
            tokens[:n_dims] = shifted(chosen, self.extents.lowest[:n_dims]).T
        else:
            tokens[:n_dims] = number_residues(chosen, prime).T
        return tokens


@dataclass(frozen=True, eq=False)
class ExactSummary:
    """Rows first..stop, reduced to what their features are products of."""

    prime: int | None
    first: int
    pairs: Residues  # (rows, u): the used entries of the token Gram
    queries: Residues  # (rows, width)
    factors: tuple[NDArray[np.int64], NDArray[np.int64]]  # of each column: its pair, its query

    @property
    def stop(self) -> int:
        return self.first + len(self.pairs)

    def features(self, which: NDArray[np.int64] | None = None) -> Residues:
        """The features (rows, n_columns) of all rows of the block, or of those chosen."""
        numbers = np.arange(len(self.pairs)) if which is None else which
        pair, query = self.factors
        result = np.empty((len(numbers), len(pair)))
        if not len(numbers):
            return result

        def fill(span: tuple[int, int]) -> None:
            some, out = numbers[slice(*span)], result[slice(*span)]
            np.take(self.pairs[some], pair, axis=1, out=out, mode="clip")
            out *= self.queries[some][:, query]
            centre(out, self.prime)

        map_pieces(fill, list(even_ranges(len(numbers), max(1, TILE_NUMBERS // result.shape[1]))))
        return result

    def products(self, vectors: NDArray) -> Residues:
        """psi . v (rows, k) for vectors (n_columns, k); features are not formed.

        Cost: 2 u d k flops per row.
        """
        products, prime = np.zeros((len(self.pairs), vectors.shape[1])), self.prime
        n_pairs, width = self.pairs.shape[1], self.queries.shape[1]
        for first, stop in even_ranges(
            vectors.shape[1], max(1, PRODUCT_NUMBERS // self.queries.size)
        ):
            weights = np.zeros((n_pairs, width, stop - first))
            # Adds where a column was chosen twice.
            np.add.at(weights, self.factors, vectors[:, first:stop])
            flat = weights.reshape(n_pairs, -1)
            centre(flat, prime)
            flat = self.pairs @ flat if prime is None else multiply(self.pairs, flat, prime)
            by_query, total = flat.reshape(-1, width, stop - first), products[:, first:stop]
            for start, end in even_ranges(width, TOKENS):
                queries = self.queries[:, start:end]
                total += np.einsum("rlk,rl->rk", by_query[:, start:end], queries)
                centre(total, prime)
        return products
