"""A function of sequences on all chunks of a source, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.progress import report
from polyattn.sources.names import SequenceNames
from polyattn.sources.source import ChunkData, Source


def of_chunks(source: Source, outputs: Callable[[ChunkData], Any]) -> Any:
    """The outputs for all chunks of a source, one after the other: an array, or a list of them."""
    found: list[Any] = []
    total, done, names = source.n_bytes, 0, SequenceNames()
    for chunk in source.chunks:
        data = chunk.read_inputs()
        if data is not None:
            names.add(data.names)
            found.append(outputs(data))
        done += chunk.n_bytes
        report(done, total)
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    if isinstance(found[0], list):
        return [each for part in found for each in part]
    return np.concatenate(found)
