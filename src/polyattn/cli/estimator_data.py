"""DATA as estimators take them: targets or labels, in chunks or in memory, with gaps to fill."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from polyattn.cli import console
from polyattn.cli.data import GivenData, require_memory
from polyattn.cli.models import FittedEstimator
from polyattn.errors import InvalidInput
from polyattn.estimators.labels import as_labels, encode, indicators
from polyattn.estimators.source_labels import source_labels, with_codes
from polyattn.quoting import shown
from polyattn.sources import Source
from polyattn.sources.collected import collected


def estimator_data(
    given: GivenData, mode: str, labels: bool, missing: bool = False, in_memory: bool = False
) -> dict[str, Any]:
    """X, y, sample_weight and context as ``fit`` of an estimator takes them; X alone as a source.

    labels : whether targets are labels of classes
    missing : whether tokens may be NaN, which only data in memory can
    """
    arrays = given.whole_arrays(missing)
    if arrays is not None:
        targets = arrays.arrays["Y"] if labels else arrays.targets(mode)
        return {"X": arrays.sequences(), "y": targets}
    source = given.source(targets=True)
    if not (missing or in_memory):
        return {"X": source}
    if missing:
        source = source.with_missing()
    require_memory(source, "--impute" if missing else "a page")
    return _held(source, mode, labels)


def audited_data(given: GivenData, fitted: FittedEstimator) -> dict[str, Any]:
    """X and Y as ``audit`` takes them, after the steps of a pipeline; labels as indicators."""
    classes = fitted.classes
    data = estimator_data(given, fitted.mode, classes is not None, fitted.fills_gaps)
    X, y = fitted.prepared(data["X"]), data.pop("y", None)
    if classes is None:
        return data | {"X": X, "Y": y}
    codes = partial(indicators, classes=classes)
    if isinstance(X, Source):
        require_known(source_labels(X, fitted.mode), classes)
        n_outputs = 1 if len(classes) == 2 else len(classes)
        return {"X": with_codes(X, fitted.mode, codes, n_outputs)}
    labels = as_labels(y, fitted.mode)
    require_known(np.concatenate(labels) if isinstance(labels, list) else labels, classes)
    return data | {"X": X, "Y": codes(labels)}


def require_known(labels: Any, classes: Any) -> None:
    """Refuse labels that a classifier has never seen."""
    found = np.unique(labels)
    unknown = [each for each in found.tolist() if each not in classes.tolist()]
    if unknown:
        raise InvalidInput(
            f"DATA hold labels that MODEL does not know: {shown(unknown)}; its classes are "
            f"{shown(classes.tolist())}. Leave their sequences out, or fit again."
        )


def _held(source: Source, mode: str, labels: bool) -> dict[str, Any]:
    """All of a source in memory."""
    classes = source_labels(source, mode) if labels else None
    if classes is not None:
        source = with_codes(source, mode, partial(encode, classes=classes), 1)
    with console.passes("reading the data", source):
        held = collected(source, mode)
    y: Any = held.targets
    if classes is not None:
        codes = np.asarray(getattr(y, "values", y))[:, 0].astype(np.int64)
        y = classes[codes]
        if mode != "last":
            y = np.split(y, held.batch.offsets[1:-1])
    beside = {"sample_weight": held.weights, "context": held.context}
    known = {name: each for name, each in beside.items() if each is not None}
    return {"X": held.batch, "y": y} | known
