"""Labels of a source: its targets are numbers of classes, and are looked at chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.sources.source import Source
from polyattn.sources.views import OtherTargets


def source_labels(source: Source, mode: str) -> NDArray:
    """The sorted distinct labels of all chunks.  Cost: one pass of reading."""
    if source.n_outputs_in(mode) != 1:
        raise InvalidInput(
            "a source of labels holds one for each predicted position; this one has "
            f"{source.n_outputs_in(mode)} targets for each."
        )
    found: list[NDArray] = []
    for chunk in source.chunks:
        data = chunk.read(mode)
        if data is not None:
            own = np.unique(_labels(data.targets, mode))
            found = [np.unique(np.concatenate([*found, own]))]
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    return found[0]


def with_codes(
    source: Source, mode: str, code: Callable[[NDArray], NDArray], n_outputs: int
) -> Source:
    """The source with a function of its labels as targets, of so many outputs."""
    return OtherTargets(source, partial(_coded, mode, code), n_outputs)


def _labels(targets: Any, mode: str) -> NDArray:
    """Labels as (N,), or one per token as (N, n), or (tokens,) of a batch."""
    if isinstance(targets, SequenceBatch):
        return targets.values[:, 0]
    array = np.asarray(targets)
    return array[..., 0] if array.ndim > 1 + (mode != "last") else array


def _coded(mode: str, code: Callable[[NDArray], NDArray], targets: Any) -> Any:
    coded = code(_labels(targets, mode))
    if not isinstance(targets, SequenceBatch):
        return coded
    return checked_before(coded[:, None] if coded.ndim == 1 else coded, targets.offsets)
