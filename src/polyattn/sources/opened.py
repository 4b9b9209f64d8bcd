"""opened: a source as one batch of sequences, after one pass that looked at all of it.

Offsets, weights and the largest magnitudes are then in memory; tokens, targets and contexts are
read again, chunk by chunk, whenever they are sliced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import require_float64
from polyattn.numerics.parallel import n_workers
from polyattn.numerics.scaling import column_sizes
from polyattn.progress import report
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.sources.names import SequenceNames
from polyattn.sources.read_array import Content, ReadArray, RecentChunks
from polyattn.sources.source import Chunk, ChunkData, Source
from polyattn.targets import as_targets, as_weights

# Bytes of chunks that are kept for the next part, beside the last two; and of a part that threads
# work on together.
RECENT_BYTES, TOGETHER_BYTES = 1 << 25, 1 << 24


@dataclass(frozen=True, eq=False)
class OpenedSource:
    """All sequences of a source, and what belongs to them.

    batch : sequences whose ``values`` are read when they are sliced
    targets : (n_rows, n_outputs), read in the same way; None where they were not asked for
    weights : one per sequence, in memory, or None
    context : the sequences attended to, or None
    """

    batch: SequenceBatch
    targets: ReadArray | None
    weights: NDArray[np.float64] | None
    context: SequenceBatch | None


def opened(source: Source, mode: str | None) -> OpenedSource:
    """The source with its targets for this mode, or (None) without them.

    Guarantee: every number is looked at once, and refused as in memory; a chunk that has another
    form when it is read again is refused.
    Cost: one pass of reading; memory one chunk, and 8 bytes per sequence and for its weight.
    """
    return opened_chunks(source.chunks, mode)


def opened_chunks(chunks: Sequence[Chunk], mode: str | None) -> OpenedSource:
    """The same for some chunks."""
    return put_together(chunks, [look_at(chunks, mode)], mode)


@dataclass(frozen=True, eq=False)
class Looked:
    """What is remembered of consecutive chunks, of those that hold sequences."""

    n_chunks: int
    found: list[_Found]
    names: SequenceNames

    def followed_by(self, other: Looked) -> Looked:
        """The same of the chunks of both; refused where a sequence is in both."""
        names = deepcopy(self.names)
        names.absorb(other.names)
        later = [replace(each, number=self.n_chunks + each.number) for each in other.found]
        return Looked(self.n_chunks + other.n_chunks, [*self.found, *later], names)


def look_at(chunks: Sequence[Chunk], mode: str | None) -> Looked:
    """Read each chunk once."""
    total, done = sum(chunk.n_bytes for chunk in chunks), 0
    looked = Looked(len(chunks), [], SequenceNames())
    for number, chunk in enumerate(chunks):
        # By a function that ends with it: no chunk is in memory while the next one is read.
        looked.found.extend(_looked_at(number, chunk, mode, looked.names))
        if looked.found:
            _require_alike(chunk, looked.found[0], looked.found[-1])
        done += chunk.n_bytes
        report(done, total)
    return looked


def put_together(
    chunks: Sequence[Chunk], looked: Iterable[Looked], mode: str | None
) -> OpenedSource:
    """All chunks opened, after stretches of them were looked at, in order."""
    found = reduce(Looked.followed_by, looked).found
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    for each in found:
        _require_alike(chunks[each.number], found[0], each)
    read = ChunkReader([chunks[each.number] for each in found], found, mode)
    # Neighbouring parts are read by all threads at once.
    recent = RecentChunks(read, n_workers() + 1, RECENT_BYTES)
    weights = None
    if any(each.weights is not None for each in found):
        weights = np.concatenate(
            [np.ones(len(each.lengths)) if each.weights is None else each.weights for each in found]
        )
    return OpenedSource(
        _batch(recent, "tokens", found, [each.lengths for each in found]),
        _array(recent, "targets", found) if "targets" in found[0].dtypes else None,
        weights,
        _batch(recent, "context", found, [each.context_lengths for each in found])
        if "context" in found[0].dtypes
        else None,
    )


def bytes_read_together(
    batch: SequenceBatch, context: SequenceBatch | None
) -> tuple[NDArray[np.int64], int] | None:
    """Bytes before each sequence (n_sequences + 1,), and how many are worked on together.

    Threads that share so many are at one or two chunks, which are then read once.  None where the
    sequences are in memory.
    """
    given = [batch] if context is None else [batch, context]
    read = [each for each in given if isinstance(each.values, ReadArray)]
    if not read:
        return None
    sizes = [each.offsets * (each.n_dims * each.values.dtype.itemsize) for each in read]
    return np.sum(sizes, axis=0), TOGETHER_BYTES


def read_chunk(chunk: Chunk, mode: str | None) -> ChunkData | None:
    """The content of a chunk, with targets for this mode or (None) without them."""
    return chunk.read_inputs() if mode is None else chunk.read(mode)


@dataclass(frozen=True, eq=False)
class _Found:
    """What is remembered of a chunk."""

    number: int
    lengths: NDArray[np.int64]
    context_lengths: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    dtypes: dict[str, np.dtype]
    rows: dict[str, int]
    magnitudes: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, number: int, content: ChunkData, mode: str | None) -> _Found:
        arrays = _arrays(content, mode)
        none = np.empty(0, dtype=np.int64)
        return cls(
            number,
            content.batch.lengths,
            none if content.context is None else content.context.lengths,
            as_weights(content.weights, content.batch),
            {name: array.dtype for name, array in arrays.items()},
            {name: len(array) for name, array in arrays.items()},
            _magnitudes(content, arrays),
        )


def _arrays(content: ChunkData, mode: str | None) -> Content:
    """The arrays of a chunk that are read when they are sliced, checked."""
    arrays: Content = {"tokens": content.batch.values}
    if mode is not None:
        if content.targets is None:
            raise InvalidInput("the source holds no targets Y, which are needed here.")
        arrays["targets"] = as_targets(content.targets, content.batch, mode)
    if content.context is not None:
        if len(content.context) != len(content.batch):
            raise InvalidInput(
                f"a chunk has {len(content.batch)} sequences but {len(content.context)} contexts."
            )
        arrays["context"] = content.context.values
    return arrays


def _magnitudes(content: ChunkData, arrays: Content) -> dict[str, NDArray[np.float64]]:
    """The largest magnitude of each column, which readers of files know already."""
    found = {"tokens": content.batch.coordinate_sizes()}
    if content.context is not None:
        found["context"] = content.context.coordinate_sizes()
    if "targets" in arrays:
        found["targets"] = column_sizes(arrays["targets"])
    return found


def _looked_at(number: int, chunk: Chunk, mode: str | None, names: SequenceNames) -> list[_Found]:
    """What is remembered of a chunk; nothing of one in which no sequence begins."""
    content = read_chunk(chunk, mode)
    if content is None:
        return []
    names.add(content.names)
    return [_Found.of(number, content, mode)]


def _require_alike(chunk: Chunk, first: _Found, found: _Found) -> None:
    """Refuse a chunk of other widths than the first."""
    where = chunk.identity.source
    if first.dtypes.keys() != found.dtypes.keys():
        raise InvalidInput(f"some chunks have a context and others, such as {where!r}, do not.")
    for name, sizes in found.magnitudes.items():
        if len(sizes) != len(first.magnitudes[name]):
            raise InvalidInput(
                f"the {name} of {where!r} have {len(sizes)} coordinates, and those before "
                f"{len(first.magnitudes[name])}."
            )


@dataclass(frozen=True, eq=False)
class ChunkReader:
    """Reads chunks that were looked at, by their numbers among those that hold sequences."""

    chunks: Sequence[Chunk]
    found: Sequence[_Found]
    mode: str | None

    def __call__(self, at: int) -> Content:
        known, chunk = self.found[at], self.chunks[at]
        content = read_chunk(chunk, self.mode)
        arrays = {} if content is None else _arrays(content, self.mode)
        alike = content is not None and np.array_equal(content.batch.lengths, known.lengths)
        if not alike or {name: array.dtype for name, array in arrays.items()} != known.dtypes:
            raise InvalidInput(
                f"{chunk.identity.source!r} has changed since it was read before; begin again."
            )
        return arrays


def _array(recent: RecentChunks, name: str, found: list[_Found]) -> ReadArray:
    """One array of all chunks, of a type that holds all of them."""
    dtype = np.result_type(*{each.dtypes[name] for each in found})
    borders = np.concatenate([[0], np.cumsum([each.rows[name] for each in found])])
    magnitudes = np.max([each.magnitudes[name] for each in found], axis=0)
    array = ReadArray(recent, name, borders, dtype, magnitudes)
    if dtype.kind == "f":
        for at, each in enumerate(found):
            if each.dtypes[name].kind in "iu":
                own = recent.content(at)[name]
                require_float64(own, f"{name}, beside chunks of another dtype,")
    return array


def _batch(
    recent: RecentChunks, name: str, found: list[_Found], lengths: list[NDArray[np.int64]]
) -> SequenceBatch:
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    offsets.setflags(write=False)
    return checked_before(_array(recent, name, found), offsets)
