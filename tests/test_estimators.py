"""The scikit-learn estimators: conformance checks for sequences, then what is special to each.

scikit-learn's own ``check_estimator`` gives two-dimensional X only, so its rules are restated
here for X of shape (n_sequences, n_tokens, n_dims) and every check runs on every case.
"""

import copy

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

N, LENGTH, DIMS = 90, 5, 3


def _tokens(seed=0, n=N):
    return np.random.default_rng(seed).standard_normal((n, LENGTH, DIMS))


def _numbers(mode, n_outputs=1):
    """Outputs of a planted layer with some noise, without an output axis where there is one."""
    X = _tokens()
    Y = pa.data.random_layer(DIMS, n_outputs, 2, mode, random_state=1)(X)
    Y = Y + 0.05 * np.random.default_rng(2).standard_normal(Y.shape)
    return X, Y[..., 0] if n_outputs == 1 else Y


def _labels(mode, names):
    """The class whose planted output is the largest."""
    X, Y = _numbers(mode, len(names))
    return X, np.array(names)[np.argmax(Y, axis=-1)]


REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier

CASES = {
    "regressor": (REGRESSOR(ridge=1e-3), *_numbers("last")),
    "regressor, two outputs": (REGRESSOR(ridge=1e-3, bias=True), *_numbers("last", 2)),
    "regressor, causal": (REGRESSOR(ridge=1e-3, mode="causal"), *_numbers("causal")),
    "regressor, one head": (REGRESSOR(ridge=1e-3, n_heads=1), *_numbers("last", 2)),
    "classifier, text": (CLASSIFIER(ridge=10.0), *_labels("last", ["down", "up"])),
    "classifier, three": (CLASSIFIER(ridge=10.0), *_labels("last", [3, 5, 9])),
    "classifier, full": (CLASSIFIER(ridge=10.0, mode="full"), *_labels("full", ["a", "b", "c"])),
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
        (X.astype(object), "objects"),
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
        ({"mode": "first"}, "mode must be one of"),
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


# Regressor


def test_regressor_recovers_a_planted_layer():
    task = pa.data.planted(200, (2, 9), 4, n_heads=2, mode="full", random_state=5)
    model = REGRESSOR(mode="full").fit(task.X, task.Y)
    assert pa.same_function(model.layer_, task.layer)
    assert model.layer_.n_heads == 2
    assert model.score(task.X, task.Y) == pytest.approx(1.0)
    assert model.outcome_.name == "unique"
    assert model.n_outputs_ == 4


def test_regressor_score_is_r2_of_all_positions():
    X, Y = _numbers("causal", 2)
    model = REGRESSOR(mode="causal", ridge=3.0).fit(X, Y)
    weights = np.arange(N) + 1.0
    expected = r2_score(
        Y.reshape(-1, 2), model.predict(X).reshape(-1, 2), sample_weight=np.repeat(weights, LENGTH)
    )
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(expected)


def test_regressor_forms_of_targets():
    X, y = _numbers("last")
    assert REGRESSOR().fit(X, y).predict(X).shape == (N,)
    assert REGRESSOR().fit(X, y[:, None]).predict(X).shape == (N, 1)
    assert REGRESSOR().fit(X, y.tolist()).predict(X).shape == (N,)
    X, y = _numbers("full")
    model = REGRESSOR(mode="full").fit(list(X), list(y))
    assert [p.shape for p in model.predict(list(X))] == [(LENGTH,)] * N
    assert model.predict(X).shape == (N, LENGTH)
    assert REGRESSOR(mode="full").fit(X, y[..., None]).predict(X).shape == (N, LENGTH, 1)


def test_cross_validation_of_ragged_sequences():
    task = pa.data.planted(60, (2, 8), 3, mode="causal", random_state=6)
    ragged, targets = list(task.X), task.Y
    model = REGRESSOR(mode="causal")
    for X in (ragged, task.X):
        assert np.allclose(cross_val_score(model, X, targets, cv=3), 1.0)
    search = GridSearchCV(model, {"ridge": [0.0, 1.0], "bias": [False, True]}, cv=3)
    assert search.fit(ragged, targets).best_params_["ridge"] == 0.0
    last = [layer_output[-1] for layer_output in targets]
    assert np.allclose(cross_val_score(REGRESSOR(), ragged, np.array(last), cv=3), 1.0)
    assert cross_val_predict(REGRESSOR(), ragged, np.array(last), cv=3).shape == (60, 3)


def test_parallel_cross_validation():
    X, y = _numbers("last")
    expected = cross_val_score(REGRESSOR(), X, y, cv=2)
    assert np.allclose(cross_val_score(REGRESSOR(), X, y, cv=2, n_jobs=2), expected)


def test_streaming_is_lazy_and_continues_after_fit():
    X, y = _numbers("last", 2)
    model = REGRESSOR().fit(X[:60], y[:60])
    first = model.result_
    rows = first.statistics.n_rows
    model.partial_fit(X[60:], y[60:])
    assert first.statistics.n_rows == rows == 60
    assert "result" not in vars(model._state)
    assert model.result_.statistics.n_rows == N
    assert np.allclose(model.coef_, REGRESSOR().fit(X, y).coef_)
    handed_out = model.result_
    model.partial_fit(X, y)
    assert handed_out.statistics.n_rows == N
    assert model.result_.statistics.n_rows == 2 * N


def test_parameters_count_from_the_call_that_saw_them():
    X, y = _numbers("last")
    model = REGRESSOR(ridge=1.0).partial_fit(X, y)
    model.set_params(ridge=0.0)
    assert model.result_.ridge == 1.0
    assert model.partial_fit(X, y).result_.ridge == 0.0


def test_streaming_by_triangular_factors_and_chosen_ridge():
    X, y = _numbers("last")
    expected = REGRESSOR().fit(X, y).coef_
    direct = REGRESSOR(solver="direct").partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert isinstance(direct.result_.statistics, pa.TriangularFactor)
    assert np.allclose(direct.coef_, expected)
    chosen = REGRESSOR(ridge="gcv").partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert chosen.result_.ridge == pytest.approx(REGRESSOR(ridge="gcv").fit(X, y).result_.ridge)
    heads = REGRESSOR(n_heads=1).partial_fit(X, y)
    assert heads.layer_.n_heads == 1
    assert heads.result_.gap >= 0


@pytest.mark.parametrize(
    ("parameters", "pattern"),
    [
        ({"ridge": "loo"}, "ridge='gcv'"),
        ({"solver": "dual"}, "'auto', 'primal' or 'direct'"),
        ({"solver": "iterative"}, "'auto', 'primal' or 'direct'"),
        ({"solver": "direct", "ridge": "gcv"}, "solver='primal'"),
    ],
)
def test_what_cannot_stream_is_refused_at_once(parameters, pattern):
    X, y = _numbers("last")
    with pytest.raises(InvalidInput, match=pattern):
        REGRESSOR(**parameters).partial_fit(X, y)


def test_what_cannot_continue_is_refused():
    X, y = _numbers("last")
    with pytest.raises(InvalidInput, match="'dual', which keeps no sums"):
        REGRESSOR(solver="dual").fit(X, y).set_params(solver="auto").partial_fit(X, y)
    model = REGRESSOR().partial_fit(X, y)
    with pytest.raises(InvalidInput, match="mode, bias, form or solver changed"):
        model.set_params(bias=True).partial_fit(X, y)
    model.set_params(bias=False)
    with pytest.raises(InvalidInput, match="3 coordinates; got 2"):
        model.partial_fit(X[..., :2], y)
    with pytest.raises(InvalidInput, match="1 output; got 2"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    assert model.result_.statistics.n_rows == N


# Classifier


def test_classifier_is_least_squares_on_indicators():
    X, y = _labels("last", ["a", "b", "c"])
    model = CLASSIFIER(ridge=0.5).fit(X, y)
    targets = (y[:, None] == np.array(["a", "b", "c"])).astype(float)
    assert np.allclose(model.coef_, pa.fit(X, targets, ridge=0.5, bias=True).coef)
    assert np.allclose(model.decision_function(X), model.layer_(X))
    assert np.array_equal(model.predict(X), model.classes_[np.argmax(model.layer_(X), axis=1)])


def test_two_classes_need_one_column():
    X, y = _labels("last", ["no", "yes"])
    model = CLASSIFIER(ridge=0.5).fit(X, y)
    assert model.n_outputs_ == 1
    assert model.decision_function(X).shape == (N,)
    assert np.array_equal(model.predict(X) == "yes", model.decision_function(X) > 0)
    targets = (y[:, None] == model.classes_).astype(float)
    two = pa.fit(X, targets, ridge=0.5, bias=True).predict(X)
    assert np.allclose(two[:, 1] - two[:, 0], model.decision_function(X))


def test_classifier_scores_accuracy_also_on_unknown_labels():
    X, y = _labels("full", ["a", "b", "c"])
    model = CLASSIFIER(mode="full").fit(X, y)
    weights = np.arange(N) + 1.0
    expected = accuracy_score(
        y.ravel(), model.predict(X).ravel(), sample_weight=np.repeat(weights, LENGTH)
    )
    assert model.score(X, y, sample_weight=weights) == pytest.approx(expected)
    assert model.score(X, np.full(y.shape, "z")) == 0.0


@pytest.mark.parametrize("kind", [bool, np.int8, float, str, object])
def test_kinds_of_labels(kind):
    X, y = _labels("last", [0, 1])
    labels = y.astype(str).astype(object) if kind is object else y.astype(kind)
    model = CLASSIFIER().fit(X, labels)
    assert model.score(X, labels) > 0.8
    assert set(model.predict(X)) <= set(labels)


def test_the_default_ridge_is_chosen_and_probabilities_are_not_claimed():
    X, y = _labels("last", ["no", "yes"])
    model = CLASSIFIER().fit(X, y)
    assert model.result_.ridge > 0
    assert model.result_.ridge_path is not None
    assert not hasattr(model, "predict_proba")


def test_classifier_labels_tokens_of_ragged_sequences():
    task = pa.data.planted(80, (2, 8), 3, n_outputs=1, mode="causal", random_state=7)
    X, y = list(task.X), [np.where(values[:, 0] > 0, "up", "down") for values in task.Y]
    model = CLASSIFIER(mode="causal", ridge=1e-4, bias=False).fit(X, y)
    assert model.score(X, y) > 0.8
    assert [labels.shape for labels in model.predict(X)] == [labels.shape for labels in y]
    assert [scores.shape for scores in model.decision_function(X)] == [v.shape for v in y]
    assert np.all(cross_val_score(model, X, y, cv=KFold(3)) > 0.6)


def test_classes_of_a_stream():
    X, y = _labels("last", [1, 2, 3])
    model = CLASSIFIER(ridge="gcv")
    with pytest.raises(InvalidInput, match="needs classes="):
        model.partial_fit(X, y)
    with pytest.raises(InvalidInput, match=r"not among the classes \[1, 2\]: \[3\]"):
        model.partial_fit(X, y, classes=[1, 2])
    two = y < 3
    model.partial_fit(X[two], y[two], classes=[3, 1, 2]).partial_fit(X[~two], y[~two])
    assert model.classes_.tolist() == [1, 2, 3]
    assert np.allclose(model.coef_, CLASSIFIER(ridge="gcv").fit(X, y).coef_)
    model.partial_fit(X, y, classes=[1, 2, 3])
    with pytest.raises(InvalidInput, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=[1, 2, 4])
    with pytest.raises(InvalidInput, match="ridge='gcv'"):
        CLASSIFIER().partial_fit(X, y, classes=[1, 2, 3])


@pytest.mark.parametrize(
    ("labels", "error", "pattern"),
    [
        (np.zeros(N), InvalidInput, "at least two classes"),
        (np.linspace(0, 1, N), InvalidInput, "fractions"),
        (np.full(N, np.nan), InvalidInput, "NaN"),
        (np.eye(3)[np.arange(N) % 3], InvalidInput, "not indicator columns"),
        (np.arange(N) % 2 + 0j, InvalidType, "complex"),
        (np.array([None, "a"] * (N // 2)), InvalidType, "text, integers or booleans"),
        ([["a"], ["a", "b"]] * (N // 2), InvalidInput, "not rectangular"),
        (["a", "b"], InvalidInput, f"X has {N} sequences but Y has 2"),
    ],
)
def test_bad_labels_are_named(labels, error, pattern):
    with pytest.raises(error, match=pattern):
        CLASSIFIER().fit(_tokens(), labels)


def test_labels_of_another_kind_are_refused():
    X, y = _labels("last", ["no", "yes"])
    with pytest.raises(InvalidType, match="labels must be of one kind"):
        CLASSIFIER().fit(X, y).score(X, np.zeros(N, int))
    tokens = CLASSIFIER(mode="full")
    with pytest.raises(InvalidInput, match="y is empty"):
        tokens.fit(X, [])


# ---------------------------------------------------------------- parameters as in polyattn.fit


def test_the_ridge_is_chosen_from_the_grid():
    X, y = _numbers("last")
    model = pa.LinearAttentionRegressor(ridge="loo", ridge_grid=[3.0, 30.0]).fit(X, y)
    expected = pa.fit(X, y, ridge="loo", ridge_grid=[3.0, 30.0], try_exact=False)
    assert model.result_.ridge == expected.ridge in (3.0, 30.0)
    np.testing.assert_array_equal(model.result_.ridge_path.ridges, [3.0, 30.0])
    stream = pa.LinearAttentionRegressor(ridge="gcv", ridge_grid=[3.0, 30.0]).partial_fit(X, y)
    assert stream.result_.ridge in (3.0, 30.0)
    for wrong in ({"ridge": 1.0, "ridge_grid": [1.0]}, {"ridge": "gcv", "ridge_grid": [0.0, 1.0]}):
        with pytest.raises(InvalidInput, match="ridge_grid"):
            pa.LinearAttentionRegressor(**wrong).partial_fit(X, y)


@pytest.mark.parametrize(
    "given",
    [3, None, np.random.default_rng(0), np.random.RandomState(0)],
    ids=lambda given: type(given).__name__,
)
def test_random_numbers_come_from_anywhere(given):
    X, y = _numbers("last", 2)
    model = pa.LinearAttentionRegressor(n_heads=1, random_state=given).fit(X, y)
    assert isinstance(model.result_.random_state, int)
    assert model.layer_.n_heads == 1
    with pytest.raises(InvalidInput, match="random_state must be"):
        pa.LinearAttentionRegressor(random_state=-1).fit(X, y)


@pytest.mark.parametrize("kind", [pa.LinearAttentionRegressor, pa.SoftmaxAttentionRegressor])
def test_scores_refuse_another_number_of_outputs(kind):
    X, y = _numbers("last")
    model = kind(mode="last").fit(X, y)
    with pytest.raises(InvalidInput, match="1 output; got 2"):
        model.score(X, np.stack([y, y], axis=1))
