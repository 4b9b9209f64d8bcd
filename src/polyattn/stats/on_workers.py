"""Statistics of a source on the workers of a cluster, in the order and the bits of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from polyattn.cluster import Workers, results_in_order
from polyattn.cluster.workers import require_memory
from polyattn.sources.names import SequenceNames
from polyattn.sources.source import Chunk
from polyattn.sources.stretches import stretches
from polyattn.stats.gather import Gathering, add_chunk, add_stretch, fold
from polyattn.stats.statistics import Statistics

S = TypeVar("S", bound=Statistics)


def add_on_workers(
    state: Gathering[S],
    empty: S,
    chunks: Sequence[Chunk],
    workers: Workers,
    save: Callable[[], None],
) -> None:
    """Add all stretches that ``state`` lacks, whose last one is finished; ``save`` after each.

    The workers add up stretches, and this process takes their sums up in order: a worker that
    dies costs no more than the stretches it was at.
    Cost: two sums here, up to three for each thread of a worker.
    """
    per_thread = require_memory(workers, 8 * empty._numbers)
    # Empty statistics are as large as full ones: the workers make their own.
    make = partial(
        type(empty), empty.n_dims, empty.n_outputs,
        form=empty.form, n_context_dims=empty.n_context_dims,
    )  # fmt: skip
    begin = partial(_begun, make)
    missing = [each for each in stretches(len(chunks)) if each.start >= state.n_done]
    parts = [chunks[each.start : each.stop] for each in missing]
    done_before = sum(chunk.n_bytes for chunk in chunks[: state.n_done])
    results = results_in_order(
        workers, parts, begin, add_stretch, per_thread=per_thread, done_before=done_before
    )
    with closing(results):
        for stretch, part in zip(missing, results, strict=True):
            # A function that was sent is no longer equal to itself.
            part.layout = empty.layout
            if part.sequence_names is not None:
                state.names.absorb(part.sequence_names)
                part.sequence_names = None
            # Received arrays may begin anywhere in memory: those that stay become one's own.
            own = part.copy() if state.total is None else part
            state.total, state.n_done = fold(state.total, own), stretch.stop
            save()


def _begun(make: Callable[[], S], chunks: Sequence[Chunk]) -> S:
    """``add_stretch`` to new statistics, without a copy of them."""
    part = make()
    part.sequence_names = SequenceNames()
    for chunk in chunks:
        add_chunk(part, chunk, part.sequence_names)
    return part
