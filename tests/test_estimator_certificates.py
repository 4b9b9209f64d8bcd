"""certificate_ and bounds of the estimators: from sums or counts, never from stored sequences."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict

import polyattn as pa
from polyattn.certify.minimiser import excess_risk
from polyattn.errors import InvalidInput, InvalidType
from polyattn.estimators import fitted_state
from polyattn.sequences import MODES

REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
SOLVERS = ("primal", "dual", "direct", "iterative")


def data(mode="last", n_sequences=60, n_outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 4, 3))
    Y = pa.data.random_layer(3, n_outputs, 2, mode, random_state=1)(X)
    return X, Y + 0.1 * rng.standard_normal(Y.shape)


def arrays_in(obj, seen=None):
    """All arrays that an object holds, directly or through its attributes."""
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return []
    seen.add(id(obj))
    if isinstance(obj, np.ndarray):
        return [obj] if obj.base is None else [obj, *arrays_in(obj.base, seen)]
    parts = (
        list(obj) if isinstance(obj, list | tuple) else list(getattr(obj, "__dict__", {}).values())
    )
    parts += list(obj.values()) if isinstance(obj, dict) else []
    return [array for part in parts for array in arrays_in(part, seen)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_certificate_is_that_of_the_data(mode, bias):
    X, Y = data(mode, 120)
    found = REGRESSOR(mode, bias=bias).fit(X, Y).certificate_
    expected = pa.certify(X, mode, bias=bias)
    assert found.verdict == expected.verdict == "identifiable"
    assert found.lambda_min == pytest.approx(expected.lambda_min)
    assert (found.mode, found.bias, found.n_rows) == (mode, bias, expected.n_rows)


@pytest.mark.parametrize("n_sequences", [10, 60])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_road_has_a_certificate(solver, n_sequences):
    X, Y = data(n_sequences=n_sequences)
    model = REGRESSOR(solver=solver, ridge=1e-3).fit(X, Y)
    expected = pa.certify(X)
    assert model.certificate_.verdict == expected.verdict
    assert model.certificate_.n_features == 18
    _, bound = model.predict(X, return_bound=True)
    assert np.all(np.isfinite(bound)) == (n_sequences == 60)


def test_counts_are_enough_where_rows_are_few():
    X, Y = data(n_sequences=10)
    model = REGRESSOR().fit(X, Y)
    certificate = model.certificate_
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "count")
    assert certificate.verdict_on_real_inputs == "not_identifiable"
    assert certificate.digest == pa.certify(X).digest
    assert "fewer predicted positions than dimensions" in certificate.sentence
    assert pa.verify(certificate, X)
    assert not pa.verify(certificate, X[::-1])
    with pytest.raises(InvalidInput, match=r"a witness needs the data.*certify the data again"):
        certificate.witness()


def test_rows_of_weight_zero_do_not_count():
    X, Y = data(n_sequences=30)
    weights = np.r_[np.ones(15), np.zeros(15)]
    for solver in SOLVERS:
        model = REGRESSOR(solver=solver).fit(X, Y, weights)
        assert model.certificate_.verdict == "not_identifiable"
    assert REGRESSOR().fit(X, Y).certificate_.verdict == "identifiable"


def test_it_is_computed_once_and_anew_after_more_data():
    X, Y = data(n_sequences=80)
    model = REGRESSOR(ridge=1e-3).partial_fit(X[:10], Y[:10])
    first = model.certificate_
    assert first.verdict == "not_identifiable"
    assert model.certificate_ is first
    first_rows = first.evidence.source.n_rows
    model.partial_fit(X[10:], Y[10:])
    assert first.evidence.source.n_rows == first_rows == 10
    assert model.certificate_.verdict == "identifiable"
    assert model.certificate_.lambda_min == pytest.approx(pa.certify(X).lambda_min)
    assert np.allclose(model.coef_, REGRESSOR(ridge=1e-3).fit(X, Y).coef_)
    model.fit(X[:10], Y[:10])
    assert model.certificate_.verdict == "not_identifiable"


def test_a_stream_of_triangular_factors_is_certified():
    X, Y = data()
    model = REGRESSOR(solver="direct").partial_fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    assert model.certificate_.verdict == "identifiable"
    _, bound = model.predict(X, return_bound=True)
    assert np.all(np.isfinite(bound))


@pytest.mark.parametrize("n_sequences", [10, 60])
@pytest.mark.parametrize("solver", SOLVERS)
def test_no_sequences_are_kept(solver, n_sequences):
    X, Y = data(n_sequences=n_sequences)
    model = REGRESSOR(solver=solver).fit(X, Y)
    _ = model.certificate_
    kept = arrays_in(model)
    assert kept
    assert not any(np.shares_memory(array, X) for array in kept)
    assert not any(
        array.size == X.size and np.array_equal(array.ravel(), X.ravel()) for array in kept
    )


def test_the_search_for_arrays_finds_sequences():
    """Negative control."""
    X, _ = data()
    certificate = pa.certify(X)
    assert any(np.shares_memory(array, X) for array in arrays_in(certificate))


def test_copies_leave_the_certificate_behind_and_make_it_again():
    X, Y = data()
    model = REGRESSOR(ridge=0.1).fit(X, Y)
    expected = model.predict(X, return_bound=True)[1]
    copied = copy.deepcopy(model)
    assert "certificate" in vars(model._state)
    assert "certificate" not in vars(copied._state)
    assert np.array_equal(copied.predict(X, return_bound=True)[1], expected)


def test_too_many_features_without_sums_say_what_to_do(monkeypatch):
    monkeypatch.setattr(fitted_state, "MOST_FEATURES", 17)
    X, Y = data()
    model = REGRESSOR(solver="iterative", ridge=1e-3).fit(X, Y)
    with pytest.raises(InvalidInput, match=r"polyattn\.certify\(X\), or fit with solver='primal'"):
        _ = model.certificate_
    assert model.predict(X).shape == Y.shape
    assert REGRESSOR(solver="primal").fit(X, Y).certificate_.identifiable


def test_without_fit_there_is_none():
    for estimator in (REGRESSOR(), CLASSIFIER()):
        with pytest.raises(NotFittedError):
            _ = estimator.certificate_
    with pytest.raises(NotFittedError):
        REGRESSOR().predict(data()[0], return_bound=True)


# Bounds.


@pytest.mark.parametrize("mode", MODES)
def test_the_bound_covers_every_layer_that_fits_as_well(mode):
    X, Y = data(mode)
    new = np.random.default_rng(5).standard_normal((30, 4, 3))
    model = REGRESSOR(mode, ridge=20.0).fit(X, Y)
    predicted, bound = model.predict(new, return_bound=True)
    assert np.array_equal(predicted, model.predict(new))
    assert bound.shape == predicted.shape[:-1]
    best = pa.fit(X, Y, mode)
    assert model._state.excess == pytest.approx(model.result_.risk - best.risk, rel=1e-8)
    # The mirror image of this layer behind the optimum has the same risk: the farthest of all.
    mirrored = 2 * best.coef - model.coef_
    assert excess_risk(mirrored, best.statistics) == pytest.approx(model._state.excess, rel=1e-8)
    away = np.linalg.norm(2 * (best.predict(new) - predicted), axis=-1)
    assert np.all(away <= bound)
    assert np.max(away / bound) > 0.1


def test_the_optimum_is_bounded_by_rounding():
    X, Y = data()
    _, bound = REGRESSOR().fit(X, Y).predict(X, return_bound=True)
    assert np.max(bound) < 1e-10


def test_a_limit_of_heads_counts_as_excess():
    X, Y = data()
    model = REGRESSOR(n_heads=1).fit(X, Y)
    assert model._state.excess == pytest.approx(model.result_.gap, rel=1e-6)
    _, bound = model.predict(X, return_bound=True)
    away = np.linalg.norm(model.predict(X) - pa.fit(X, Y).predict(X), axis=-1)
    assert np.all(2 * away <= bound * (1 + 1e-9))


def test_weights_enter_the_bound():
    X, Y = data()
    times = np.random.default_rng(2).integers(1, 4, len(X))
    weighted = REGRESSOR(ridge=5.0).fit(X, Y, times)
    repeated = REGRESSOR(ridge=5.0).fit(np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0))
    bounds = [model.predict(X, return_bound=True)[1] for model in (weighted, repeated)]
    assert np.allclose(*bounds, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_bounds_have_the_form_of_the_predictions(mode):
    X, Y = data(mode, n_outputs=1)
    plain = REGRESSOR(mode, ridge=0.1).fit(X, Y[..., 0])
    for few in (None, 3):
        fitted = plain if few is None else clone(plain).fit(X[:few], Y[:few, ..., 0])
        predicted, bound = fitted.predict(X, return_bound=True)
        assert predicted.shape == bound.shape
        assert np.all(np.isinf(bound)) == (few is not None)
        parts, bounds = fitted.predict([X[0], X[1][:2]], return_bound=True)
        assert [np.shape(p) for p in parts] == [np.shape(b) for b in bounds]


def test_the_classifier_bounds_its_scores():
    X, Y = data(n_sequences=200, n_outputs=3)
    for labels in (np.argmax(Y, axis=1), Y[:, 0] > 0):
        model = CLASSIFIER(ridge=1.0).fit(X, labels)
        scores, bound = model.decision_function(X, return_bound=True)
        assert np.array_equal(scores, model.decision_function(X))
        assert bound.shape == (200,)
        assert model.certificate_.verdict == "identifiable"
        assert np.all(np.isfinite(bound))


def test_return_bound_is_a_flag():
    X, Y = data()
    with pytest.raises(InvalidType, match="return_bound must be True or False"):
        REGRESSOR().fit(X, Y).predict(X, return_bound=1)


# scikit-learn goes on working.


def test_scikit_learn_tools_still_work():
    X, Y = data(n_sequences=90)
    search = GridSearchCV(REGRESSOR(), {"ridge": [1e-3, 1.0], "bias": [False, True]}, cv=3)
    search.fit(X, Y)
    assert search.best_estimator_.certificate_.verdict in ("identifiable", "not_identifiable")
    assert cross_val_predict(REGRESSOR(ridge=1e-3), X, Y, cv=3).shape == Y.shape
    fitted = REGRESSOR(ridge=1e-3).fit(X, Y)
    _ = fitted.certificate_
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "certificate_")


def test_the_audit_of_an_estimator_has_its_excess_as_gap():
    X, Y = data()
    model = REGRESSOR(ridge=5.0).fit(X, Y)
    assert pa.audit(model, X, Y).gap == pytest.approx(model._state.excess, rel=1e-8)
