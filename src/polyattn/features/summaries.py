"""Sequences reduced to what a linear attention layer sees of them.

For one predicted position t the layer sees the tokens attended to only through the sums S of
products of values and keys, and its own token through the query u.  The summary is (S, u): m + r
numbers.  In the papers' layer S = vech(G) with the Gram matrix G = sum_s x_s x_s^T, and u = x_t.

    last     one row per sequence: S of all tokens, u of the last token
    causal   one row per token t:  S of tokens 1..t, u of token t       (a running sum)
    full     one row per token t:  S of all tokens, u of token t

Other forms change the weights of tokens (``running_sums``), the columns of tokens, or the sequence
that is attended to, and nothing behind the summary.
Cost: O(n d^2) time per sequence and scale, memory of one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.features.running_sums import products_of, reach, running_sums, sums_in_pieces
from polyattn.features.sequence_sums import others_sums, query_grams, sequence_sums
from polyattn.features.tokens import Tokens
from polyattn.form.layout import Layout
from polyattn.numerics.arrays import even_ranges, ranges_of_rows
from polyattn.sequences import SequenceBatch

# A block of summaries holds about this many numbers: 4 MB, which get large memory pages.
BLOCK_NUMBERS = 1 << 19
MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 256, 1 << 16


@dataclass(frozen=True)
class SummaryBlock:
    """Rows first..stop of the predicted positions, in their natural order."""

    first: int
    stop: int
    sums: NDArray[np.float64]  # S (m, rows)
    queries: NDArray[np.float64]  # u (r, rows)


@dataclass(frozen=True)
class SeenSequences:
    """Sequences as a layer sees them, divided by 2**exponent.

    Constants of ``skip`` and ``intercept`` are divided with them, so that all features are divided
    by 2**(3 exponent).

    context_exponent : that of the context, where it has one of its own; only for layouts without
        these constants
    """

    layout: Layout
    batch: SequenceBatch
    context: SequenceBatch | None = None
    exponent: int = 0
    context_exponent: int | None = None

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of which queries are made."""
        return Tokens(self.batch, self.layout.columns, self.exponent)

    @cached_property
    def attended(self) -> Tokens:
        """The tokens of which keys and values are made."""
        if self.context is None:
            return self.tokens
        own = self.exponent if self.context_exponent is None else self.context_exponent
        return Tokens(self.context, self.layout.pair_columns, own)

    def queries(self, which: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """u (r, rows) of the chosen tokens."""
        return self._as_queries(self.tokens.read(which))

    def blocks(self, block_rows: int | None = None) -> Iterator[SummaryBlock]:
        """The summaries of all predicted positions, block after block, in order."""
        mode = self.layout.form.mode
        read = {"last": self._last, "causal": self._causal, "full": self._full}[mode]
        return read(block_rows or default_block_rows(self.layout))

    def sequence_moments(
        self, first: int, stop: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """S (m, sequences) that all tokens share, and vech of the sums of u u^T of each sequence.

        Only in mode full where tokens attend to themselves too.
        """
        sums = self._as_sums(sequence_sums(self.layout, self.attended, first, stop))
        if self.layout.form.is_plain and self.context is None:
            return sums, sums  # the sum of x x^T is the Gram again
        offsets = self.batch.offsets[first : stop + 1]
        return sums, query_grams(self.queries, offsets, self.layout.n_queries)

    def _last(self, block_rows: int) -> Iterator[SummaryBlock]:
        offsets = self.batch.offsets
        for first, stop in even_ranges(len(self.batch), block_rows):
            sums = sequence_sums(self.layout, self.attended, first, stop)
            queries = self.queries(offsets[first + 1 : stop + 1] - 1)
            yield SummaryBlock(first, stop, self._as_sums(sums), queries)

    def _causal(self, block_rows: int) -> Iterator[SummaryBlock]:
        length = self.batch.common_length
        if length is None or length > block_rows:
            yield from self._causal_pieces(block_rows)
            return
        # Whole sequences in each block: their running sums are one call for each scale.
        for start, end in even_ranges(len(self.batch), block_rows // length):
            first, stop = start * length, end * length
            columns = self.tokens.read(slice(first, stop))
            attended = columns if self.context is None else self.attended.read(slice(first, stop))
            products = products_of(self.layout, attended.reshape(len(attended), -1, length))
            sums = running_sums(self.layout, products)
            sums = sums.reshape(len(sums), -1)
            yield SummaryBlock(first, stop, self._as_sums(sums), self._as_queries(columns))

    def _causal_pieces(self, block_rows: int) -> Iterator[SummaryBlock]:
        """Sequences of different lengths, or longer than a block: piece by piece."""
        offsets, total = self.batch.offsets, len(self.batch.values)
        before = min(reach(self.layout), int(self.batch.lengths.max()) - 1)
        carry: NDArray[np.float64] | None = None
        # Tokens that are read again are no more work than the sums of a block.
        at_once = max(block_rows, before // self.layout.n_scales)
        for first, stop in even_ranges(total, at_once):
            after, until = np.searchsorted(offsets, first, "right"), np.searchsorted(offsets, stop)
            # Of the tokens before, those that belong to the sequence which is continued.
            origin = int(offsets[after - 1])
            start = max(origin, first - before)
            columns = self.attended.read(slice(start, stop))
            products = products_of(self.layout, columns)
            borders = np.array([first, *offsets[after:until], stop]) - first
            carry = carry if origin < first else None
            sums = sums_in_pieces(
                self.layout, products, borders, first - start, first - origin, carry
            )
            carry = sums[:, -1].copy()
            if self.context is None:
                queries = self._as_queries(np.ascontiguousarray(columns[:, first - start :]))
            else:
                queries = self.queries(slice(first, stop))
            yield SummaryBlock(first, stop, self._as_sums(sums), queries)

    def _full(self, block_rows: int) -> Iterator[SummaryBlock]:
        offsets = self.batch.offsets
        for first, stop in ranges_of_rows(offsets, block_rows):
            if not self.layout.form.include_query:
                yield from self._full_others(first, stop, block_rows)
                continue
            shared = sequence_sums(self.layout, self.attended, first, stop)
            # A sequence longer than a block comes alone and is cut into several.
            for start in range(int(offsets[first]), int(offsets[stop]), block_rows):
                end = min(start + block_rows, int(offsets[stop]))
                owner = np.searchsorted(offsets, np.arange(start, end), side="right") - 1 - first
                # take: plain indexing of columns would give an array in column order.
                sums = self._as_sums(np.take(shared, owner, axis=1))
                yield SummaryBlock(start, end, sums, self.queries(slice(start, end)))

    def _full_others(self, first: int, stop: int, block_rows: int) -> Iterator[SummaryBlock]:
        """Mode full where a token attends to all others, and not to itself."""
        offsets = self.batch.offsets[first : stop + 1]
        for start, columns, sums in others_sums(self.layout, self.tokens, offsets, block_rows):
            end = start + columns.shape[1]
            yield SummaryBlock(start, end, self._as_sums(sums), self._as_queries(columns))

    def _as_sums(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        """S: the sums of products, and the constant of ``skip`` and ``intercept``."""
        if self.layout.n_sums == len(products):
            return products
        constant = np.full((1, products.shape[1]), np.ldexp(1.0, -2 * self.exponent))
        return np.concatenate([products, constant])

    def _as_queries(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """u: the columns of the query, and the constant of ``intercept``."""
        layout = self.layout
        if not layout.query_is_all_columns:
            columns = np.take(columns, layout.query, axis=0)
        if not layout.form.intercept:
            return columns
        constant = np.full((1, columns.shape[1]), np.ldexp(1.0, -self.exponent))
        return np.concatenate([columns, constant])


def default_block_rows(layout: Layout) -> int:
    """Rows per block so that a block of summaries holds about BLOCK_NUMBERS numbers."""
    return int(np.clip(BLOCK_NUMBERS // layout.n_sums, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS))
