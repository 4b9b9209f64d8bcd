"""The digest of a chunk's content: what was read, whatever it was read from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch
from polyattn.sources.source import ChunkData


def content_digest(data: ChunkData) -> str:
    """SHA-256 over all that a chunk holds, as float64 and int64."""
    digest = hashlib.sha256()
    for name, array in _arrays(data):
        digest.update(f"{name} {array.shape} ".encode())
        kind = "<i8" if array.dtype.kind in "iu" else "<f8"
        for piece in pieces(array):
            digest.update(np.ascontiguousarray(piece, dtype=kind).data)
    return digest.hexdigest()


def _arrays(data: ChunkData) -> Iterator[tuple[str, NDArray]]:
    for name in ("batch", "targets", "weights", "context"):
        value = getattr(data, name)
        if isinstance(value, SequenceBatch):
            yield f"{name}.offsets", value.offsets
            yield f"{name}.values", value.values
        elif value is not None:
            yield name, np.asarray(value)
