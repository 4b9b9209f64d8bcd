"""The regression problem behind a fit: one row per predicted position, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.features.summaries import SeenSequences, default_block_rows
from polyattn.form.context import as_context
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.numerics import scaling
from polyattn.numerics.arrays import ranges_of_rows, rows_between
from polyattn.numerics.parallel import map_pieces
from polyattn.sequences import SequenceBatch, Sequences, as_batch, require_aligned
from polyattn.sources.opened import OpenedSource, bytes_read_together, opened
from polyattn.sources.read_array import ReadArray
from polyattn.sources.source import Source, require_alone
from polyattn.stats.parts import Origin, ReadBy, Share, is_whole, part_ranges
from polyattn.stats.row_groups import RowBlock, groups_of, report_rows
from polyattn.stats.scratch import ScratchFile
from polyattn.targets import Targets, as_targets, as_weights, require_outputs

# Summaries of up to this many numbers (32 MB) are kept, so that a second pass is free.
KEPT_NUMBERS = 1 << 22

# The workers share the rows in at most so many parts, of at least so many numbers and rows each.
# How many workers there are has no part in it: where a part ends decides how sums are rounded.
MOST_SHARES, SHARE_NUMBERS, SHARE_ROWS = 8, 1 << 14, 512


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
    share: Share | None = None  # of one of the ``parts``
    read_by: ReadBy | None = field(default=None, repr=False, compare=False)  # None: this process
    # Where all of them come from, if that is known (not taken along by ``replace``).
    origin: Origin | None = field(init=False, repr=False, compare=False, default=None)
    # Summaries of small data are kept for the next pass (not taken along by ``replace``).
    _kept: list[list[RowBlock]] = field(init=False, repr=False, compare=False, default_factory=list)
    # At most one: where summaries are kept that are too many for memory.
    _scratch: list[ScratchFile] = field(init=False, repr=False, compare=False, default_factory=list)
    # The parts; and at most one: what workers hold of them.
    _parts: list[Rows] = field(init=False, repr=False, compare=False, default_factory=list)
    _held: list[Any] = field(init=False, repr=False, compare=False, default_factory=list)

    @classmethod
    def build(
        cls,
        X: Sequences | Source | OpenedSource,
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
        require_aligned(X, Y)
        if isinstance(X, Source | OpenedSource):
            require_alone(Y=Y, sample_weight=sample_weight, context=context)
            found = opened(X, form.mode if X.n_outputs else None) if isinstance(X, Source) else X
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

    def __getstate__(self) -> dict[str, Any]:
        # Copies read for themselves: a client, and what its workers hold, cannot be copied.
        return {**vars(self), "read_by": None, "_held": []}

    def come_from(self, origin: Origin) -> Rows:
        """The same rows, which know their source: sums over all of them may be made from it."""
        same = replace(self)
        object.__setattr__(same, "origin", origin)
        return same

    @property
    def n_rows(self) -> int:
        """The number of predicted positions."""
        return len(self.targets)

    n_roundings = n_rows  # the additions in a sum over all rows

    @property
    def n_sequences(self) -> int:
        """The number of sequences."""
        return len(self.batch)

    @property
    def max_length(self) -> int:
        """The number of tokens of the longest sequence."""
        return int(self.batch.lengths.max())

    @property
    def min_length(self) -> int:
        """The number of tokens of the shortest sequence."""
        return int(self.batch.lengths.min())

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
        """Whether all summaries are kept in memory after the first pass, by whoever makes it."""
        if self.read_by is not None and self.is_on_workers:
            return self.summary_bytes <= self.read_by.kept_bytes
        return self.keeps_here

    @property
    def keeps_here(self) -> bool:
        """Whether this process would keep them."""
        if self.share is not None:
            return self.share.keeps
        return self.n_rows * self.numbers_per_row <= max(self.kept_numbers or 0, KEPT_NUMBERS)

    @property
    def numbers_per_row(self) -> int:
        """Those of a summary and its targets."""
        return self.layout.n_sums + self.layout.n_queries + self.n_outputs

    @property
    def borders(self) -> NDArray[np.int64]:
        """Where the rows of each sequence begin, and the end (n_sequences + 1,)."""
        return np.arange(len(self.batch) + 1) if self.mode == "last" else self.batch.offsets

    @property
    def summary_bytes(self) -> int:
        """Bytes of all summaries and targets."""
        return 8 * self.n_rows * self.numbers_per_row

    @property
    def held_bytes(self) -> int:
        """Bytes of the summaries that are kept."""
        return self.summary_bytes if self._kept else 0

    @property
    def is_on_workers(self) -> bool:
        """Whether passes are made by workers of a cluster: these are the rows that they read."""
        by, weights = self.read_by, self.sequence_weights
        as_read = by is not None and (weights is None or weights is by.weights)
        return as_read and is_whole(self.batch)

    @property
    def parts(self) -> list[Rows]:
        """All rows in order: parts that end where chunks of a source do, or these rows alone."""
        if not self._parts:
            ranges = part_ranges(self.batch, self.borders, self.numbers_per_row)
            if len(ranges) < 2:
                return [self]
            share = Share(self.n_rows, self.keeps_here)
            self._parts[:] = [replace(self.part(*each[:2]), share=share) for each in ranges]
        return self._parts

    def with_scratch(self, *scratch: ScratchFile) -> Rows:
        """The same rows, of which the first pass writes the summaries to files for the others.

        scratch : one for each of the ``parts``
        """
        made = replace(self, kept_numbers=self.kept_numbers or 0)
        for part, each in zip(made.parts, scratch, strict=True):
            part._scratch.append(each)
        return made

    def keeping(self, numbers: int) -> Rows:
        """The same rows, of which summaries of so many numbers are kept."""
        same = replace(self, kept_numbers=numbers)
        return same if self.origin is None else same.come_from(self.origin)

    def with_exponents(self, token: int | None, target: int | None) -> Rows:
        """The same rows read at other powers of two, so that they add to other statistics."""
        if (token, target) == (self.token_exponent, self.target_exponent):
            return self
        return replace(self, token_exponent=token, target_exponent=target)

    def sequences_with(self, n_rows: int) -> int:
        """How many of the first sequences it takes for ``n_rows`` rows (all, if too few)."""
        return min(int(np.searchsorted(self.borders, n_rows)), len(self.batch))

    def part(self, first: int, stop: int) -> Rows:
        """The rows of sequences first..stop."""
        start, end = self.borders[[first, stop]]
        weights = self.sequence_weights
        return replace(
            self,
            batch=self.batch.part(first, stop),
            context=None if self.context is None else self.context.part(first, stop),
            targets=rows_between(self.targets, int(start), int(end)),
            sequence_weights=None if weights is None else weights[first:stop],
            base=self.base + int(start),
            share=None,
            read_by=None,
        )

    def blocks(self, block_rows: int | None = None) -> Iterator[RowBlock]:
        """All rows in order; ``block_rows`` rows at a time, or as the caches like it."""
        if block_rows is None:
            yield from chain.from_iterable(self.groups())
            return
        for block in self.read_blocks(block_rows):
            yield block
            report_rows(self, block.stop)

    def groups(self) -> Iterator[list[RowBlock]]:
        """All rows in order, as lists of blocks; the threads read the blocks of a list together."""
        return groups_of(self)

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
        borders, n_rows = self.borders, max(1, numbers // self.numbers_per_row)
        together = bytes_read_together(self.batch, self.context)
        for first, stop in ranges_of_rows(borders, n_rows, together):
            yield self.part(first, stop)
            report_rows(self, self.base + int(borders[stop]))

    def shares(self) -> list[Rows]:
        """All rows in order, in parts for the workers: few where there is little."""
        share = max(-(-self.n_rows // MOST_SHARES), -(-SHARE_NUMBERS // self.numbers_per_row))
        share = max(share, SHARE_ROWS)
        if share >= self.n_rows:
            return [self]
        return [self.part(*piece) for piece in ranges_of_rows(self.borders, share)]

    def read_together(self) -> list[RowBlock]:
        """All blocks, made by several threads."""
        return [*chain(*map_pieces(lambda share: list(share.read_blocks(None)), self.shares()))]

    def read_blocks(self, block_rows: int | None) -> Iterator[RowBlock]:
        """All blocks, made one after the other."""
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
