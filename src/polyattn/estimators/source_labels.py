"""Labels of a source: texts or numbers of classes, which are looked at chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.sources.source import Source, TokenLabels
from polyattn.sources.views import OtherTargets


def source_labels(source: Source, mode: str) -> NDArray:
    """The sorted distinct labels of all chunks.  Cost: one pass of reading."""
    if source.n_outputs_in(mode) != 1:
        raise InvalidInput(
            "a source of labels holds one for each predicted position; this one has "
            f"{source.n_outputs_in(mode)} targets for each."
        )
    found: list[NDArray] = []
    for chunk in source.labelled().chunks:
        data = chunk.read(mode)
        if data is not None:
            own = np.unique(_labels(data.targets, mode))
            _require_one_kind([*found, own])
            found = [np.unique(np.concatenate([*found, own]))]
    if not found:
        raise InvalidInput("the source holds no sequence; at least one is needed.")
    return found[0]


def with_codes(
    source: Source, mode: str, code: Callable[[NDArray], NDArray], n_outputs: int
) -> Source:
    """The source with a function of its labels as targets, of so many outputs."""
    return OtherTargets(source.labelled(), partial(_coded, mode, code), n_outputs)


def _labels(targets: Any, mode: str) -> NDArray:
    """Labels as (N,), or one per token as (N, n), or (tokens,) of a batch."""
    if isinstance(targets, TokenLabels):
        return targets.values
    if isinstance(targets, SequenceBatch):
        return _whole(targets.values[:, 0])
    array = np.asarray(targets)
    return _whole(array[..., 0] if array.ndim > 1 + (mode != "last") else array)


def _whole(labels: NDArray) -> NDArray:
    """Labels that are no fractions."""
    if labels.dtype.kind == "f" and np.any(labels != np.round(labels)):
        some = float(labels[labels != np.round(labels)][0])
        raise InvalidInput(
            f"the labels must be texts, integers or booleans; got {some:g}, a fraction. "
            "Regression predicts such numbers, without classes."
        )
    return labels


def _require_one_kind(parts: list[NDArray]) -> None:
    if len({part.dtype.kind == "U" for part in parts}) > 1:
        raise InvalidType(
            "the labels must be all texts or all numbers; they are numbers in one part of the "
            "data and texts in another."
        )


def _coded(mode: str, code: Callable[[NDArray], NDArray], targets: Any) -> Any:
    coded = code(_labels(targets, mode))
    if not isinstance(targets, SequenceBatch | TokenLabels):
        return coded
    return checked_before(coded[:, None] if coded.ndim == 1 else coded, targets.offsets)
