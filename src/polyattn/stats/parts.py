"""Rows that come from a source: where they are from, who reads them again, and in which parts.

Sums over such rows are made part by part, and folded in the order of the parts.  A part ends where
a chunk does, and which chunks it has depends on them alone: whoever works on a part, the sums have
the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.cluster import Workers
from polyattn.sequences import SequenceBatch
from polyattn.sources.read_array import ReadArray
from polyattn.sources.source import Source
from polyattn.sources.stretches import MOST_STRETCHES

# Summaries of a part hold at least so many numbers (8 MB), if there are as many.
PART_NUMBERS = 1 << 20

# Workers keep summaries in up to this part of their memory.
KEPT_PART = 0.25


@dataclass(frozen=True, eq=False)
class Origin:
    """The source of rows, of which each sequence counts once; a file and workers for its sums."""

    source: Source
    checkpoint: str | PathLike[str] | None = None
    client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # A client cannot be copied.
        return {**vars(self), "client": None}


@dataclass(frozen=True, eq=False)
class ReadBy:
    """Who makes passes over rows, and the weights (n_sequences,) with which they were read."""

    workers: Workers
    weights: NDArray[np.float64] | None

    @property
    def kept_bytes(self) -> int:
        """Summaries of so many bytes are kept by all workers together."""
        return int(KEPT_PART * self.workers.total_memory)


class Share(NamedTuple):
    """What one of the parts knows of all rows: how many they are, and whether they are kept."""

    n_all: int
    keeps: bool


class PartRange(NamedTuple):
    """Sequences first..stop, which are those of chunks first_chunk..stop_chunk."""

    first: int
    stop: int
    first_chunk: int
    stop_chunk: int


def is_read(batch: SequenceBatch) -> bool:
    """Whether the tokens are those of a source, or of some of its chunks, as they are read."""
    return isinstance(batch.values, ReadArray)


def is_whole(batch: SequenceBatch) -> bool:
    """Whether these are all sequences of a source, as it gives them."""
    return isinstance(batch.values, ReadArray) and batch.values.is_whole


def part_ranges(batch: SequenceBatch, borders: NDArray, numbers_per_row: int) -> list[PartRange]:
    """The parts of all sequences of a source; none of other sequences.

    borders : where the rows of each sequence begin, and the end (n_sequences + 1,)
    """
    values: Any = batch.values
    if not is_whole(batch):
        return []
    ends = np.searchsorted(batch.offsets, values.borders[1:])
    numbers = numbers_per_row * borders[ends]  # up to the end of each chunk
    least = max(PART_NUMBERS, -(-int(numbers[-1]) // MOST_STRETCHES))
    found: list[PartRange] = []
    first, at, done = 0, 0, 0
    for chunk, (end, count) in enumerate(zip(ends.tolist(), numbers.tolist(), strict=True)):
        if count - done >= least or chunk == len(ends) - 1:
            found.append(PartRange(first, end, at, chunk + 1))
            first, at, done = end, chunk + 1, count
    return found
