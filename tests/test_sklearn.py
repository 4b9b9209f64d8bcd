"""Estimators inside scikit-learn: its own checks, its rules for sequences, what it builds of them.

scikit-learn's ``check_estimator`` gives tables (rows, columns) only: here a row is a sequence of
one token.  docs/conformance.md says how many checks there are, and what takes tables only.
"""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context, ensemble, multioutput
from sklearn import model_selection as ms
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - it is asked for
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import polyattn as pa

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier


class Tables:
    """An estimator that takes tables (rows, columns); the checks give no other X."""

    def _sequences(self, X, reset=False):
        if not reset:
            check_is_fitted(self)
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        return validate_data(self, X, reset=reset, ensure_all_finite=finite)[:, None, :]

    def _labels(self, y):
        """A single column is a mistake that scikit-learn warns of; several are labels at once."""
        single = is_classifier(self) and np.shape(np.asarray(y))[1:] in ((), (1,))
        return column_or_1d(y, warn=True) if single else y

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(self._sequences(X, reset=True), self._labels(y), sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        X = self._sequences(X, reset=not self.__sklearn_is_fitted__())
        return super().partial_fit(X, y, sample_weight=sample_weight)

    def predict(self, X):
        return super().predict(self._sequences(X))

    def score(self, X, y, sample_weight=None):
        return super().score(self._sequences(X), y, sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags


# A fit leaves sums to go on with if it is asked for them.
keeps_sums = available_if(lambda self: self.solver == "primal")
absent = available_if(lambda _: False)


class TableRegressor(Tables, REGRESSOR):
    partial_fit = keeps_sums(Tables.partial_fit)


class TableClassifier(Tables, CLASSIFIER):
    @keeps_sums
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        X = self._sequences(X, reset=not self.__sklearn_is_fitted__())
        return CLASSIFIER.partial_fit(self, X, self._labels(y), classes, sample_weight)

    def decision_function(self, X):
        return super().decision_function(self._sequences(X))

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X):
        return super().predict_proba(self._sequences(X))


class TableScaler(Tables, pa.SequenceScaler):
    predict, score = absent(Tables.predict), absent(Tables.score)

    def transform(self, X):
        return super().transform(self._sequences(X))[:, 0]

    # Ours refuses to give norms back in words; the checks take a method to work if it is there.
    @available_if(lambda self: not self.unit_norm)
    def inverse_transform(self, X):
        return super().inverse_transform(self._sequences(X))[:, 0]


class TableImputer(Tables, pa.SequenceImputer):
    predict, score = absent(Tables.predict), absent(Tables.score)
    partial_fit = absent(Tables.partial_fit)

    def fit(self, X, y=None):
        return pa.SequenceImputer.fit(self, self._sequences(X, reset=True), y)

    def transform(self, X):
        return super().transform(self._sequences(X))[:, 0]


NARROW = pa.Form(key=[0], value=[0], skip=True, intercept=True)
ESTIMATORS = {
    "regressor": TableRegressor(ridge=1e-3, bias=True),
    "regressor, streams": TableRegressor(ridge=1e-3, form=NARROW, solver="primal"),
    "regressor of a form": TableRegressor(ridge=1e-3, form=pa.Form(skip=True, intercept=True)),
    "classifier": TableClassifier(ridge=1.0),
    "classifier, streams": TableClassifier(ridge=1.0, form=NARROW, solver="primal"),
    "classifier by log-loss": TableClassifier(loss="logistic", form=NARROW),
    "scaler": TableScaler(),
    "scaler to norm one": TableScaler(unit_norm=True),
    "imputer": TableImputer(),
    "imputer by medians": TableImputer("median"),
}


def test_all_checks_of_scikit_learn_pass_or_are_said_not_to_apply(monkeypatch):
    """As many as the page says: fewer checks, or one that is skipped, would be seen."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # one check asks for it
    text, run, skipped = PAGE.read_text(encoding="utf-8"), set(), set()
    for name, estimator in ESTIMATORS.items():
        results = check_estimator(estimator, on_skip=None, on_fail=None)
        status = {each["check_name"]: each["status"] for each in results}
        run |= set(status)
        counts = [sum(each["status"] == one for each in results) for one in ("passed", "skipped")]
        failed = [(e["check_name"], e["exception"]) for e in results if e["status"] == "failed"]
        assert failed == [], name
        assert f"| {name} | {counts[0]} | {counts[1]} |" in text
        assert sum(counts) == len(results)
        skipped |= {each for each in status if status[each] == "skipped"}
    known = {
        name for name, function in vars(estimator_checks).items()
        if name.startswith("check_") and getattr(function, "__module__", "").endswith("_checks")
    }  # fmt: skip
    assert set(re.findall(r"`(check_\w+)`", text)) == (known - run) | skipped
    assert f"Those are {len(run)} different checks" in text


N, LENGTH, DIMS = 90, 5, 3
X = np.random.default_rng(0).standard_normal((N, LENGTH, DIMS))


def same(first, second, tolerance=1e-9):
    """Labels exactly, numbers up to rounding."""
    first, second = np.asarray(first), np.asarray(second)
    close = first.dtype.kind == "f" and np.allclose(first, second, tolerance, tolerance)
    assert close or np.array_equal(first, second)


RAGGED = [x[: 2 + i % 4] for i, x in enumerate(X)]
OBJECTS = np.empty(N, dtype=object)
OBJECTS[:] = RAGGED
KINDS = {"array": X, "list": RAGGED, "objects": OBJECTS,
         "batch": pa.SequenceBatch.from_sequences(RAGGED)}  # fmt: skip
LAYER, FOLDS = pa.data.random_layer(DIMS, 1, 2, "last", random_state=1), ms.KFold(3)
NUMBERS = {kind: LAYER(X if kind == "array" else RAGGED)[:, 0] for kind in KINDS}
LABELS = {kind: np.where(y > 0, "up", "down") for kind, y in NUMBERS.items()}
REG, SQUARED = REGRESSOR(ridge=1e-3), CLASSIFIER(ridge=1.0)
LOGISTIC = CLASSIFIER(loss="logistic", ridge=0.1, form=pa.Form(key=[0], skip=True, intercept=True))
GRID = {"ridge": [1e-3, 1e3]}
FORMS = {"form": [pa.Form(decay=0.4), pa.Form()]}
REGRESSORS = {
    "pipeline": make_pipeline(FunctionTransformer(), REG),
    "targets": TransformedTargetRegressor(REG, func=np.negative, inverse_func=np.negative),
    "vote": ensemble.VotingRegressor([("a", REG), ("b", REGRESSOR(ridge=1e-2))]),
    "stack": ensemble.StackingRegressor([("a", REG)], LinearRegression(), cv=FOLDS),
    "grid": ms.GridSearchCV(REG, GRID | FORMS, cv=FOLDS),
    "random": ms.RandomizedSearchCV(REG, GRID, n_iter=2, cv=FOLDS, random_state=0),
    "halving": ms.HalvingGridSearchCV(REG, GRID, cv=FOLDS, min_resources=30),
}  # fmt: skip
CLASSIFIERS = {
    "pipeline": make_pipeline(FunctionTransformer(), SQUARED),
    "calibrated scores": CalibratedClassifierCV(SQUARED, cv=FOLDS),
    "calibrated on all": CalibratedClassifierCV(SQUARED, cv=FOLDS, ensemble=False),
    "calibrated chances": CalibratedClassifierCV(LOGISTIC, cv=FOLDS, method="isotonic"),
    "hard vote": ensemble.VotingClassifier([("a", SQUARED), ("b", LOGISTIC), ("c", SQUARED)]),
    "soft vote": ensemble.VotingClassifier([("a", LOGISTIC), ("b", LOGISTIC)], voting="soft"),
    "stack": ensemble.StackingClassifier([("a", SQUARED)], LogisticRegression(), cv=FOLDS),
    "one against the rest": OneVsRestClassifier(SQUARED),
    "threshold": ms.FixedThresholdClassifier(LOGISTIC, threshold=0.5),
    "tuned": ms.TunedThresholdClassifierCV(LOGISTIC, cv=FOLDS),
}
OF_ARRAYS = ("halving", "tuned")


ORDINARY = X[..., 0] * X[:, :1, 1]
CASES = {
    "numbers": (REG, NUMBERS["array"]),
    "causal": (REGRESSOR(ridge=1e-3, mode="causal"), ORDINARY),
    "form": (REGRESSOR(ridge=1e-3, form=pa.Form(decay=0.9, mean=True, skip=True)), X[:, 0] ** 2),
    "text": (SQUARED, LABELS["array"]),
    "full": (CLASSIFIER(ridge=10.0, mode="full"), np.digitize(ORDINARY, [-0.5, 0.5])),
    "log-loss": (LOGISTIC, LABELS["array"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rules_of_scikit_learn_hold_for_sequences(name):
    estimator, y = CASES[name]
    model, data = clone(estimator), X.copy()
    data.setflags(write=False)
    questions = ("predict", "decision_function", "predict_proba")
    questions = [each for each in questions if hasattr(model, each)]
    for question in questions:
        with pytest.raises(NotFittedError):
            getattr(model, question)(X)
    for attribute in ("result_", "coef_", "layer_", "outcome_", "certificate_", "n_features_in_"):
        assert not hasattr(model, attribute)
    before = model.get_params()
    assert model.fit(data, y) is model
    assert model.get_params() == clone(model).get_params() == before
    # Questions change nothing, and answers are those of each sequence by itself.
    predicted, seen = model.predict(X), dict(vars(model))
    assert (predicted.shape, predicted.dtype.kind) == (y.shape, y.dtype.kind)
    for question in questions:
        everything = getattr(model, question)(X)
        same(getattr(model, question)(X[8:6:-1]), everything[8:6:-1])
        same(getattr(copy.deepcopy(model), question)(X), everything, 0.0)
    _ = model.score(X, y), model.coef_, model.outcome_
    assert vars(model) == seen
    # Fitting again forgets; the order does not matter; weights are counts.
    wider = np.concatenate([X, X[..., :1] ** 2], axis=2)
    same(clone(model).fit(wider, y).fit(X, y).predict(X), predicted, 0.0)
    counts = np.random.default_rng(3).integers(0, 3, N)
    repeated = np.repeat(np.arange(N), counts)[::-1]
    expected = clone(model).fit(X[repeated], y[repeated]).coef_
    same(clone(model).fit(X, y, sample_weight=counts).coef_, expected, 1e-6)
    assert model.score(X, y, counts) == pytest.approx(model.score(X[repeated], y[repeated]))


@pytest.mark.parametrize("kind", KINDS)
def test_estimators_compose(kind):
    data, y, labels = KINDS[kind], NUMBERS[kind], LABELS[kind]
    for name, estimator in REGRESSORS.items():
        if kind == "array" or name not in OF_ARRAYS:
            model = clone(estimator).fit(data, y)
            assert model.predict(data) == pytest.approx(y, abs=0.05), name
            assert model.score(data, y) > 0.99
            chosen = getattr(model, "best_params_", {})
            assert chosen.items() <= {"ridge": 1e-3, "form": pa.Form()}.items()
    both = multioutput.MultiOutputRegressor(REG).fit(data, np.c_[y, -y])
    assert both.predict(data) == pytest.approx(np.c_[y, -y], abs=0.05)
    for name, estimator in CLASSIFIERS.items():
        if kind == "array" or name not in OF_ARRAYS:
            model = clone(estimator).fit(data, labels)
            assert set(model.predict(data)) == {"up", "down"}
            assert model.score(data, labels) > 0.7, name
            if name.startswith(("calibrated", "soft", "stack")):
                assert model.predict_proba(data).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_folds_leave_out_what_they_should(kind):
    """By hand: a fit to the other folds predicts this one, preparation included."""
    data, y, labels = KINDS[kind], NUMBERS[kind], LABELS[kind]
    prepared = make_pipeline(pa.SequenceImputer(), pa.SequenceScaler(), REGRESSOR("last", "loo"))
    for model, truth, method in (
        (REG, y, "predict"), (prepared, y, "predict"), (SQUARED, labels, "decision_function"),
        (LOGISTIC, labels, "predict_proba"),
    ):  # fmt: skip
        predicted = ms.cross_val_predict(model, data, truth, cv=FOLDS, method=method)
        scores = ms.cross_val_score(model, data, truth, cv=FOLDS)
        for (train, test), score in zip(FOLDS.split(RAGGED), scores, strict=True):
            fitted = clone(model).fit([data[i] for i in train], truth[train])
            left_out = [data[i] for i in test]
            assert predicted[test] == pytest.approx(getattr(fitted, method)(left_out), rel=1e-4)
            assert score == pytest.approx(fitted.score(left_out, truth[test]))
    assert np.all(ms.learning_curve(REG, data, y, cv=FOLDS, train_sizes=[0.5, 1.0])[2] > 0.9)
    ridges = {"param_name": "ridge", "param_range": [1e-3, 1e3]}
    scores = ms.validation_curve(REG, data, y, cv=FOLDS, **ridges)[1]
    assert np.all(scores[0] > scores[1])
    fitted_to, left_out, its, others = ms.train_test_split(data, y, random_state=0)
    assert clone(REG).fit(fitted_to, its).score(left_out, others) > 0.9


@pytest.mark.parametrize("metadata", ["sample_weight", "context"])
def test_weights_and_contexts_are_routed(metadata):
    y, (train, test) = NUMBERS["array"], next(FOLDS.split(X))
    given = np.linspace(0.0, 2.0, N) if metadata == "sample_weight" else X[:, ::-1, :2] ** 2
    with config_context(enable_metadata_routing=True):
        asking = REGRESSOR(ridge=0.1).set_fit_request(**{metadata: True})
        asking.set_score_request(**{metadata: True})
        scores = ms.cross_validate(asking, X, y, cv=FOLDS, params={metadata: given})["test_score"]
        one = clone(asking).fit(X[train], y[train], **{metadata: given[train]})
        assert scores[0] == one.score(X[test], y[test], **{metadata: given[test]})
        expected = clone(asking).fit(X, y, **{metadata: given}).coef_
        search = ms.GridSearchCV(asking, {"ridge": [0.1]}, cv=FOLDS).fit(X, y, **{metadata: given})
        assert np.array_equal(search.best_estimator_.coef_, expected)
        piped = make_pipeline(FunctionTransformer(), asking).fit(X, y, **{metadata: given})
        assert np.array_equal(piped[-1].coef_, expected)
        with pytest.raises(UnsetMetadataPassedError, match=metadata):
            ms.cross_validate(clone(REG), X, y, cv=FOLDS, params={metadata: given})


def test_sequences_are_no_tables():
    with config_context(transform_output="pandas"):
        assert isinstance(pa.SequenceScaler().fit_transform(X), np.ndarray)
    pipe = make_pipeline(pa.SequenceScaler(), REG)
    with pytest.raises(ValueError, match="table"):
        pipe.set_output(transform="pandas")
    assert pipe.set_output(transform="default") is pipe
