"""Summaries of rows in groups of blocks: made from the tokens, kept in memory, or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.features.summaries import SummaryBlock
from polyattn.progress import report
from polyattn.stats.parts import is_read
from polyattn.stats.scratch import ScratchFile

if TYPE_CHECKING:
    from polyattn.stats.rows import Rows

# Of larger data, so many numbers are summarised at a time: enough work for all workers.
GROUP_NUMBERS = 1 << 21


@dataclass(frozen=True)
class RowBlock(SummaryBlock):
    """A summary and its targets; these and the queries carry the square root of the weight."""

    targets: NDArray[np.float64]  # (e, rows)


def groups_of(rows: Rows) -> Iterator[list[RowBlock]]:
    """All rows in order, as lists of blocks; the threads read the blocks of a list together."""
    if len(rows.parts) > 1:
        yield from chain.from_iterable(map(groups_of, rows.parts))
    elif rows.keeps_here:
        if not rows._kept:
            # Two threads may read at once, and must not add their blocks to each other's.
            # Of a source the groups are the same whether they are kept or not.
            made = made_groups(rows) if is_read(rows.batch) else [rows.read_together()]
            rows._kept[:] = made
        yield from rows._kept
        report_rows(rows, rows.base + rows.n_rows)
    elif rows._scratch:
        yield from _stored_groups(rows, rows._scratch[0])
    else:
        yield from made_groups(rows)


def _stored_groups(rows: Rows, scratch: ScratchFile) -> Iterator[list[RowBlock]]:
    """Those of a scratch file, or made and written to it on the way."""
    if scratch.is_whole:
        for group in scratch.groups():
            yield [RowBlock(first, stop, *arrays) for first, stop, arrays in group]
            report_rows(rows, group[-1][1])
        return
    is_writing = scratch.begin()
    try:
        for blocks in made_groups(rows):
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


def made_groups(rows: Rows) -> Iterator[list[RowBlock]]:
    """Those made from the tokens."""
    for portion in rows.portions(GROUP_NUMBERS):
        if portion.n_rows * rows.numbers_per_row <= GROUP_NUMBERS:
            yield portion.read_together()
            continue
        # One sequence that is longer than a group: its running sums go from block to block.
        for block in portion.read_blocks(None):
            yield [block]
            report_rows(rows, block.stop)


def report_rows(rows: Rows, stop: int) -> None:
    """Say that rows up to ``stop`` are done, of these or of all that these are a part of."""
    if rows.share is None:
        report(stop - rows.base, rows.n_rows)
    else:
        report(stop, rows.share.n_all)
