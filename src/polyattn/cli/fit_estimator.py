"""``polyattn fit --classify``, ``--scale`` and ``--impute``: an estimator, with steps before it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import GivenData
from polyattn.cli.estimator_data import estimator_data
from polyattn.cli.estimator_options import Wanted
from polyattn.cli.tables import Grid
from polyattn.display import plain
from polyattn.errors import InvalidInput
from polyattn.estimators.base import LinearEstimator
from polyattn.estimators.description import described, labels_in_words
from polyattn.sources import Source


def fit_estimator(
    given: GivenData,
    form: pa.Form | None,
    wanted: Wanted,
    options: dict[str, Any],
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit, print what was found and how good it is on these data, and save it."""
    model = _model(wanted, form, options)
    start = time.perf_counter()
    with console.working("reading the data"):
        mode = "last" if form is None else form.mode
        data = estimator_data(given, mode, wanted.classify, wanted.impute is not None)
    read = time.perf_counter()
    X = data["X"]
    with console.passes("solving for the optimum", X if isinstance(X, Source) else None):
        steps, prepared = _prepared(data, wanted)
        model.fit(**prepared)
    times = {"reading_seconds": read - start, "seconds": time.perf_counter() - read}
    fitted = _pipeline(steps, model) if steps else model
    content = described(fitted).to_dict() | times
    text = _proportion(model, prepared, content)
    included = ", reading included" if isinstance(X, Source) else ""
    rows = {} if included else {"time to read": f"{times['reading_seconds']:.3g} s"}
    rows |= {"time to fit": f"{times['seconds']:.3g} s{included}"}
    rows |= console.saved(fitted, output, content, "model")
    text = [*console.shown(described(fitted), rows, numbers=False), *text]
    console.emit(plain(content), text, as_json)


def _model(wanted: Wanted, form: pa.Form | None, options: dict[str, Any]) -> LinearEstimator:
    """The estimator, not fitted yet; one of classes sees a constant unless a form says more."""
    plain_form = form is None or form.is_plain
    layer: dict[str, Any] = {"form": form}
    if plain_form:
        layer = {"mode": "last" if form is None else form.mode}
        layer["bias"] = wanted.classify or (form is not None and form.bias)
    if wanted.classify:
        return pa.LinearAttentionClassifier(**layer, **options)
    if options.pop("loss") != "squared":
        raise InvalidInput(f"--loss logistic beside {wanted.option} needs --classify.")
    if options["ridge"] is None:
        options["ridge"] = 0.0
    return pa.LinearAttentionRegressor(**layer, **options)


def _prepared(data: dict[str, Any], wanted: Wanted) -> tuple[list[Any], dict[str, Any]]:
    """The steps before the estimator, fitted, and the data after them."""
    steps: list[Any] = []
    X = data["X"]
    if wanted.impute is not None:
        steps.append(pa.SequenceImputer(wanted.impute).fit(X))
        X = steps[-1].transform(X)
    if wanted.scale:
        steps.append(pa.SequenceScaler().fit(X, sample_weight=data.get("sample_weight")))
        X = steps[-1].transform(X)
    return steps, data | {"X": X}


def _pipeline(steps: list[Any], model: LinearEstimator) -> Any:
    """All steps as one, under names that scikit-learn's parameters can be given by."""
    from sklearn.pipeline import Pipeline

    names = {pa.SequenceImputer: "imputer", pa.SequenceScaler: "scaler"}
    return Pipeline([*((names[type(step)], step) for step in steps), ("model", model)])


def _proportion(
    model: LinearEstimator, data: dict[str, Any], content: dict[str, Any]
) -> list[str | Grid]:
    """How good the fit is on its own data, beside a prediction that looks at nothing."""
    if not isinstance(model, pa.LinearAttentionClassifier):
        with console.passes("predicting the same data"):
            content["r2"] = float(model.score(**data))
        return [f"R^2 on these data: {content['r2']:.4g} (the mean of the targets has 0)."]
    right, largest = model.training_accuracy_, model.majority_share_
    if right is None or largest is None:
        return []
    frequent = f"the most frequent of {labels_in_words(model.classes_)} is {largest:.1%} of them"
    return [f"Of these data {right:.1%} are labelled rightly; {frequent}."]
