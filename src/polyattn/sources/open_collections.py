"""Collections of Dask opened as a source, whichever kind they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyattn.errors import InvalidInput
from polyattn.sources.dask_collections import DaskSource, array_source, delayed_source, is_delayed
from polyattn.sources.dask_frames import frame_source, is_frame


def open_collection(
    data: Any,
    Y: Any = None,
    sample_weight: Any = None,
    context: Any = None,
    *,
    sequence: str | None = None,
    order: str | None = None,
    tokens: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    weight: str | None = None,
    chunk_bytes: int | None = None,  # noqa: ARG001 - collections are divided already
) -> DaskSource:
    """A ``dask.array``, ``dask.dataframe``, delayed pair or list of delayed pairs as a source.

    Arrays come with ``Y`` and ``sample_weight``, frames with the names of their columns.
    """
    beside = {"Y": Y, "sample_weight": sample_weight}
    columns = {
        "sequence": sequence, "order": order, "tokens": tokens, "targets": targets,
        "weight": weight,
    }  # fmt: skip
    _refuse({"context": context}, "collections of Dask have none")
    if is_frame(data):
        _refuse(beside, "they are columns of the frame")
        return frame_source(data, **columns)  # type: ignore[arg-type]
    _refuse(columns, "they name columns of a frame")
    several = data if isinstance(data, list | tuple) else [data]
    if several and all(is_delayed(each) or isinstance(each, list | tuple) for each in several):
        _refuse(beside, "they come with each delayed X")
        return delayed_source(several)
    return array_source(data, Y, sample_weight)


def _refuse(given: dict[str, Any], why: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"leave out {name}: {why}.")
