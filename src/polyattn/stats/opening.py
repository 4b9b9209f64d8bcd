"""Rows of a source, which is looked at here or by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

from polyattn.cluster import Workers, require_workers, results_in_order
from polyattn.form.form import Form
from polyattn.progress import listening
from polyattn.sources.opened import Looked, OpenedSource, look_at, put_together
from polyattn.sources.source import Chunk, Source
from polyattn.sources.stretches import stretches
from polyattn.stats.parts import Origin, ReadBy
from polyattn.stats.rows import Rows


def rows_of_source(
    source: Source,
    form: Form,
    checkpoint: str | PathLike[str] | None = None,
    client: Any = None,
    keep_integers: bool = False,
) -> Rows:
    """The rows of a source, which know it.

    checkpoint : a file for sums over all of them
    client : a ``distributed.Client`` whose workers look at the chunks, make sums and passes
    Cost: one pass of reading; memory one chunk, and 8 bytes per sequence and for its weight.
    """
    if client is None:
        rows = Rows.build(source, None, form, keep_integers=keep_integers)
        return rows.come_from(Origin(source, checkpoint))
    workers = require_workers(client)
    found = _opened_on(workers, source, form.mode if source.n_outputs else None)
    rows = Rows.build(found, None, form, keep_integers=keep_integers)
    rows = replace(rows, read_by=ReadBy(workers, rows.sequence_weights))
    return rows.come_from(Origin(source, checkpoint, client))


def _opened_on(workers: Workers, source: Source, mode: str | None) -> OpenedSource:
    """``opened`` by workers, which send back lengths, weights and magnitudes."""
    chunks = source.chunks
    parts = [chunks[each.start : each.stop] for each in stretches(len(chunks))]
    results = results_in_order(workers, parts, partial(_look, mode), partial(_look_on, mode))
    with closing(results):
        return put_together(chunks, results, mode)


def _look(mode: str | None, chunks: Sequence[Chunk]) -> Looked:
    """On a worker."""
    with listening(lambda *_: None):
        return look_at(chunks, mode)


def _look_on(mode: str | None, before: Looked, chunks: Sequence[Chunk]) -> Looked:
    """On a worker: chunks that follow others of a stretch."""
    return before.followed_by(_look(mode, chunks))
