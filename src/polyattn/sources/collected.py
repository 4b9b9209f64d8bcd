"""A source as a whole in memory, for what cannot work in chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import require_float64
from polyattn.progress import report
from polyattn.sequences import SequenceBatch, common_names
from polyattn.sources.names import SequenceNames
from polyattn.sources.opened import read_chunk
from polyattn.sources.source import ChunkData, Source
from polyattn.targets import as_targets, as_weights


def collected(source: Source, mode: str | None) -> ChunkData:
    """All chunks in one; with targets as ``mode`` wants them, or without any if it is None.

    Guarantee: a sequence in two places is refused, not taken for two.
    Cost: memory of the data, twice while they are put together.
    """
    parts: list[ChunkData] = []
    done, names = 0, SequenceNames()
    for chunk in source.chunks:
        part = read_chunk(chunk, mode)
        if part is not None:
            names.add(part.names)
            parts.append(part)
        done += chunk.n_bytes
        report(done, source.n_bytes)
    if not parts:
        raise InvalidInput("there are no sequences in the data.")
    batch = _joined([part.batch for part in parts], "X")
    contexts = [part.context for part in parts if part.context is not None]
    return ChunkData(
        batch,
        _targets(parts, batch, mode),
        None if all(part.weights is None for part in parts) else _weights(parts),
        _joined(contexts, "context") if contexts else None,
    )


def _joined(batches: Sequence[SequenceBatch], name: str) -> SequenceBatch:
    """Several batches one behind the other."""
    values = [batch.values for batch in batches]
    if len({array.dtype for array in values}) > 1:
        for array in values:
            require_float64(array, f"{name}, beside sequences of another dtype,")
    lengths = np.concatenate([batch.lengths for batch in batches])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    missing = any(batch.has_missing for batch in batches)
    names = common_names(batch.coordinate_names for batch in batches)
    return SequenceBatch(
        np.concatenate(values), offsets, name, missing=missing, coordinate_names=names
    )


def _targets(
    parts: Sequence[ChunkData], batch: SequenceBatch, mode: str | None
) -> NDArray | SequenceBatch | None:
    """The targets of all parts: (N, e), or one for each token as a batch; None without any."""
    rows = [
        as_targets(part.targets, part.batch, mode)
        for part in parts
        if mode is not None and part.targets is not None
    ]
    if not rows:
        return None
    widths = sorted({each.shape[1] for each in rows})
    if len(widths) > 1:
        raise InvalidInput(
            f"the targets have {widths[0]} coordinates in one part of the data and {widths[-1]} in "
            "another; all need the same."
        )
    together = np.concatenate(rows)
    return together if mode == "last" else SequenceBatch(together, batch.offsets, "Y")


def _weights(parts: Sequence[ChunkData]) -> NDArray:
    """One weight per sequence; those of parts without any are one."""
    given = [as_weights(part.weights, part.batch) for part in parts]
    return np.concatenate(
        [
            np.ones(len(part.batch)) if weights is None else weights
            for part, weights in zip(parts, given, strict=True)
        ]
    )
