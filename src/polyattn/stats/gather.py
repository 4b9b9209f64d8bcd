"""gathered: the statistics of a source, chunk by chunk, in an order that its chunks alone decide.

Each stretch of chunks (``sources.stretches``) is added up in a sum of its own, and the sums are
folded in order: the first one takes up the others.  Whoever adds a stretch, and however often it
is begun anew, the result has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polyattn.cluster import require_workers
from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.progress import listening, report
from polyattn.quoting import shown
from polyattn.sources.contents import LONGEST_SOURCE, Contents
from polyattn.sources.names import SequenceNames
from polyattn.sources.opened import read_chunk
from polyattn.sources.source import Chunk, ChunkData, Source
from polyattn.sources.stretches import stretches
from polyattn.stats.rows import Rows

if TYPE_CHECKING:
    from polyattn.stats.statistics import Statistics

S = TypeVar("S", bound="Statistics")


@dataclass
class Gathering(Generic[S]):
    """How far the chunks of a source are added up."""

    n_done: int = 0  # chunks
    total: S | None = None  # of the stretches that are finished
    present: S | None = None  # of the one that is not
    names: SequenceNames = field(default_factory=SequenceNames)


def gathered(
    empty: S,
    source: Source,
    checkpoint: str | PathLike[str] | None = None,
    client: Any = None,
) -> S:
    """The statistics of a source, of the kind and form of ``empty``.

    checkpoint : a file from which an interrupted call goes on, to the same bits
    client : a ``distributed.Client`` whose workers add up the stretches, to the same bits
    Guarantee: a chunk whose reading or checking fails leaves nothing behind but the checkpoint.
    Cost: memory of one chunk and two sums.
    """
    from polyattn.stats.checkpoint import Checkpoint
    from polyattn.stats.on_workers import add_on_workers

    require_fitting(empty, source)
    workers = None if client is None else require_workers(client)
    chunks = source.chunks
    saved = None if checkpoint is None else Checkpoint(checkpoint, empty, source)
    state: Gathering[S] = Gathering() if saved is None else saved.resumed()

    def save() -> None:
        if saved is not None:
            saved.save(state, at_once=state.n_done == len(chunks))

    if state.n_done:
        report(sum(chunk.n_bytes for chunk in chunks[: state.n_done]), source.n_bytes)
    borders = [each.stop for each in stretches(len(chunks))]
    if workers is None:
        _add_here(state, empty, chunks, borders, save)
    else:
        if state.present is not None:
            # What one process left within a stretch is finished by one process.
            end = next(each for each in borders if each > state.n_done)
            _add_here(state, empty, chunks, [end], save)
        add_on_workers(state, empty, chunks, workers, save)
    assert state.total is not None  # noqa: S101 - there is at least one chunk
    if state.total.n_rows == 0:
        raise InvalidInput("all chunks of the source are empty: it holds no sequence.")
    return state.total


def _add_here(
    state: Gathering[S],
    empty: S,
    chunks: Sequence[Chunk],
    borders: Sequence[int],
    save: Callable[[], None],
) -> None:
    """Add chunks up to the last of the ``borders``, at each of which a stretch ends."""
    sizes = [chunk.n_bytes for chunk in chunks]
    n_bytes, done = sum(sizes), sum(sizes[: state.n_done])
    for at in range(state.n_done, borders[-1]):
        state.present = empty.empty() if state.present is None else state.present
        add_chunk(state.present, chunks[at], state.names)
        state.n_done = at + 1
        if state.n_done in borders:
            state.total, state.present = fold(state.total, state.present), None
        done += sizes[at]
        report(done, n_bytes)
        save()


def add_stretch(empty: S, chunks: Sequence[Chunk]) -> S:
    """The statistics of some chunks, added one by one to a copy of ``empty``.

    For workers in other processes: the result knows the names of its sequences, and ``fold``
    refuses those that another stretch has as well.
    """
    part = empty.copy()
    part.sequence_names = part.sequence_names or SequenceNames()
    for chunk in chunks:
        add_chunk(part, chunk, part.sequence_names)
    return part


def fold(total: S | None, part: S) -> S:
    """The sum of the stretches so far with the next one added; both are used up."""
    if total is None:
        return part
    if total.sequence_names is not None and part.sequence_names is not None:
        total.sequence_names.absorb(part.sequence_names)
    total.absorb(part)
    return total


def add_chunk(statistics: Statistics, chunk: Chunk, names: SequenceNames) -> None:
    """Read a chunk and add it; where anything is wrong with it, nothing is counted."""
    identity = chunk.identity
    statistics.contents.require_new(identity)
    data = read_chunk(chunk, statistics.mode if statistics.n_outputs else None)
    if data is None:
        # Nothing to add, and still it is done: a checkpoint knows by that how far it is.
        statistics.contents.add(identity)
        return
    try:
        rows = rows_of(statistics, data)
        names.add(data.names)
    except (InvalidInput, InvalidType, OutOfRange) as error:
        place = f"{shown(identity.source, LONGEST_SOURCE)}, {identity.first}..{identity.stop}"
        raise type(error)(f"{place}: {error}") from error
    # Bytes of chunks are reported, not the rows of each of them.
    with listening(lambda *_: None), single_threaded_blas():
        statistics.add_chunk_rows(rows, identity)


def rows_of(statistics: Statistics, data: ChunkData) -> Rows:
    """The content of a chunk as rows; its targets are left out where the statistics have none."""
    targets = data.targets if statistics.n_outputs else None
    if targets is None and statistics.n_outputs:
        raise InvalidInput(
            f"it holds no targets; the statistics were made with n_outputs={statistics.n_outputs}."
        )
    return Rows.build(
        data.batch, targets, statistics.form, data.weights, data.context,
        layout=statistics.layout, n_outputs=statistics.n_outputs or None,
    )  # fmt: skip


def require_fitting(statistics: Statistics, source: Source) -> Contents:
    """Refuse a source of other sizes, without chunks, or with a chunk twice; what is in it."""
    wanted = {"n_dims": statistics.n_dims, "n_context_dims": statistics.n_context_dims}
    if statistics.n_outputs:
        wanted["n_outputs"] = statistics.n_outputs
    held = {
        "n_dims": source.n_dims, "n_context_dims": source.n_context_dims,
        "n_outputs": source.n_outputs_in(statistics.mode),
    }  # fmt: skip
    for name, size in wanted.items():
        if held[name] != size:
            raise InvalidInput(
                f"the statistics were made with {name}={size}, and the source has "
                f"{name}={held[name]}."
            )
    if not source.chunks:
        raise InvalidInput("the source has no chunks: at least one sequence is needed.")
    return Contents(chunk.identity for chunk in source.chunks)
