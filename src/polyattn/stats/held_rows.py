"""Rows of a source on the workers of a cluster: each one reads its chunks, and keeps summaries.

What is sent is small: references to chunks, the layout, and what all chunks together say of units.
A worker finds lengths and weights in the chunks themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from polyattn.cluster import HeldParts, Unit, units_of
from polyattn.errors import InvalidInput
from polyattn.progress import listening
from polyattn.sources.opened import OpenedSource, opened_chunks
from polyattn.sources.source import Chunk
from polyattn.stats.parts import PartRange, Share, part_ranges
from polyattn.stats.rows import Rows


def held_rows(rows: Rows) -> HeldParts:
    """The parts of rows, as workers hold them; made once for the same rows."""
    if not rows._held:
        rows._held.append(_held(rows))
    held: HeldParts = rows._held[0]
    return held


@dataclass(frozen=True, eq=False)
class _Recipe:
    """Rows of some chunks, but for what these chunks hold.

    empty : the rows without sequences, in the units of all of them
    parts : which sequences of the chunks each part has
    """

    empty: Rows
    parts: list[tuple[int, int]]
    mode: str | None
    is_weighted: bool
    n_before: int  # rows


def _held(rows: Rows) -> HeldParts:
    by, ranges = rows.read_by, part_ranges(rows.batch, rows.borders, rows.numbers_per_row)
    assert by is not None  # noqa: S101 - rows.is_on_workers
    values: Any = rows.batch.values
    none: Any = np.empty((0, 0))
    empty = replace(
        rows, batch=none, context=None, targets=none, sequence_weights=None, read_by=None,
        share=Share(rows.n_rows, rows.keeps_summaries),
    )  # fmt: skip
    units = []
    for unit in units_of(len(ranges), by.workers):
        some: list[PartRange] = [ranges[number] for number in unit]
        first = some[0].first
        recipe = _Recipe(
            empty,
            [(each.first - first, each.stop - first) for each in some],
            values.reader.mode,
            rows.sequence_weights is not None,
            int(rows.borders[first]),
        )
        chunks = values.reader.chunks[some[0].first_chunk : some[-1].stop_chunk]
        sizes = [int(rows.borders[each.stop] - rows.borders[each.first]) for each in some]
        units.append(Unit(partial(_made, recipe), chunks, sizes))
    return HeldParts(by.workers, units)


def _made(recipe: _Recipe, chunks: Sequence[Chunk]) -> list[Rows]:
    """On a worker: the parts of a unit, with their summaries if these are kept."""
    with listening(lambda *_: None):
        whole = _rows_of(recipe, opened_chunks(chunks, recipe.mode))
        made = [
            replace(whole.part(first, stop), share=recipe.empty.share)
            for first, stop in recipe.parts
        ]
        for part in made:
            if part.keeps_here:
                # Only what is kept counts: they are not used here.
                for _ in part.groups():
                    continue
    return made


def _rows_of(recipe: _Recipe, found: OpenedSource) -> Rows:
    """The rows of some chunks, in the units of all."""
    if len(found.batch) != recipe.parts[-1][1]:
        raise InvalidInput(
            f"a worker found {len(found.batch)} sequences where there were {recipe.parts[-1][1]}: "
            "the source has changed since it was read before; begin again."
        )
    batch = found.batch
    weights = None
    if recipe.is_weighted:
        weights = np.ones(len(batch)) if found.weights is None else found.weights
    targets: Any = found.targets
    if targets is None:
        targets = np.empty((batch.n_rows(recipe.empty.mode), 0))
    return replace(
        recipe.empty, batch=batch, context=found.context, targets=targets,
        sequence_weights=weights, base=recipe.n_before,
    )  # fmt: skip
