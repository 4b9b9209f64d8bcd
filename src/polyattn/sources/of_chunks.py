"""A function of sequences on all chunks of a source, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.progress import report
from polyattn.sources.names import SequenceNames
from polyattn.sources.source import Chunk, ChunkData, Source


def of_chunks(source: Source, outputs: Callable[[ChunkData], Any]) -> Any:
    """The outputs for all chunks of a source, one after the other: an array, or a list of them."""
    found = each_chunk(source, outputs)
    if isinstance(found[0], list):
        return [each for part in found for each in part]
    return np.concatenate(found)


def each_chunk(source: Source, function: Callable[[ChunkData], Any]) -> list[Any]:
    """What a function returns for the inputs of each chunk, in their order."""
    found: list[Any] = []
    total, done, names = source.n_bytes, 0, SequenceNames()
    for chunk in source.chunks:
        # By a function that ends with it: no chunk is in memory while the next one is read.
        found += _of_chunk(chunk, function, names)
        done += chunk.n_bytes
        report(done, total)
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    return found


def _of_chunk(chunk: Chunk, outputs: Callable[[ChunkData], Any], names: SequenceNames) -> list[Any]:
    data = chunk.read_inputs()
    if data is None:
        return []
    names.add(data.names)
    return [outputs(data)]
