"""Items that come only once, kept in a file without a name for all later passes.

Each item is written as soon as it was looked at, and read back array by array: memory holds one.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.files.nameless import fill_array, nameless_file, write_array
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.sources.arrays import ArrayChunk
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity

# So much of the disk is left free for others.
LEFT_FREE = 64 << 20


class KeptItems:
    """The contents of chunks in a file, which is gone with the last of them.

    Guarantee: what is read back has the dtype, the shape and the bits of what was given.
    Cost: disk for the data once; memory for the chunk that is read.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = nameless_file()
        self._lock = Lock()
        self._stop = 0
        weakref.finalize(self, self._file.close)

    def kept(self, chunk: ArrayChunk, number: int, identity: ChunkIdentity) -> Chunk:
        """The chunk of the item with this number under its identity, with its content written."""
        parts = _parts(chunk.content)
        n_bytes = sum(array.nbytes for array in parts.values())
        _require_space(n_bytes, number)
        stored = {}
        for name, array in parts.items():
            stored[name] = _Stored(self._stop, array.dtype, array.shape)
            try:
                self._stop += write_array(self._file, np.ascontiguousarray(array))
            except OSError as error:
                raise _no_space(n_bytes, number, error.strerror) from error
        tokens = chunk.content.batch.values
        n_symbols = tokens.n_symbols if isinstance(tokens, OneHotTokens) else None
        return KeptChunk(_InFile(self, stored, n_symbols), identity, chunk.n_bytes)

    def read(self, stored: _Stored) -> NDArray:
        """One array, as it was given."""
        array = np.empty(stored.shape, stored.dtype)
        fill_array(self._file, self._lock, stored.offset, array)
        return array


class _Stored(NamedTuple):
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class KeptChunk(Chunk):
    """A chunk whose content lies in a file of this process; it is sent with all its numbers."""

    place: _InFile | _InMemory = field(repr=False)
    identity: ChunkIdentity
    n_bytes: int

    def read(self, mode: str) -> ChunkData:
        return self._chunk().read(mode)

    def read_inputs(self) -> ChunkData:
        return self._chunk().read_inputs()

    def _chunk(self) -> ArrayChunk:
        return ArrayChunk(self.place.content(), 0, self.n_bytes)


@dataclass(frozen=True, eq=False)
class _InFile:
    """The content of a chunk, of which each array is read from the file."""

    items: KeptItems
    stored: dict[str, _Stored]
    n_symbols: int | None

    def content(self) -> ChunkData:
        arrays = {name: self.items.read(stored) for name, stored in self.stored.items()}
        if self.n_symbols is not None:
            tokens: Any = OneHotTokens(arrays["batch"], self.n_symbols)
            arrays["batch"] = tokens
        return ChunkData(**{each.name: _part(arrays, each.name) for each in fields(ChunkData)})

    def __reduce__(self) -> tuple[Callable[[ChunkData], _InMemory], tuple[ChunkData]]:
        # Another process cannot read a file without a name.
        return _InMemory, (self.content(),)


@dataclass(frozen=True, eq=False)
class _InMemory:
    """The content of a chunk that was sent."""

    data: ChunkData

    def content(self) -> ChunkData:
        return self.data


def _parts(content: ChunkData) -> dict[str, NDArray]:
    """All arrays of a chunk by name; those of batches with their offsets."""
    arrays = {}
    for each in fields(ChunkData):
        part = getattr(content, each.name)
        if isinstance(part, SequenceBatch):
            arrays[f"{each.name} offsets"] = part.offsets
            part = part.values.ids if isinstance(part.values, OneHotTokens) else part.values
        if part is not None:
            arrays[each.name] = part
    return arrays


def _part(arrays: dict[str, NDArray], name: str) -> Any:
    """What ``_parts`` took apart."""
    offsets = arrays.get(f"{name} offsets")
    return arrays.get(name) if offsets is None else checked_before(arrays[name], offsets)


def _require_space(n_bytes: int, number: int) -> None:
    if n_bytes + LEFT_FREE > shutil.disk_usage(tempfile.gettempdir()).free:
        raise _no_space(n_bytes, number, os.strerror(errno.ENOSPC))


def _no_space(n_bytes: int, number: int, reason: str | None) -> OSError:
    return OSError(
        errno.ENOSPC,
        f"{reason}: item {number} of the iterator ({n_bytes:,} bytes) cannot be kept for later "
        "passes; set TMPDIR to a folder on a larger disk, or give the function that makes the "
        "iterator",
        tempfile.gettempdir(),
    )
