"""The rules of scikit-learn restated for sequences: every check runs on every case.

scikit-learn's own ``check_estimator`` gives two-dimensional X only, and so is run with sequences of
one token (test_estimator_sklearn_checks.py).  Here X has shape (n_sequences, n_tokens, n_dims).
"""

import copy

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import polyattn as pa
from estimator_cases import CLASSIFIER, DIMS, REGRESSOR, N, planted_labels, planted_numbers
from polyattn.errors import InvalidInput, InvalidType

CASES = {
    "regressor": (REGRESSOR(ridge=1e-3), *planted_numbers("last")),
    "regressor, two outputs": (REGRESSOR(ridge=1e-3, bias=True), *planted_numbers("last", 2)),
    "regressor, causal": (REGRESSOR(ridge=1e-3, mode="causal"), *planted_numbers("causal")),
    "regressor of a form": (
        REGRESSOR(ridge=1e-3, form=pa.Form(decay=0.9, mean=True, skip=True)),
        *planted_numbers("last"),
    ),
    "regressor, one head": (REGRESSOR(ridge=1e-3, n_heads=1), *planted_numbers("last", 2)),
    "classifier, text": (CLASSIFIER(ridge=10.0), *planted_labels("last", ["down", "up"])),
    "classifier, three": (CLASSIFIER(ridge=10.0), *planted_labels("last", [3, 5, 9])),
    "classifier, full": (
        CLASSIFIER(ridge=10.0, mode="full"),
        *planted_labels("full", ["a", "b", "c"]),
    ),
}


def _same(first, second, tolerance=1e-9):
    """Predictions in any form are equal: labels exactly, numbers up to rounding."""
    if isinstance(first, list) or isinstance(second, list):
        return all(_same(a, b, tolerance) for a, b in zip(first, second, strict=True))
    if first.dtype.kind == "f":
        return first.shape == second.shape and np.allclose(first, second, tolerance, tolerance)
    return np.array_equal(first, second)


def check_parameters_are_only_stored(estimator, _X, _y):
    marker = object()
    for name in estimator.get_params():
        made = type(estimator)(**{name: marker})
        assert getattr(made, name) is marker
        assert clone(estimator).set_params(**{name: marker}).get_params()[name] is marker


def check_fit_returns_itself_and_keeps_parameters(estimator, X, y):
    before = estimator.get_params()
    assert estimator.fit(X, y) is estimator
    assert estimator.get_params() == before
    assert clone(estimator).get_params() == before
    assert estimator.n_features_in_ == DIMS


def check_unfitted_use_is_refused(estimator, X, y):
    questions = ["predict", "decision_function"] if is_classifier(estimator) else ["predict"]
    for name in questions:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(estimator, name)(X)
    with pytest.raises(NotFittedError):
        estimator.score(X, y)
    for name in ("result_", "coef_", "layer_", "outcome_", "n_features_in_", "n_outputs_"):
        assert not hasattr(estimator, name)


def check_data_are_left_alone(estimator, X, y):
    X_before, y_before = X.copy(), y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    estimator.fit(X, y).score(X, y)
    assert np.array_equal(X, X_before)
    assert np.array_equal(y, y_before)


def check_fitting_again_forgets(estimator, X, y):
    wider = np.concatenate([X, X[..., :1] ** 2], axis=2)
    other = clone(estimator).fit(X, y)
    estimator.fit(wider, y).fit(X, y)
    assert estimator.n_features_in_ == DIMS
    assert _same(estimator.predict(X), other.predict(X), 0.0)


def check_questions_change_nothing(estimator, X, y):
    estimator.fit(X, y)
    before = dict(vars(estimator))
    estimator.predict(X)
    estimator.score(X, y)
    _ = estimator.layer_, estimator.coef_, estimator.outcome_
    assert vars(estimator) == before


def check_all_forms_of_sequences_agree(estimator, X, y):
    forms = [X, list(X), pa.SequenceBatch.from_array(X), np.asfortranarray(X), X.tolist()]
    expected = estimator.fit(X, y).predict(X)
    for form in forms:
        assert _same(clone(estimator).fit(form, y).predict(form), expected)
        assert estimator.score(form, y) == pytest.approx(estimator.score(X, y))


def check_predictions_have_the_form_of_y(estimator, X, y):
    predicted = estimator.fit(X, y).predict(X)
    assert predicted.shape == y.shape
    assert predicted.dtype.kind == y.dtype.kind


def check_predictions_are_made_one_by_one(estimator, X, y):
    estimator.fit(X, y)
    everything = estimator.predict(X)
    assert _same(estimator.predict(X[7:9]), everything[7:9])
    assert _same(estimator.predict(X[::-1]), everything[::-1])


def check_order_of_sequences_is_irrelevant(estimator, X, y):
    order = np.random.default_rng(3).permutation(len(X))
    expected = clone(estimator).fit(X, y).coef_
    assert _same(estimator.fit(X[order], y[order]).coef_, expected, 1e-7)


def check_weights_count_sequences(estimator, X, y):
    counts = np.random.default_rng(4).integers(0, 3, len(X))
    repeated = np.repeat(np.arange(len(X)), counts)
    expected = clone(estimator).fit(X[repeated], y[repeated]).coef_
    assert _same(estimator.fit(X, y, sample_weight=counts).coef_, expected, 1e-7)
    weighted = estimator.score(X, y, sample_weight=counts)
    assert weighted == pytest.approx(estimator.score(X[repeated], y[repeated]))
    assert _same(
        clone(estimator).fit(X, y, sample_weight=np.ones(len(X))).coef_,
        clone(estimator).fit(X, y).coef_,
    )


def check_streaming_equals_fitting(estimator, X, y):
    expected = clone(estimator).fit(X, y).predict(X)
    first = {"classes": np.unique(y)} if is_classifier(estimator) else {}
    for start in range(0, N, 30):
        part = slice(start, start + 30)
        assert estimator.partial_fit(X[part], y[part], **first) is estimator
        first = {}
    assert _same(estimator.predict(X), expected, 1e-6)
    before = dict(vars(estimator))
    estimator.predict(X)
    assert vars(estimator) == before


def check_copies_predict_the_same(estimator, X, y):
    estimator.fit(X, y)
    assert _same(copy.deepcopy(estimator).predict(X), estimator.predict(X), 0.0)


def check_the_score_is_meaningful(estimator, X, y):
    scores = cross_val_score(estimator, X, y, cv=KFold(3))
    assert scores.shape == (3,)
    assert np.all(scores > 0.4)
    assert np.allclose(cross_val_score(estimator, list(X), y, cv=KFold(3)), scores)


def check_pipelines_and_searches_work(estimator, X, y):
    pipe = make_pipeline(FunctionTransformer(np.negative), estimator)
    step = type(estimator).__name__.lower()
    grid = {f"{step}__ridge": [estimator.ridge, 1e9]}
    search = GridSearchCV(pipe, grid, cv=KFold(3)).fit(X, y)
    # A large ridge shrinks predictions; the order of scores, and so accuracy, may survive it.
    assert search.best_params_ == {f"{step}__ridge": estimator.ridge} or is_classifier(estimator)
    assert search.best_score_ > 0.4
    assert search.predict(X).shape == y.shape
    weights = {f"{step}__sample_weight": np.ones(len(X))}
    assert _same(pipe.fit(X, y, **weights).predict(X), clone(estimator).fit(-X, y).predict(-X))


def check_tags_say_three_axes(estimator, _X, _y):
    tags = get_tags(estimator)
    assert tags.input_tags.three_d_array
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required
    assert is_classifier(estimator) != is_regressor(estimator)


def check_bad_input_is_named(estimator, X, y):
    for bad, pattern in (
        (X[0], r"table of shape \(5, 3\).*X\[None\]"),
        (X[:0], "empty"),
        (X[:, :0], "zero tokens"),
        (np.where(X > 2, np.nan, X), "NaN"),
        (X.astype(str), "text"),
        (X * 1j, "complex"),
        (np.full(X.shape, None), "objects"),
        ([X[0], X[1][:, :2]], r"X\[0\] has 3, X\[1\] has 2"),
        (X[:-1], f"X has {N - 1} sequences"),
    ):
        with pytest.raises((InvalidInput, InvalidType), match=pattern):
            clone(estimator).fit(bad, y)
    estimator.fit(X, y)
    for method in (estimator.predict, lambda Z: estimator.score(Z, y)):
        with pytest.raises(InvalidInput, match="3 coordinates; got 2"):
            method(X[..., :2])
        with pytest.raises(InvalidInput, match="table of shape"):
            method(X[:, 0])


def check_bad_parameters_are_named(estimator, X, y):
    for wrong, pattern in (
        ({"mode": "first"}, "mode must be one of|mode was given beside a form"),
        ({"ridge": -1.0}, "ridge must be finite and not negative"),
        ({"ridge": "cv"}, "ridge must be"),
        ({"n_heads": 0}, "n_heads"),
        ({"solver": "newton"}, "solver must be one of"),
    ):
        broken = clone(estimator).set_params(**wrong)
        first = {"classes": np.unique(y)} if is_classifier(estimator) else {}
        with pytest.raises((InvalidInput, InvalidType), match=pattern):
            broken.fit(X, y)
        with pytest.raises((InvalidInput, InvalidType), match=pattern):
            broken.partial_fit(X, y, **first)


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, case):
    estimator, X, y = CASES[case]
    check(clone(estimator), X.copy(), y.copy())


def test_there_are_checks():
    assert len(CHECKS) >= 18
