"""Estimators inside what scikit-learn builds of estimators, for every kind of sequences.

Where scikit-learn makes tables of X itself, it refuses sequences, and that is tested too:
docs/conformance.md says which these are, and how to give them tables.
"""

from functools import partial

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - it is asked for
from sklearn.feature_selection import RFE
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    train_test_split,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import estimator_html_repr, get_tags

import polyattn as pa
from estimator_cases import CLASSIFIER, DIMS, LENGTH, REGRESSOR, N, tokens

X = tokens()
RAGGED = [x[: 2 + i % 4] for i, x in enumerate(X)]
OBJECTS = np.empty(N, dtype=object)
OBJECTS[:] = RAGGED
KINDS = {
    "array": X,
    "ragged list": RAGGED,
    "object array": OBJECTS,
    "batch": pa.SequenceBatch.from_sequences(RAGGED),
}
PLANTED = pa.data.random_layer(DIMS, 1, 2, "last", random_state=1)
FOLDS = KFold(3)
SMALL = pa.Form(key=[0], skip=True, intercept=True)
REG = REGRESSOR(ridge=1e-3)
SQUARED = CLASSIFIER(ridge=1.0)
LOGISTIC = CLASSIFIER(loss="logistic", ridge=0.1, form=SMALL)


def numbers(kind):
    return PLANTED(KINDS[kind] if kind != "object array" else RAGGED)[:, 0]


def labels(kind):
    return np.where(numbers(kind) > 0, "up", "down")


kinds = pytest.mark.parametrize("kind", KINDS)

REGRESSORS = {
    "pipeline": make_pipeline(FunctionTransformer(), REG),
    "transformed targets": TransformedTargetRegressor(
        REG, func=np.negative, inverse_func=np.negative
    ),
    "vote": VotingRegressor([("a", REG), ("b", REGRESSOR(ridge=1e-2))]),
    "stack": StackingRegressor(
        [("a", REG), ("b", REGRESSOR(ridge=10.0))], LinearRegression(), cv=FOLDS
    ),
    "grid search": GridSearchCV(REG, {"ridge": [1e-3, 1e3]}, cv=FOLDS),
    "random search": RandomizedSearchCV(
        REG, {"ridge": [1e-3, 1e3]}, n_iter=2, cv=FOLDS, random_state=0
    ),
}


@kinds
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_compose(name, kind):
    X, y = KINDS[kind], numbers(kind)
    model = clone(REGRESSORS[name]).fit(X, y)
    assert model.predict(X) == pytest.approx(y, abs=0.05)
    assert model.score(X, y) > 0.99
    if "search" in name:
        assert model.best_params_ == {"ridge": 1e-3}


CLASSIFIERS = {
    "pipeline": make_pipeline(FunctionTransformer(), SQUARED),
    "calibrated scores": CalibratedClassifierCV(SQUARED, cv=FOLDS),
    "calibrated on all": CalibratedClassifierCV(SQUARED, cv=FOLDS, ensemble=False),
    "calibrated probabilities": CalibratedClassifierCV(LOGISTIC, cv=FOLDS, method="isotonic"),
    "hard vote": VotingClassifier([("a", SQUARED), ("b", LOGISTIC), ("c", CLASSIFIER(ridge=0.1))]),
    "soft vote": VotingClassifier(
        [("a", LOGISTIC), ("b", clone(LOGISTIC).set_params(ridge=1.0))], voting="soft"
    ),
    "stack": StackingClassifier([("a", SQUARED), ("b", LOGISTIC)], LogisticRegression(), cv=FOLDS),
    "one against the rest": OneVsRestClassifier(SQUARED),
    "threshold": FixedThresholdClassifier(LOGISTIC, threshold=0.5),
}


@kinds
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_compose(name, kind):
    X, y = KINDS[kind], labels(kind)
    model = clone(CLASSIFIERS[name]).fit(X, y)
    assert set(model.predict(X)) == {"up", "down"}
    assert model.score(X, y) > 0.7
    if name.startswith(("calibrated", "soft", "stack")):
        probabilities = model.predict_proba(X)
        assert probabilities.shape == (N, 2)
        assert probabilities.sum(axis=1) == pytest.approx(1.0)


@kinds
def test_folds_leave_out_what_they_should(kind):
    """By hand: a fit to the other folds predicts this one."""
    X, y = KINDS[kind], numbers(kind)
    predicted = cross_val_predict(REG, X, y, cv=FOLDS)
    scores = cross_val_score(REG, X, y, cv=FOLDS)
    for (train, test), score in zip(FOLDS.split(RAGGED), scores, strict=True):
        fitted = clone(REG).fit([X[i] for i in train], y[train])
        assert predicted[test] == pytest.approx(fitted.predict([X[i] for i in test]))
        assert score == pytest.approx(fitted.score([X[i] for i in test], y[test]))
    assert cross_validate(REG, X, y, cv=FOLDS)["test_score"] == pytest.approx(scores)


@kinds
def test_methods_of_classifiers_are_left_out_by_folds(kind):
    X, y = KINDS[kind], labels(kind)
    probabilities = cross_val_predict(LOGISTIC, X, y, cv=FOLDS, method="predict_proba")
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert cross_val_predict(SQUARED, X, y, cv=FOLDS, method="decision_function").shape == (N,)
    losses = cross_val_score(LOGISTIC, X, y, cv=FOLDS, scoring="neg_log_loss")
    assert np.all(np.isfinite(losses))


@kinds
def test_curves_and_splits(kind):
    X, y = KINDS[kind], numbers(kind)
    _, train, test = learning_curve(REG, X, y, cv=FOLDS, train_sizes=[0.5, 1.0])
    assert train.shape == test.shape == (2, 3)
    assert np.all(test > 0.9)
    _, test = validation_curve(REG, X, y, cv=FOLDS, param_name="ridge", param_range=[1e-3, 1e3])
    assert np.all(test[0] > test[1])
    fitted_to, left_out, its, others = train_test_split(X, y, random_state=0)
    assert clone(REG).fit(fitted_to, its).score(left_out, others) > 0.9


def test_a_search_can_halve():
    search = HalvingGridSearchCV(REG, {"ridge": [1e-3, 1e4]}, cv=FOLDS, min_resources=30)
    y = numbers("array")
    assert search.fit(X, y).best_params_ == {"ridge": 1e-3}
    assert search.score(X, y) > 0.99


def test_a_threshold_can_be_tuned():
    y = labels("array")
    model = TunedThresholdClassifierCV(LOGISTIC, cv=FOLDS).fit(X, y)
    assert 0.0 < model.best_threshold_ < 1.0
    assert model.score(X, y) > 0.7


def test_one_model_for_each_output():
    Y = pa.data.random_layer(DIMS, 2, 2, "last", random_state=3)(X)
    each = MultiOutputRegressor(REG).fit(X, Y).predict(X)
    assert each == pytest.approx(clone(REG).fit(X, Y).predict(X))


@kinds
def test_preparation_in_pipelines(kind):
    """Where sequences are scaled and gaps are filled, folds see their own training set only."""
    X, y = KINDS[kind], numbers(kind)
    model = make_pipeline(
        pa.SequenceImputer(), pa.SequenceScaler(), REGRESSOR(ridge=1e-3, bias=True)
    )
    grid = {
        "sequencescaler__with_mean": [True, False],
        "sequenceimputer__strategy": ["mean", "previous"],
    }
    search = GridSearchCV(model, grid, cv=FOLDS).fit(X, y)
    assert search.best_score_ > 0.9
    train = np.arange(30, N)
    alone = clone(search.best_estimator_).fit([X[i] for i in train], y[train])
    assert cross_val_predict(search.best_estimator_, X, y, cv=FOLDS)[:30] == pytest.approx(
        alone.predict([X[i] for i in range(30)])
    )


WEIGHTS = np.linspace(0.0, 2.0, N)
CONTEXT = tokens(seed=5)


def test_weights_are_routed():
    y = numbers("array")
    with config_context(enable_metadata_routing=True):
        asking = (
            clone(REG).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        )
        search = GridSearchCV(asking, {"ridge": [1.0]}, cv=FOLDS)
        search.fit(X, y, sample_weight=WEIGHTS)
        expected = clone(REG).set_params(ridge=1.0).fit(X, y, sample_weight=WEIGHTS)
        assert np.array_equal(search.predict(X), expected.predict(X))
        scores = cross_validate(asking, X, y, cv=FOLDS, params={"sample_weight": WEIGHTS})
        train, test = next(FOLDS.split(X))
        one = clone(REG).fit(X[train], y[train], WEIGHTS[train])
        assert scores["test_score"][0] == one.score(X[test], y[test], WEIGHTS[test])
        piped = make_pipeline(FunctionTransformer(), asking).fit(X, y, sample_weight=WEIGHTS)
        assert np.array_equal(piped.predict(X), clone(REG).fit(X, y, WEIGHTS).predict(X))
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(clone(REG), X, y, cv=FOLDS, params={"sample_weight": WEIGHTS})


def test_context_is_routed():
    """Sequences that others attend to are cut into folds together with them."""
    y = numbers("array")
    with config_context(enable_metadata_routing=True):
        asking = REGRESSOR(ridge=0.1).set_fit_request(context=True)
        asking.set_score_request(context=True).set_predict_request(context=True)
        scores = cross_validate(asking, X, y, cv=FOLDS, params={"context": CONTEXT})
        train, test = next(FOLDS.split(X))
        one = clone(asking).fit(X[train], y[train], context=CONTEXT[train])
        assert scores["test_score"][0] == one.score(X[test], y[test], context=CONTEXT[test])
        search = GridSearchCV(asking, {"ridge": [0.1]}, cv=FOLDS).fit(X, y, context=CONTEXT)
        expected = clone(asking).fit(X, y, context=CONTEXT).predict(X, context=CONTEXT)
        assert np.array_equal(search.best_estimator_.predict(X, context=CONTEXT), expected)


TABLES_ONLY = {
    "bagging": lambda: BaggingRegressor(REG, 2).fit(X, numbers("array")),
    "bagging of classifiers": lambda: BaggingClassifier(SQUARED, 2).fit(X, labels("array")),
    "recursive elimination": lambda: RFE(REG).fit(X, numbers("array")),
    "a chain": lambda: RegressorChain(REG).fit(X, np.c_[numbers("array"), numbers("array")]),
    "one against one": lambda: OneVsOneClassifier(SQUARED).fit(X, labels("array")),
    "a scaler of tables": lambda: make_pipeline(StandardScaler(), REG).fit(X, numbers("array")),
    "importance": lambda: permutation_importance(
        clone(REG).fit(X, numbers("array")), X, numbers("array")
    ),
    "dependence": lambda: partial_dependence(clone(REG).fit(X, numbers("array")), X, [0]),
    "stack beside X": lambda: StackingRegressor(
        [("a", REG)], LinearRegression(), cv=FOLDS, passthrough=True
    ).fit(X, numbers("array")),
    "boosting of ragged ones": lambda: AdaBoostRegressor(REG).fit(RAGGED, numbers("batch")),
    "bagging of ragged ones": lambda: BaggingRegressor(REG, 2).fit(RAGGED, numbers("batch")),
}


@pytest.mark.parametrize("name", TABLES_ONLY)
def test_what_takes_tables_only_refuses_sequences(name):
    with pytest.raises(ValueError, match=r"dim|2D|inhomogeneous"):
        TABLES_ONLY[name]()


def reshaped(table, n_tokens):
    return np.asarray(table).reshape(len(table), n_tokens, -1)


def test_tables_outside_and_sequences_inside():
    """The way round: a table of all coordinates of a sequence, cut into tokens in a pipeline."""
    table, y = X.reshape(N, -1), numbers("array")
    model = make_pipeline(FunctionTransformer(partial(reshaped, n_tokens=LENGTH)), REG)
    assert np.array_equal(model.fit(table, y).predict(table), clone(REG).fit(X, y).predict(X))
    bag = BaggingRegressor(model, 3, max_samples=0.9, random_state=0).fit(table, y)
    assert bag.score(table, y) > 0.99
    importances = permutation_importance(model, table, y, n_repeats=2, random_state=0)
    assert importances.importances_mean.shape == (LENGTH * DIMS,)
    # The last token asks, and so counts most.
    assert importances.importances_mean.argmax() >= (LENGTH - 1) * DIMS


@pytest.mark.parametrize("estimator", [REG, SQUARED, LOGISTIC, pa.SoftmaxAttentionRegressor()])
def test_parameters_and_pages_of_estimators(estimator):
    names = estimator.get_params()
    assert clone(estimator).set_params(**names).get_params() == names
    with pytest.raises(ValueError, match="Invalid parameter 'rigde'"):
        clone(estimator).set_params(rigde=1.0)
    page = estimator_html_repr(estimator)
    assert type(estimator).__name__ in page
    assert not hasattr(estimator, "set_output")  # it transforms nothing
    tags = get_tags(estimator)
    assert tags.input_tags.three_d_array
    assert not tags.input_tags.two_d_array
    assert not tags.input_tags.sparse
    assert not tags.input_tags.allow_nan
    assert not tags.no_validation
    assert tags.target_tags.multi_output == (tags.estimator_type == "regressor")


def test_transformers_give_sequences_whatever_is_set():
    with config_context(transform_output="pandas"):
        assert isinstance(pa.SequenceScaler().fit_transform(X), np.ndarray)
    pipe = make_pipeline(pa.SequenceScaler(), REG)
    with pytest.raises(ValueError, match="which no table holds"):
        pipe.set_output(transform="pandas")
    assert pipe.set_output(transform="default") is pipe
