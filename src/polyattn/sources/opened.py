"""opened: a source as one batch of sequences, after one pass that looked at all of it.

Offsets, weights and the largest magnitudes are then in memory; tokens, targets and contexts are
read again, chunk by chunk, whenever they are sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import pieces, require_float64
from polyattn.numerics.parallel import n_workers
from polyattn.numerics.scaling import column_magnitudes
from polyattn.progress import report
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.sources.names import SequenceNames
from polyattn.sources.read_array import Content, ReadArray, RecentChunks
from polyattn.sources.source import Chunk, ChunkData, Source
from polyattn.targets import as_targets, as_weights


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
    chunks, total, done = source.chunks, source.n_bytes, 0
    found: list[_Found] = []
    names = SequenceNames()
    for number, chunk in enumerate(chunks):
        content = read_chunk(chunk, mode)
        if content is not None:
            names.add(content.names)
            found.append(_Found.of(number, content, mode))
            _require_alike(chunk, found[0], found[-1])
        done += chunk.n_bytes
        report(done, total)
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    read = partial(_content, chunks, found, mode)
    # Neighbouring parts are read by all threads at once.
    recent = RecentChunks(read, n_workers() + 1)
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
            {
                name: column_magnitudes(pieces(array), array.shape[1])
                for name, array in arrays.items()
            },
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


def _content(chunks: Sequence[Chunk], found: list[_Found], mode: str | None, at: int) -> Content:
    """The arrays of the chunk at a place among those that hold sequences, read again."""
    known = found[at]
    chunk = chunks[known.number]
    content = read_chunk(chunk, mode)
    arrays = {} if content is None else _arrays(content, mode)
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
