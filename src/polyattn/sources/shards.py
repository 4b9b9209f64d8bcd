"""Shards: .npz and .npy files as a source, in chunks that are read by ranges of the files.

A shard is cut at borders of sequences, where its arrays are not packed and follow each other by
rows; otherwise it is one chunk.  Where it is cut depends on the file alone.  A part is read as a
small data file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.array_files import (
    ArrayPlace,
    array_places,
    read_arrays,
    read_range,
    require_checksum,
    unreadable,
)
from polyattn.files.array_headers import Unreadable
from polyattn.files.unchanged import fingerprint, open_unchanged
from polyattn.numerics.arrays import even_ranges, ranges_of_rows
from polyattn.sources.data_file import DataFile, refuse_unknown_names
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source
from polyattn.targets import as_targets, as_weights

# Arrays with one entry per sequence, or with the tokens of all one after the other.
_BORDERS = {"X": "offsets", "Y": "offsets", "context": "context_offsets"}


@dataclass(frozen=True, eq=False)
class ShardChunk(Chunk):
    """Sequences first..stop of a file; ``ranges`` says which entries of each array they are."""

    path: Path
    identity: ChunkIdentity
    n_bytes: int
    places: dict[str, ArrayPlace] = field(repr=False)
    ranges: dict[str, tuple[int, int]] | None = None  # None: the file is read as a whole
    labels: bool = False  # whether Y may be texts
    missing: bool = False  # whether X may hold NaN
    # The arrays of the whole file that were held against their checksums.
    _sound: set[str] = field(init=False, repr=False, default_factory=set)

    def read(self, mode: str) -> ChunkData:
        with self._named():
            data = DataFile(self.path, self._arrays(), self.missing)
            batch = data.sequences()
            targets: Any = None
            if "Y" in data.arrays and self.labels and data.has_texts:
                targets = data.labels(mode)
            elif "Y" in data.arrays:
                targets = data.targets(mode)
                as_targets(targets, batch, mode)
            return ChunkData(batch, targets, as_weights(data.weights, batch), data.context())

    def read_inputs(self) -> ChunkData:
        with self._named():
            data = DataFile(self.path, self._arrays(without="Y"), self.missing)
            batch = data.sequences()
            return ChunkData(batch, None, as_weights(data.weights, batch), data.context())

    def _arrays(self, without: str | None = None) -> dict[str, NDArray]:
        with open_unchanged(self.path, self.identity.fingerprint) as file:
            if self.ranges is None:
                content = read_arrays(self.path)
                arrays = content if isinstance(content, dict) else {"X": np.array(content)}
                return {name: each for name, each in arrays.items() if name != without}
            try:
                arrays = {
                    name: read_range(file, self.places[name], first, stop)
                    for name, (first, stop) in self.ranges.items()
                    if name != without
                }
                self._require_sound(file, arrays)
            except Unreadable as reason:
                raise unreadable(self.path, reason) from None
        # Borders count from the first token that was read.
        borders = {name: arrays[name] - arrays[name][0] for name in arrays if "offsets" in name}
        return arrays | borders

    def _require_sound(self, file: IO[bytes], arrays: dict[str, NDArray]) -> None:
        """Refuse a damaged archive: the first chunk of a file answers for all of them."""
        if self.identity.first:
            return
        for name in set(arrays) - self._sound:
            place, whole = self.places[name], arrays[name]
            require_checksum(file, place, whole if len(whole) == place.shape[0] else None)
            self._sound.add(name)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors about the content say where it stands."""
        try:
            yield
        except (InvalidInput, InvalidType) as error:
            first = self.identity.first
            where = f", from its sequence {first} on, which is called 0 here" if first else ""
            raise type(error)(f"in {str(self.path)!r}{where}: {error}") from None


class ShardSource(Source):
    """Files of arrays, one after the other; see ``polyattn.scan``.

    Shards agree in the widths of tokens, targets and contexts, which their headers say.
    """

    def __init__(self, paths: Sequence[Path], chunk_bytes: int) -> None:
        self.paths = list(paths)
        self._chunks: list[ShardChunk] = []
        first: dict[str, tuple[int, ...]] = {}
        for path in self.paths:
            known = fingerprint(path)
            with open_unchanged(path, known):
                places = array_places(path)
            refuse_unknown_names(path, places)
            if "X" not in places:
                raise FileFormatError(f"{str(path)!r} has no array 'X', the sequences.")
            if not first:
                first, self._places = _widths(path, places), places
            _require_same(path, _widths(path, places), self.paths[0], first)
            self._chunks += _chunks_of(path, places, chunk_bytes, known)
        self.n_dims = self._places["X"].shape[-1]
        context = self._places.get("context")
        self.n_context_dims = None if context is None else context.shape[-1]
        self.n_outputs = self.n_outputs_in("last")

    @property
    def chunks(self) -> Sequence[Chunk]:
        return self._chunks

    def labelled(self) -> ShardSource:
        made = copy(self)
        made._chunks = [replace(chunk, labels=True) for chunk in self._chunks]
        return made

    def with_missing(self) -> ShardSource:
        made = copy(self)
        made._chunks = [replace(chunk, missing=True) for chunk in self._chunks]
        return made

    def n_outputs_in(self, mode: str) -> int:
        targets = self._places.get("Y")
        if targets is None:
            return 0
        per_token = mode != "last" and "offsets" not in self._places
        return targets.shape[-1] if len(targets.shape) > (2 if per_token else 1) else 1


def open_shards(paths: Sequence[Path], chunk_bytes: int) -> ShardSource:
    """The files as a source, in chunks of about so many bytes."""
    return ShardSource(paths, chunk_bytes)


def _widths(path: Path, places: dict[str, ArrayPlace]) -> dict[str, tuple[int, ...]]:
    """What all shards have in common: which arrays there are, and their coordinates."""
    if not places["X"].shape or any(not place.shape for place in places.values()):
        raise FileFormatError(f"{str(path)!r} holds a single number where an array is needed.")
    found: dict[str, tuple[int, ...]] = {
        name: place.shape[-1:] for name, place in places.items() if name in ("X", "context")
    }
    if "Y" in places:
        # Targets (N,) and (N, e); with one per token also (N, n) and (N, n, e), of any n.
        axes = places["Y"].shape
        width = axes[-1:] if len(axes) > 1 else (1,)
        found["Y"] = () if _is_per_token(places) else width
    return found | ({"weights": ()} if "weights" in places else {})


def _is_per_token(places: dict[str, ArrayPlace]) -> bool:
    """Whether targets (N, n) may be one for each token."""
    targets, tokens = places["Y"].shape, places["X"].shape
    return len(targets) == 2 and len(tokens) == 3 and targets == tokens[:2]


def _require_same(
    path: Path, found: dict[str, tuple[int, ...]], other: Path, wanted: dict[str, tuple[int, ...]]
) -> None:
    for name in sorted(set(found) ^ set(wanted)):
        has, lacks = (path, other) if name in found else (other, path)
        raise FileFormatError(
            f"shards hold the same arrays: {str(has)!r} has {name!r} and {str(lacks)!r} has not."
        )
    for name, width in found.items():
        if width != wanted[name] and width and wanted[name]:
            raise FileFormatError(
                f"shards agree in their coordinates: {name} has {width[0]} in {str(path)!r} and "
                f"{wanted[name][0]} in {str(other)!r}."
            )


def _chunks_of(
    path: Path, places: dict[str, ArrayPlace], chunk_bytes: int, known: str
) -> Iterator[ShardChunk]:
    """The chunks of one file."""
    cuts = _cuts(path, places, chunk_bytes, known)
    if cuts is None:
        identity = ChunkIdentity(str(path), known, 0, max(1, places["X"].shape[0]))
        yield ShardChunk(path, identity, sum(each.n_bytes for each in places.values()), places)
        return
    for first, stop, ranges in cuts:
        size = sum((end - start) * places[name].row_bytes for name, (start, end) in ranges.items())
        yield ShardChunk(path, ChunkIdentity(str(path), known, first, stop), size, places, ranges)


def _cuts(
    path: Path, places: dict[str, ArrayPlace], chunk_bytes: int, known: str
) -> list[tuple[int, int, dict[str, tuple[int, int]]]] | None:
    """(first, stop, the entries of each array) of all chunks; None where it cannot be cut.

    What does not fit together is not cut, either: reading it as a whole says what is wrong.
    """
    if any(place.start is None for place in places.values()):
        return None
    borders = _borders(path, places, known)
    tokens = borders.get("offsets")
    n_sequences = places["X"].shape[0] if tokens is None else len(tokens) - 1
    if n_sequences < 1 or any(len(each) != n_sequences + 1 for each in borders.values()):
        return None
    of_tokens = {name for name, by in _BORDERS.items() if by in borders and name in places}
    if "Y" in of_tokens and places["Y"].shape[0] == n_sequences:
        of_tokens.remove("Y")
    for name, place in places.items():
        by = borders.get(_BORDERS.get(name, ""), np.zeros(1)) if name in of_tokens else None
        wanted = n_sequences + ("offsets" in name) if by is None else int(by[-1])
        if place.shape[0] != wanted:
            return None
    total = sum(place.n_bytes for place in places.values())
    if tokens is None:
        most = max(1, chunk_bytes * n_sequences // max(1, total))
        pieces = list(even_ranges(n_sequences, most))
    else:
        pieces = list(ranges_of_rows(tokens, max(1, chunk_bytes * int(tokens[-1]) // total)))
    return [(*piece, _ranges(places, borders, of_tokens, *piece)) for piece in pieces]


def _borders(path: Path, places: dict[str, ArrayPlace], known: str) -> dict[str, NDArray[np.int64]]:
    """The arrays that say where sequences begin; those that do not are an empty array."""
    found = {}
    with open_unchanged(path, known) as file:
        for name in sorted({"offsets", "context_offsets"} & set(places)):
            try:
                array = read_range(file, places[name], 0, places[name].shape[0])
            except Unreadable as reason:
                raise unreadable(path, reason) from None
            sound = array.ndim == 1 and array.dtype.kind in "iu" and len(array) > 1
            sound = sound and array[0] == 0 and bool(np.all(array[1:] > array[:-1]))
            found[name] = array.astype(np.int64) if sound else np.empty(0, dtype=np.int64)
    return found


def _ranges(
    places: dict[str, ArrayPlace],
    borders: dict[str, NDArray[np.int64]],
    of_tokens: set[str],
    first: int,
    stop: int,
) -> dict[str, tuple[int, int]]:
    """Which entries of each array belong to sequences first..stop."""
    ranges = {}
    for name in places:
        start, end = first, stop + ("offsets" in name)
        if name in of_tokens:
            by = borders[_BORDERS[name]]
            start, end = int(by[first]), int(by[stop])
        ranges[name] = (start, end)
    return ranges
