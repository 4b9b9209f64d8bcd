"""How chunks get to a worker: as references to files, as arrays, or as parts that it computes.

A reference is a few hundred bytes and travels in the task itself, so that Dask can do the task
again on another worker.  Arrays are sent to a worker's memory instead, since the scheduler keeps
all tasks; when that worker dies they are sent again.  A part of a Dask collection (of a chunk with
``part`` and ``read_from``, or of a view of one) is computed on the workers and never leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from polyattn.cluster.workers import Workers, require_software
from polyattn.errors import InvalidInput
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sources.source import Chunk, ChunkData

# Chunks that a task adds, in bytes to be read and in number: what a dead worker costs.
LINK_BYTES, LINK_CHUNKS = 1 << 27, 64

# What takes more bytes than this to send has arrays in it.
REFERENCE_BYTES = 1 << 16

Result = TypeVar("Result")
Begin = Callable[[Sequence[Chunk]], Result]
Add = Callable[[Result, Sequence[Chunk]], Result]


def links(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Consecutive chunks that one task adds together, fixed by the chunks alone."""
    together: list[list[Chunk]] = []
    n_bytes = 0
    for chunk in chunks:
        too_large = n_bytes + chunk.n_bytes > LINK_BYTES
        if not together or too_large or len(together[-1]) >= LINK_CHUNKS:
            together.append([])
            n_bytes = 0
        together[-1].append(chunk)
        n_bytes += chunk.n_bytes
    return together


def send(workers: Workers, chunks: Sequence[Chunk]) -> list[Any]:
    """What a task takes instead of the chunks: themselves, or futures of what they become."""
    client = workers.client
    sent: list[Any] = []
    for chunk in chunks:
        part = _part(chunk)
        if part is not None:
            value = client.compute(part)
            sent.append(client.submit(_handed_over, _without_part(chunk), value, pure=False))
        elif bytes_to_send(chunk) > REFERENCE_BYTES:
            direct = True if workers.is_local else None
            sent += client.scatter([chunk], hash=False, direct=direct)
        else:
            sent.append(chunk)
    return sent


def bytes_to_send(thing: object) -> int:
    """How many bytes it takes on its way to a worker; its arrays are not copied for that."""
    from distributed.protocol.serialize import serialize

    # With "message", the default, Dask would log a traceback and send the message instead.
    try:
        _, frames = serialize(thing, on_error="raise")
    except TypeError as error:
        why = error.__cause__ or error
        raise InvalidInput(
            f"the source cannot be sent to the workers of client: {why}. Let its function open "
            "what it reads when it is called, and hold no locks, connections or open files; or "
            "write the data to files and give pa.scan."
        ) from error
    return sum(memoryview(frame).nbytes for frame in frames)


@single_threaded_blas()
def add_link(add: Add[Result], software: dict[str, str], result: Result, *chunks: Chunk) -> Result:
    """The task of a worker: ``result`` with some chunks added; the given one does not change."""
    require_software(software)
    return add(result, chunks)


@single_threaded_blas()
def add_first_link(begin: Begin[Result], software: dict[str, str], *chunks: Chunk) -> Result:
    """The same from the beginning, which is made on the worker."""
    require_software(software)
    return begin(chunks)


@dataclass(frozen=True, eq=False)
class HandedOver(Chunk):
    """A chunk of a Dask collection, and the value of its part."""

    chunk: Any
    value: Any

    @property
    def identity(self) -> Any:  # type: ignore[override]
        return self.chunk.identity

    @property
    def n_bytes(self) -> int:  # type: ignore[override]
        return self.chunk.n_bytes

    def read(self, mode: str) -> ChunkData:
        return self.chunk.read_from(self.value, mode)


def _part(chunk: Any) -> Any:
    """What Dask computes for a chunk, or for the one that it is a view of; None for others."""
    if hasattr(chunk, "read_from"):
        return chunk.part
    return _part(chunk.chunk) if hasattr(chunk, "chunk") else None


def _without_part(chunk: Any) -> Any:
    """The same without the graph of tasks that computes it."""
    alone = copy(chunk)
    if hasattr(chunk, "read_from"):
        vars(alone)["part"] = None
    else:
        vars(alone)["chunk"] = _without_part(chunk.chunk)
    return alone


def _handed_over(chunk: Any, value: Any) -> Chunk:
    """The chunk with the value of its part, or the view of such a chunk."""
    if hasattr(chunk, "read_from"):
        return HandedOver(chunk, value)
    view = copy(chunk)
    vars(view)["chunk"] = _handed_over(chunk.chunk, value)
    return view
