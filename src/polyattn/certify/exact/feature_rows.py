"""Features of sequences in exact arithmetic: modulo a prime, or as integers.

Every float64 is m 2^e with an integer m, and 2 is invertible modulo an odd prime: data of any
kind have residues, without rounding, and so have decays and matrices.  Of each column a power of
two can also be taken out, which leaves integers; features then lose a power of two per column, and
no rank.  Neither does a row that is multiplied by a number: where sums are divided by the number
of tokens attended to, the row is taken times that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.columns import ExactTokens
from polyattn.certify.exact.modular import Residues, centre, multiply
from polyattn.certify.exact.sums import (
    TOKENS,
    ScaledProducts,
    decay_residue,
    own_products,
    running_sums,
    whole_sums,
)
from polyattn.errors import InvalidInput
from polyattn.form.form import Scale
from polyattn.form.layout import Layout
from polyattn.numerics.arrays import even_ranges, ranges_of_rows
from polyattn.numerics.parallel import map_pieces
from polyattn.sequences import SequenceBatch

# Numbers in a block of summaries.
BLOCK_NUMBERS = 1 << 20

# Features that a thread makes at a time, and numbers in a block of partial products.
TILE_NUMBERS, PRODUCT_NUMBERS = 1 << 16, 1 << 21


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Columns of the rows psi = S ⊗ u of all predicted positions.

    columns : which of the p features, in the order of ``layout``; others are never formed, and of
        the sums only those that occur
    context : the sequences attended to, if they are others
    """

    batch: SequenceBatch
    columns: NDArray[np.int64]
    layout: Layout
    context: SequenceBatch | None = None

    read_by: ClassVar[type[ExactTokens]] = ExactTokens

    def __post_init__(self) -> None:
        columns, every = np.asarray(self.columns), self.layout.n_features
        whole = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
        if not whole or columns.min() < 0 or columns.max() >= every:
            raise InvalidInput(
                f"columns must be integers from 0 to {every - 1}, at least one; got "
                f"{columns.dtype} of shape {columns.shape}."
            )
        object.__setattr__(self, "columns", columns.astype(np.int64))

    @property
    def mode(self) -> str:
        return self.layout.form.mode

    @property
    def n_rows(self) -> int:
        return self.batch.n_rows(self.mode)

    @property
    def n_columns(self) -> int:
        return len(self.columns)

    @cached_property
    def tokens(self) -> ExactTokens:
        """The tokens of which queries are made."""
        return self.read_by(self.batch, self.layout.columns)

    @cached_property
    def attended(self) -> ExactTokens:
        """The tokens of which keys and values are made."""
        if self.context is None:
            return self.tokens
        return self.read_by(self.context, self.layout.pair_columns)

    @cached_property
    def factors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place among the sums in use and the query of each column."""
        sums, query = np.divmod(self._products, self.layout.n_queries)
        return np.unique(sums, return_inverse=True)[1], query

    @cached_property
    def products(self) -> list[ScaledProducts]:
        """The sums of products that occur in the columns, scale by scale."""
        layout, used = self.layout, self._used
        pairs, found = layout.pairs, []
        value, key = np.array(pairs.value), np.array(pairs.key)
        for number, scale in enumerate(layout.form.scales):
            # In mode full nothing counts distances; a token is taken off its own sum.
            scale = Scale(0, None) if self.mode == "full" else scale
            if scale.stop is not None and scale.stop >= self.longest:
                scale = scale._replace(stop=None)
            first, stop = np.searchsorted(used, [number * len(pairs), (number + 1) * len(pairs)])
            chosen = used[first:stop] - number * len(pairs)
            if len(chosen):
                at_value, at_key = value[pairs.first[0][chosen]], key[pairs.first[1][chosen]]
                places = slice(int(first), int(stop))
                found.append(ScaledProducts(scale, at_value, at_key, places))
        return found

    @property
    def n_products(self) -> int:
        """How many sums occur in the columns, without the constant."""
        return len(self._used) - self.has_constant

    @property
    def has_constant(self) -> bool:
        """Whether the constant of ``skip`` or ``intercept`` occurs, as the last of the sums."""
        return self.layout.has_constant and self._used[-1] == self.layout.n_products

    @property
    def in_floats(self) -> bool:
        """Whether integers can be summed in float64, while they are small."""
        tokens = self.tokens.only_coordinates and self.attended.only_coordinates
        even = all(part.scale.decay == 1.0 for part in self.products)
        return tokens and even and (self.mode != "causal" or self._runs_on)

    @property
    def longest(self) -> int:
        """The most tokens that are attended to."""
        return int(self.attended.batch.lengths.max())

    @cached_property
    def lowest(self) -> NDArray[np.int64]:
        """e with psi_c = 2^e_c z_c for integers z_c, of each column; rows times their counts."""
        return self._per_column("lowest")

    @cached_property
    def bits(self) -> int:
        """b with |z_c| < 2^b for every feature of every row, as integers."""
        widths = self._per_column("highest") - self.lowest
        return int(widths.max()) + self.longest.bit_length()

    def allows(self, prime: int) -> bool:
        """Whether no decay vanishes modulo the prime."""
        return all(decay_residue(part.scale.decay, prime) for part in self.products)

    def counts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each row is taken times, given how many tokens it may see."""
        if not self.layout.form.mean:
            return np.ones_like(numbers)
        return np.maximum(self.layout.form.n_attended(numbers), 1)

    def summaries(self, prime: int | None, block_rows: int | None = None) -> Iterator[ExactSummary]:
        """The summaries of all rows, in order.

        With a prime: residues.  Without: integers, the powers of two taken out; these are exact
        while sums over a sequence and over TOKENS tokens are below 2^53, for the caller to know.
        Cost: memory of one block, whatever the number and length of the sequences (of windows and
        decays in mode causal: of one sequence).
        """
        n_rows = block_rows or max(64, BLOCK_NUMBERS // (len(self._used) + self.layout.n_queries))
        if self.mode == "causal":
            read = self._running if self._runs_on else self._windows
            yield from read(prime, n_rows)
            return
        offsets = self.batch.offsets
        # Sequence i owns the rows borders[i]..borders[i + 1].
        borders = np.arange(len(offsets)) if self.mode == "last" else offsets
        for start, end in ranges_of_rows(borders, n_rows):
            sums = whole_sums(self.attended, self.products, self.n_products, prime, start, end)
            seen = self.attended.batch.lengths[start:end]
            if self.mode == "last":
                yield self._summary(prime, start, sums, offsets[start + 1 : end + 1] - 1, seen)
                continue
            # A sequence longer than a block comes alone and is cut into several.
            for one, other in even_ranges(int(offsets[end] - offsets[start]), n_rows):
                tokens = np.arange(offsets[start] + one, offsets[start] + other)
                owner = np.searchsorted(offsets, tokens, side="right") - 1 - start
                of_rows = sums[owner]
                if not self.layout.form.include_query:
                    columns = self.tokens.read(tokens, prime)
                    of_rows -= own_products(columns, self.products, self.n_products, prime)
                    centre(of_rows, prime)
                yield self._summary(prime, int(tokens[0]), of_rows, tokens, seen[owner])

    def _running(self, prime: int | None, n_rows: int) -> Iterator[ExactSummary]:
        """Mode causal, all tokens before: ``carry`` links a sequence across blocks."""
        offsets, (part,) = self.batch.offsets, self.products
        carry = np.zeros((len(part.value), 1))
        for begin, close in even_ranges(len(self.batch.values), min(n_rows, TOKENS)):
            columns = self.attended.read(slice(begin, close), prime)
            sums = np.zeros((len(part.value), close - begin + 1))
            np.cumsum(columns[part.value] * columns[part.key], axis=1, out=sums[:, 1:])
            # From each sequence that starts in here, what ran up before is taken off again.
            fresh = offsets[np.searchsorted(offsets, begin) : np.searchsorted(offsets, close)]
            before = np.concatenate([-carry, sums[:, fresh - begin]], axis=1)
            sums = sums[:, 1:] - np.repeat(before, np.diff([begin, *fresh, close]), axis=1)
            centre(sums, prime)
            carry = sums[:, -1:].copy()
            tokens = np.arange(begin, close)
            seen = tokens + 1 - offsets[np.searchsorted(offsets, tokens, side="right") - 1]
            yield self._summary(prime, begin, np.ascontiguousarray(sums.T), tokens, seen)

    def _windows(self, prime: int | None, n_rows: int) -> Iterator[ExactSummary]:
        """Mode causal with distances that count differently: whole sequences at a time."""
        offsets = self.batch.offsets
        for first, stop in ranges_of_rows(offsets, n_rows):
            begin, close = int(offsets[first]), int(offsets[stop])
            starts = offsets[first:stop] - begin
            columns = self.attended.read(slice(begin, close), prime)
            sums = np.empty((close - begin, self.n_products))
            for part in self.products:
                sums[:, part.places] = running_sums(columns, part, starts, prime).T
            tokens = np.arange(begin, close)
            seen = tokens + 1 - begin - np.repeat(starts, self.batch.lengths[first:stop])
            yield self._summary(prime, begin, sums, tokens, seen)

    def _summary(
        self, prime: int | None, first: int, sums: Residues, tokens: NDArray, seen: NDArray
    ) -> ExactSummary:
        """The sums with their constant, and the queries of the given tokens."""
        layout = self.layout
        if self.has_constant:
            counts = self.counts(seen).astype(np.float64)[:, None]
            centre(counts, prime)
            sums = np.concatenate([sums, counts], axis=1)
        queries = self.tokens.read(tokens, prime)
        if not layout.query_is_all_columns:
            queries = queries[layout.query]
        queries = queries.T
        if layout.form.intercept:
            queries = np.concatenate([queries, np.ones((len(queries), 1))], axis=1)
        return ExactSummary(prime, first, sums, queries, self.factors)

    @property
    def _runs_on(self) -> bool:
        """Whether all tokens before count equally."""
        return len(self.products) == 1 and self.products[0].is_plain

    @cached_property
    def _products(self) -> NDArray[np.int64]:
        """The place of each column among all products S ⊗ u."""
        kept = self.layout.kept
        return self.columns if kept is None else kept[self.columns]

    @cached_property
    def _used(self) -> NDArray[np.int64]:
        """Which sums occur in the columns, in order."""
        return np.unique(self._products // self.layout.n_queries)

    def _per_column(self, name: str) -> NDArray[np.int64]:
        """Exponents of all factors of each column added up; ``name`` of ``Extents``."""
        own, others = (getattr(each.extents, name) for each in (self.tokens, self.attended))
        of_sums = np.zeros(len(self._used), dtype=np.int64)
        for part in self.products:
            of_sums[part.places] = others[part.value] + others[part.key]
            if name == "lowest":
                of_sums[part.places] -= _decay_bits(part.scale.decay) * (self.longest - 1)
            elif part.scale.decay < 1.0:
                of_sums[part.places] += 1
        if self.has_constant and name == "highest":
            of_sums[-1] = 1 + self.longest.bit_length()
        of_queries = own[self.layout.query]
        if self.layout.form.intercept:
            of_queries = np.append(of_queries, int(name == "highest"))
        at, query = self.factors
        return of_sums[at] + of_queries[query]


@dataclass(frozen=True, eq=False)
class ExactSummary:
    """Rows first..stop, reduced to what their features are products of."""

    prime: int | None
    first: int
    sums: Residues  # (rows, u): the sums in use
    queries: Residues  # (rows, r)
    factors: tuple[NDArray[np.int64], NDArray[np.int64]]  # of each column: its sum, its query

    @property
    def stop(self) -> int:
        return self.first + len(self.sums)

    def features(self, which: NDArray[np.int64] | None = None) -> Residues:
        """The features (rows, n_columns) of all rows of the block, or of those chosen."""
        numbers = np.arange(len(self.sums)) if which is None else which
        at, query = self.factors
        result = np.empty((len(numbers), len(at)))
        if not len(numbers):
            return result

        def fill(span: tuple[int, int]) -> None:
            some, out = numbers[slice(*span)], result[slice(*span)]
            np.take(self.sums[some], at, axis=1, out=out, mode="clip")
            out *= self.queries[some][:, query]
            centre(out, self.prime)

        map_pieces(fill, list(even_ranges(len(numbers), max(1, TILE_NUMBERS // result.shape[1]))))
        return result

    def products(self, vectors: NDArray) -> Residues:
        """psi . v (rows, k) for vectors (n_columns, k); features are not formed.

        Cost: 2 u r k flops per row.
        """
        products, prime = np.zeros((len(self.sums), vectors.shape[1])), self.prime
        n_sums, n_queries = self.sums.shape[1], self.queries.shape[1]
        for first, stop in even_ranges(
            vectors.shape[1], max(1, PRODUCT_NUMBERS // self.queries.size)
        ):
            weights = np.zeros((n_sums, n_queries, stop - first))
            # Adds where a column was chosen twice.
            np.add.at(weights, self.factors, vectors[:, first:stop])
            flat = weights.reshape(n_sums, -1)
            centre(flat, prime)
            flat = self.sums @ flat if prime is None else multiply(self.sums, flat, prime)
            by_query, total = flat.reshape(-1, n_queries, stop - first), products[:, first:stop]
            for start, end in even_ranges(n_queries, TOKENS):
                queries = self.queries[:, start:end]
                total += np.einsum("rlk,rl->rk", by_query[:, start:end], queries)
                centre(total, prime)
        return products


def _decay_bits(decay: float) -> int:
    """f with decay = m 2^-f for an odd integer m."""
    return decay.as_integer_ratio()[1].bit_length() - 1
