"""Moments of a source in one pass, and of rows that came from one."""

from __future__ import annotations

from os import PathLike
from typing import Any

from polyattn.form.form import Form
from polyattn.sources.source import Source
from polyattn.sources.views import Inputs
from polyattn.stats.moments import Moments
from polyattn.stats.rows import Rows


def moments_of_source(
    source: Source,
    form: Form,
    with_targets: bool = True,
    checkpoint: str | PathLike[str] | None = None,
    client: Any = None,
) -> Moments:
    """The moments of all chunks, each of which is read once.

    with_targets : False for the sequences alone, each of which then counts once
    checkpoint : a file from which an interrupted call goes on, to the same bits
    client : a ``distributed.Client`` whose workers read the chunks
    Cost: one pass; memory of one chunk and the sums.
    """
    given = source if with_targets else Inputs(source)
    n_outputs = given.n_outputs_in(form.mode)
    empty = Moments(source.n_dims, n_outputs, form=form, n_context_dims=source.n_context_dims)
    return empty.update(given, checkpoint=checkpoint, client=client)


def moments_of(rows: Rows) -> Moments:
    """The moments of rows; where these are a whole source, from its chunks, as it says."""
    origin = rows.origin
    if origin is None:
        return Moments.of(rows)
    with_targets = rows.n_outputs > 0
    return moments_of_source(
        origin.source, rows.form, with_targets, origin.checkpoint, origin.client
    )
