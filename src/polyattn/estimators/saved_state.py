"""What estimators learned, in files: results, sums, labels, means; nothing is fitted again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate
from polyattn.certify.document import from_document, to_document
from polyattn.estimators.base import LinearEstimator
from polyattn.estimators.classifier import LinearAttentionClassifier
from polyattn.estimators.fitted_state import FittedState
from polyattn.estimators.imputer import SequenceImputer
from polyattn.estimators.regressor import SoftmaxAttentionRegressor
from polyattn.estimators.saved_labels import labels_from_dict, labels_to_dict
from polyattn.estimators.scaler import SequenceScaler
from polyattn.files.fields import (
    any_object,
    array,
    entries,
    flag,
    integer,
    listed,
    number,
    one_of,
    require,
)
from polyattn.files.records import Record
from polyattn.fitting.fit_file import STATISTICS
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.numerics.coordinate_sums import CoordinateSums
from polyattn.softmax import LearnedSoftmax
from polyattn.solve.log_loss import PER_OUTPUT
from polyattn.stats import Moments

Arrays = dict[str, NDArray]

FITS = {kind.kind: kind for kind in (FitResult, OneHotFit)}
SUMS = ("mean", "std", "low", "high")

# The smallest weight that is one.
SMALLEST = float(np.nextafter(0.0, 1.0))

# What is known of the data, beside the result.
EVIDENCE = {"moments": any_object, "certificate": any_object}
LINEAR = entries(
    {
        "result": entries({"kind": one_of(tuple(FITS)), "metadata": any_object}),
        "plain": flag,
        # Whether ``partial_fit`` goes on with the sums of the result.
        "goes_on": flag,
    },
    {"evidence": entries({}, EVIDENCE), "classes": any_object, "multilabel": flag},
)
SOFTMAX = entries({"result": any_object, "plain": flag})
SCALER = entries({"weight": number(SMALLEST), "n_tokens": integer(1), "n_sequences": integer(1)})
IMPUTER = entries({"indicator_features": listed(integer(0))})


def state_to_record(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Named arrays and plain data of a fitted estimator; after ``partial_fit`` this solves."""
    if isinstance(estimator, SequenceScaler):
        sums = estimator._sums
        counts = {"n_tokens": sums.n_tokens, "n_sequences": estimator.n_sequences_seen_}
        return {name: getattr(sums, name) for name in SUMS}, {"weight": sums.weight} | counts
    if isinstance(estimator, SequenceImputer):
        features = estimator.indicator_features_.tolist()
        return {"statistics": estimator.statistics_}, {"indicator_features": features}
    if isinstance(estimator, SoftmaxAttentionRegressor):
        record = estimator.result_.to_record()
        return record.arrays, {"result": record.metadata, "plain": estimator._plain}
    return _linear_state(estimator)


def restore_state(estimator: Any, arrays: Arrays, content: dict[str, Any], where: str) -> None:
    """Make a new estimator what the saved one was: the inverse of ``state_to_record``."""
    if isinstance(estimator, SequenceScaler):
        _restore_scaler(estimator, arrays, content, where)
    elif isinstance(estimator, SequenceImputer):
        _restore_imputer(estimator, arrays, content, where)
    elif isinstance(estimator, SoftmaxAttentionRegressor):
        SOFTMAX(content, where)
        record = Record(LearnedSoftmax.kind, arrays, content["result"])
        result = estimator.result_ = LearnedSoftmax.from_record(record)
        _restore_sizes(estimator, result.layer.n_dims, result.layer.n_outputs, content["plain"])
    else:
        _restore_linear(estimator, arrays, content, where)


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays under longer names."""
    return {f"{prefix}{name}": each for name, each in arrays.items()}


def without_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays that ``with_prefix`` named so."""
    return {
        name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)
    }


def _linear_state(estimator: LinearEstimator) -> tuple[Arrays, dict[str, Any]]:
    state, result = estimator._state, estimator.result_
    record = result.to_record()
    content: dict[str, Any] = {
        "result": {"kind": record.kind, "metadata": record.metadata},
        "plain": estimator._plain,
        "goes_on": state.statistics is not None,
    }
    arrays = with_prefix("result.", record.arrays)
    if isinstance(state.evidence, Certificate):
        content["evidence"] = {"certificate": to_document(state.evidence)}
    elif state.evidence is not None and state.evidence is not result.statistics:
        sums = state.evidence.to_record()
        content["evidence"] = {"moments": sums.metadata}
        arrays |= with_prefix("evidence.", sums.arrays)
    if isinstance(estimator, LinearAttentionClassifier):
        content["classes"] = labels_to_dict(estimator.classes_)
        if estimator.multilabel_:
            content["multilabel"] = True
    return arrays, content


def _restore_linear(
    estimator: LinearEstimator, arrays: Arrays, content: dict[str, Any], where: str
) -> None:
    LINEAR(content, where)
    known = ("result.", "evidence.")
    strange = [name for name in arrays if not name.startswith(known)]
    require(not strange, "arrays", "those of the result and of what is known beside it", strange)
    stored = content["result"]
    record = Record(stored["kind"], without_prefix("result.", arrays), stored["metadata"])
    result = FITS[record.kind].from_record(record)
    sums = result.statistics if content["goes_on"] else None
    fits = not content["goes_on"] or (sums is not None and result.loss == "squared")
    require(fits, f"{where}.goes_on", "false where the result has no sums of targets", True)
    state = FittedState(sums)
    state.result = result
    state.evidence = _evidence(content.get("evidence", {}), arrays, result, where)
    if state.evidence is None and sums is None and isinstance(result.statistics, Moments):
        state.evidence = result.statistics
    estimator._state = state
    _restore_sizes(estimator, result.n_dims, result.n_outputs, content["plain"])
    if isinstance(estimator, LinearAttentionClassifier):
        _restore_classes(estimator, content, where)
    else:
        require("classes" not in content, where, "a regressor, which has no classes", "classes")


def _evidence(content: dict[str, Any], arrays: Arrays, result: FitResult, where: str) -> Any:
    """What is known of the data beside the result: sums of the same layer, or a certificate."""
    inner = without_prefix("evidence.", arrays)
    if "moments" not in content:
        require(not inner, "arrays", "those of the result alone", list(inner))
    if "certificate" in content:
        found: Any = from_document(content["certificate"])
    elif "moments" in content:
        found = STATISTICS["moments"].from_record(Record("moments", inner, content["moments"]))
    else:
        return None
    require(found.layout == result.layout, f"{where}.evidence", "that of the same layer", "another")
    return found


def _restore_classes(
    estimator: LinearAttentionClassifier, content: dict[str, Any], where: str
) -> None:
    require("classes" in content, where, "a classifier with its classes", "none")
    classes = labels_from_dict(content["classes"], f"{where}.classes")
    several = content.get("multilabel", False)
    wanted = 1 if len(classes) == 2 and not several else len(classes)
    outputs = estimator.n_outputs_
    require(outputs == wanted, f"{where}.classes", f"those of {outputs} outputs", len(classes))
    numbered = not several or classes.tolist() == list(range(outputs))
    require(numbered, f"{where}.classes", "the numbers of labels", classes.tolist())
    loss = estimator.result_.loss
    fits = loss == "squared" or several == (loss == PER_OUTPUT)
    require(fits, f"{where}.multilabel", f"what the loss of the result, {loss}, says", several)
    plain, alone = content["plain"], len(classes) == 2 and not several
    require(plain == alone, f"{where}.plain", "true where there are two classes", plain)
    estimator._remember(classes, several)


def _restore_sizes(estimator: Any, n_dims: int, n_outputs: int, plain: bool) -> None:
    estimator.n_features_in_, estimator.n_outputs_ = n_dims, n_outputs
    estimator._plain = plain
    require(n_outputs == 1 or not plain, "plain", "false where there are several outputs", plain)


def _restore_scaler(
    scaler: SequenceScaler, arrays: Arrays, content: dict[str, Any], where: str
) -> None:
    SCALER(content, where)
    n_dims = max(1, arrays["mean"].size) if "mean" in arrays else 1
    checks = {name: array((n_dims,)) for name in SUMS} | {"std": array((n_dims,), least=0.0)}
    entries(checks)(arrays, "arrays")
    mean, std, low, high = (arrays[name] for name in SUMS)
    counts = content["n_sequences"] <= content["n_tokens"]
    require(counts, f"{where}.n_sequences", "at most n_tokens", content["n_sequences"])
    inside = bool(np.all((low <= mean) & (mean <= high)))
    require(inside, "arrays.mean", "between low and high", "others")
    sums = CoordinateSums(float(content["weight"]), mean, std, low, high, content["n_tokens"])
    scaler._remember(sums, content["n_sequences"])


def _restore_imputer(
    imputer: SequenceImputer, arrays: Arrays, content: dict[str, Any], where: str
) -> None:
    IMPUTER(content, where)
    n_dims = max(1, arrays["statistics"].size) if "statistics" in arrays else 1
    entries({"statistics": array((n_dims,))})(arrays, "arrays")
    features = content["indicator_features"]
    ascending = features == sorted(set(features)) and (not features or features[-1] < n_dims)
    name = f"{where}.indicator_features"
    require(ascending, name, f"numbers of {n_dims} coordinates in ascending order", features)
    imputer.statistics_, imputer.n_features_in_ = arrays["statistics"], n_dims
    imputer.indicator_features_ = np.array(features, dtype=np.intp)
