"""The regression problem behind a fit: one row per predicted position, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.features.summaries import SeenSequences, SummaryBlock, default_block_rows
from polyattn.form.context import as_context
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.numerics import scaling
from polyattn.numerics.arrays import ranges_of_rows, rows_between
from polyattn.numerics.parallel import map_pieces
from polyattn.progress import report
from polyattn.sequences import SequenceBatch, Sequences, as_batch
from polyattn.sources.opened import opened
from polyattn.sources.read_array import ReadArray
from polyattn.sources.source import Source, require_alone
from polyattn.stats.scratch import ScratchFile
from polyattn.targets import Targets, as_targets, as_weights, require_outputs

# Summaries of up to this many numbers (32 MB) are kept, so that a second pass is free.
KEPT_NUMBERS = 1 << 22

# Of larger data, so many numbers are summarised at a time: enough work for all workers.
GROUP_NUMBERS = 1 << 21

# The workers share the rows in at most so many parts, of at least so many numbers and rows each.
# How many workers there are has no part in it: where a part ends decides how sums are rounded.
MOST_SHARES, SHARE_NUMBERS, SHARE_ROWS = 8, 1 << 14, 512


@dataclass(frozen=True)
class RowBlock(SummaryBlock):
    """A summary and its targets; these and the queries carry the square root of the weight."""

    targets: NDArray[np.float64]  # (e, rows)


@dataclass(frozen=True, eq=False)
class Origin:
    """The source of rows, of which each sequence counts once; a file and workers for its sums."""

    source: Source
    checkpoint: str | PathLike[str] | None = None
    client: Any = None


@dataclass(frozen=True)
class Rows(OfLayout):
    """Validated sequences, targets and weights, with the powers of two taken out of them."""

    batch: SequenceBatch
    context: SequenceBatch | None  # the sequences attended to, if they are others
    targets: NDArray  # (n_rows, e), as given
    sequence_weights: NDArray[np.float64] | None
    layout: Layout
    token_exponent: int | None
    target_exponent: int | None
    # Largest magnitudes of all columns of the layout, 1 for the constant, and of the outputs (e,).
    coordinate_sizes: NDArray[np.float64]
    output_sizes: NDArray[np.float64]
    base: int = 0  # where the first row stands among all rows, in a part of them
    kept_numbers: int | None = None  # summaries of so many numbers are kept; None: KEPT_NUMBERS
    # Where all of them come from, if that is known (not taken along by ``replace``).
    origin: Origin | None = field(init=False, repr=False, compare=False, default=None)
    # Summaries of small data are kept for the next pass (not taken along by ``replace``).
    _kept: list[RowBlock] = field(init=False, repr=False, compare=False, default_factory=list)
    # At most one: where summaries are kept that are too many for memory.
    _scratch: list[ScratchFile] = field(init=False, repr=False, compare=False, default_factory=list)

    @classmethod
    def build(
        cls,
        X: Sequences | Source,
        Y: Targets | None,
        form: Form,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
        *,
        layout: Layout | None = None,
        n_outputs: int | None = None,
        keep_integers: bool = False,
    ) -> Rows:
        """Validate everything once; ``layout`` and ``n_outputs`` are required sizes, if known.

        ``Y=None`` gives rows of zero outputs, for statistics of the inputs alone.  A source as X
        has its own targets, weights and context; its tokens are read in parts, again and again.
        ``keep_integers``: the caller does not rely on float64 where it cannot hold the tokens.
        """
        read: ReadArray | None = None
        if isinstance(X, Source):
            require_alone(Y=Y, sample_weight=sample_weight, context=context)
            found = opened(X, form.mode if X.n_outputs else None)
            X, read, sample_weight, context = (
                found.batch, found.targets, found.weights, found.context,
            )  # fmt: skip
        n_dims = None if layout is None else layout.n_dims
        batch = as_batch(X, n_dims=n_dims, keep_integers=keep_integers)
        attended = as_context(context, batch, form, layout, keep_integers)
        if layout is None:
            of_context = None if attended is None else attended.n_dims
            layout = Layout.of(form, batch.n_dims, of_context)
        targets: Any
        if read is not None:
            targets = read
            require_outputs(targets, n_outputs)
        elif Y is None:
            targets = np.empty((batch.n_rows(form.mode), 0))
        else:
            targets = as_targets(Y, batch, form.mode, n_outputs)
        weights = as_weights(sample_weight, batch)
        coordinates = layout.columns.sizes(batch)
        if attended is not None:
            coordinates = np.concatenate([coordinates, layout.pair_columns.sizes(attended)])
        outputs = scaling.column_sizes(targets)
        compared = np.append(coordinates, 1.0) if layout.has_constant else coordinates
        scaling.require_comparable(compared, outputs)
        if weights is not None:
            scaling.require_weighable(float(weights.max()), compared, outputs)
        token = scaling.token_exponent(coordinates)
        target = scaling.exponent_for(float(outputs.max(initial=0.0)))
        return cls(batch, attended, targets, weights, layout, token, target, coordinates, outputs)

    def come_from(self, origin: Origin) -> Rows:
        """The same rows, which know their source: sums over all of them may be made from it."""
        same = replace(self)
        object.__setattr__(same, "origin", origin)
        return same

    @property
    def n_rows(self) -> int:
        """The number of predicted positions."""
        return len(self.targets)

    @property
    def n_roundings(self) -> int:
        """The additions in a sum over all rows."""
        return self.n_rows

    @property
    def n_sequences(self) -> int:
        """The number of sequences."""
        return len(self.batch)

    @property
    def max_length(self) -> int:
        """The number of tokens of the longest sequence."""
        return int(self.batch.lengths.max())

    @property
    def max_context_length(self) -> int:
        """The number of tokens of the longest context; 0 without contexts."""
        return 0 if self.context is None else int(self.context.lengths.max())

    @property
    def n_outputs(self) -> int:
        """e, the target coordinates."""
        return self.targets.shape[1]

    @property
    def seen(self) -> SeenSequences:
        """The scaled sequences, ready to be summarised."""
        return SeenSequences(self.layout, self.batch, self.context, self.token_exponent or 0)

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """The weight of each predicted position (n_rows,), or None."""
        if self.sequence_weights is None or self.mode == "last":
            return self.sequence_weights
        return np.repeat(self.sequence_weights, self.batch.lengths)

    @property
    def n_positive(self) -> int:
        """The number of predicted positions of positive weight: the others say nothing."""
        weights = self.row_weights
        return self.n_rows if weights is None else int(np.count_nonzero(weights))

    @property
    def total_weight(self) -> float:
        """The sum of the weights of all predicted positions."""
        weights = self.row_weights
        return float(self.n_rows) if weights is None else float(weights.sum())

    @property
    def keeps_summaries(self) -> bool:
        """Whether all summaries are kept in memory after the first pass."""
        return self.n_rows * self._numbers_per_row <= max(self.kept_numbers or 0, KEPT_NUMBERS)

    @property
    def _numbers_per_row(self) -> int:
        return self.layout.n_sums + self.layout.n_queries + self.n_outputs

    @property
    def _borders(self) -> NDArray[np.int64]:
        """Where the rows of each sequence begin, and the end (n_sequences + 1,)."""
        return np.arange(len(self.batch) + 1) if self.mode == "last" else self.batch.offsets

    @property
    def summary_bytes(self) -> int:
        """Bytes of all summaries and targets."""
        return 8 * self.n_rows * self._numbers_per_row

    def with_scratch(self, scratch: ScratchFile) -> Rows:
        """The same rows, of which the first pass writes the summaries to a file for the others."""
        made = replace(self, kept_numbers=self.kept_numbers or 0)
        made._scratch.append(scratch)
        return made

    def with_exponents(self, token: int | None, target: int | None) -> Rows:
        """The same rows read at other powers of two, so that they add to other statistics."""
        if (token, target) == (self.token_exponent, self.target_exponent):
            return self
        return replace(self, token_exponent=token, target_exponent=target)

    def sequences_with(self, n_rows: int) -> int:
        """How many of the first sequences it takes for ``n_rows`` rows (all, if too few)."""
        return min(int(np.searchsorted(self._borders, n_rows)), len(self.batch))

    def part(self, first: int, stop: int) -> Rows:
        """The rows of sequences first..stop."""
        start, end = self._borders[[first, stop]]
        weights = self.sequence_weights
        return replace(
            self,
            batch=self.batch.part(first, stop),
            context=None if self.context is None else self.context.part(first, stop),
            targets=rows_between(self.targets, int(start), int(end)),
            sequence_weights=None if weights is None else weights[first:stop],
            base=self.base + int(start),
        )

    def blocks(self, block_rows: int | None = None) -> Iterator[RowBlock]:
        """All rows in order; ``block_rows`` rows at a time, or as the caches like it."""
        if block_rows is None:
            yield from chain.from_iterable(self.groups())
            return
        for block in self._read_blocks(block_rows):
            yield block
            report(block.stop - self.base, self.n_rows)

    def groups(self) -> Iterator[list[RowBlock]]:
        """All rows in order, as lists of blocks; the workers read the blocks of a list together."""
        if self.keeps_summaries:
            if not self._kept:
                # Two threads may read at once, and must not add their blocks to each other's.
                self._kept[:] = self._read_together()
            yield self._kept
            report(self.n_rows, self.n_rows)
            return
        yield from self._stored_groups(self._scratch[0]) if self._scratch else self._made_groups()

    def _stored_groups(self, scratch: ScratchFile) -> Iterator[list[RowBlock]]:
        """Those of a scratch file, or made and written to it on the way."""
        if scratch.is_whole:
            for group in scratch.groups():
                yield [RowBlock(first, stop, *arrays) for first, stop, arrays in group]
                report(group[-1][1] - self.base, self.n_rows)
            return
        is_writing = scratch.begin()
        try:
            for blocks in self._made_groups():
                if is_writing:
                    is_writing = scratch.add(
                        (each.first, each.stop, (each.sums, each.queries, each.targets))
                        for each in blocks
                    )
                yield blocks
            if is_writing:
                scratch.end(is_whole=True)
                is_writing = False
        finally:
            if is_writing:
                scratch.end(is_whole=False)

    def _made_groups(self) -> Iterator[list[RowBlock]]:
        """Those made from the tokens."""
        for portion in self.portions(GROUP_NUMBERS):
            if portion.n_rows * self._numbers_per_row <= GROUP_NUMBERS:
                yield portion._read_together()
                continue
            # One sequence that is longer than a group: its running sums go from block to block.
            for block in portion._read_blocks(None):
                yield [block]
                report(block.stop - self.base, self.n_rows)

    def shared_moments(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """S (m, sequences) that all tokens of a sequence share, and the sums of their vech(u u^T).

        Only where the form ``shares_sums``; some sequences at a time, weights in the latter.
        """
        weights = self.sequence_weights
        for first in range(0, len(self.batch), step := default_block_rows(self.layout)):
            stop = min(first + step, len(self.batch))
            sums, query_pairs = self.seen.sequence_moments(first, stop)
            yield sums, query_pairs if weights is None else query_pairs * weights[first:stop]

    def portions(self, numbers: int) -> Iterator[Rows]:
        """All rows in order: parts whose summaries hold up to ``numbers`` numbers (or one row)."""
        borders, n_rows = self._borders, max(1, numbers // self._numbers_per_row)
        for first, stop in ranges_of_rows(borders, n_rows):
            yield self.part(first, stop)
            report(int(borders[stop]), self.n_rows)

    def shares(self) -> list[Rows]:
        """All rows in order, in parts for the workers: few where there is little."""
        least = max(-(-SHARE_NUMBERS // self._numbers_per_row), SHARE_ROWS)
        share = max(-(-self.n_rows // MOST_SHARES), least)
        if share >= self.n_rows:
            return [self]
        return [self.part(*piece) for piece in ranges_of_rows(self._borders, share)]

    def _read_together(self) -> list[RowBlock]:
        parts = map_pieces(lambda share: list(share._read_blocks(None)), self.shares())
        return list(chain.from_iterable(parts))

    def _read_blocks(self, block_rows: int | None) -> Iterator[RowBlock]:
        weights = self.row_weights
        roots = None if weights is None else np.sqrt(weights)
        for block in self.seen.blocks(block_rows):
            first, stop = block.first, block.stop
            queries, targets = block.queries, self.scaled_targets(first, stop)
            if roots is not None:
                queries, targets = queries * roots[first:stop], targets * roots[first:stop]
            yield RowBlock(self.base + first, self.base + stop, block.sums, queries, targets)

    def scaled_targets(self, first: int, stop: int) -> NDArray[np.float64]:
        """Targets of some rows without weights, (e, rows), divided by their power of two."""
        block = self.targets[first:stop].T.astype(np.float64, order="C")
        return np.ldexp(block, -self.target_exponent) if self.target_exponent else block
