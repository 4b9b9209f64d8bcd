"""The linear estimators for layers of every form, and with other sequences to attend to."""

import copy

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier

FORMS = {
    "decay": pa.Form(mode="causal", decay=0.8, bias=True),
    "scales": pa.Form(decay=[0.3, 0.9], query=[0, 1], key=[0, 1], value=[2]),
    "in context": pa.Form(include_query=False, mean=True, query=[0, 1], key=[0, 1], value=[2]),
    "linear": pa.Form(mode="full", value=slice(0, 2), skip=True, intercept=True),
    "lags": pa.Form(mode="causal", lags=2, window=4, query=np.eye(3)[:, :2], key=[0], value=[1, 2]),
}


def task(form, **more):
    return pa.data.planted(80, 6, 3, n_outputs=1, form=form, random_state=0, **more)


@pytest.mark.parametrize("name", FORMS)
def test_a_regressor_of_every_form(name):
    form, data = FORMS[name], task(FORMS[name])
    X, y = data.X, data.Y[..., 0]
    model = REGRESSOR(form=form).fit(X, y)
    assert model.result_.form == form
    assert pa.same_function(model.layer_, data.layer)
    assert model.coef_.shape == (1, model.result_.layout.n_sums, model.result_.layout.n_queries)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-9)
    assert model.score(X, y) == pytest.approx(1.0)
    assert model.certificate_.identifiable
    assert model.certificate_.form == form
    streamed = REGRESSOR(form=form)
    for part in (slice(0, 30), slice(30, 80)):
        streamed.partial_fit(X[part], y[part])
    np.testing.assert_allclose(streamed.coef_, model.coef_, atol=1e-8)
    outputs, bounds = streamed.predict(X, return_bound=True)
    assert bounds.shape == outputs.shape
    assert np.all(np.isfinite(bounds)) == streamed.certificate_.identifiable


@pytest.mark.parametrize("estimator", [REGRESSOR, CLASSIFIER])
def test_a_form_is_cloned_and_copied(estimator):
    form = FORMS["in context"]
    data = task(form)
    y = data.Y[..., 0] if estimator is REGRESSOR else np.where(data.Y[..., 0] > 0, "up", "down")
    model = clone(estimator(form=form, ridge=0.5))
    assert model.get_params()["form"] == form
    model.fit(data.X, y)
    again = copy.deepcopy(model)
    assert again.result_.form == form
    assert np.array_equal(again.predict(data.X), model.predict(data.X))
    assert again.certificate_.verdict == model.certificate_.verdict
    assert "Form(include_query=False" in repr(model)


def test_a_grid_over_forms_finds_the_right_one():
    data = task(pa.Form(decay=0.7, bias=True))
    forms = [pa.Form(decay=decay, bias=True) for decay in (0.4, 0.7, 1.0)]
    search = GridSearchCV(REGRESSOR(ridge=1e-3), {"form": forms}, cv=3).fit(data.X, data.Y[..., 0])
    assert search.best_params_["form"] == forms[1]
    ragged = [x[: 3 + i % 4] for i, x in enumerate(data.X)]
    scores = cross_val_score(REGRESSOR(form=forms[1]), ragged, data.layer(ragged)[:, 0], cv=3)
    np.testing.assert_allclose(scores, 1.0)


def test_the_decay_is_found_by_fit_and_refused_by_partial_fit():
    data = task(pa.Form(decay=0.7))
    model = REGRESSOR(form=pa.Form(decay="loo")).fit(data.X, data.Y)
    assert model.result_.form.decay == pytest.approx(0.7, abs=1e-6)
    np.testing.assert_allclose(model.predict(data.X), data.Y, atol=1e-6)
    assert model.get_params()["form"].decay == "loo"
    with pytest.raises(InvalidInput, match="give the decay as a number"):
        REGRESSOR(form=pa.Form(decay="loo")).partial_fit(data.X, data.Y)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_classifier_of_a_form(loss):
    form = pa.Form(mode="causal", decay=0.8, skip=True, intercept=True)
    data = task(form)
    y = np.where(data.Y[..., 0] > np.median(data.Y), "up", "down")
    model = CLASSIFIER(form=form, loss=loss, ridge=1e-3).fit(data.X, y)
    # The bias of a classifier is True by default, and a form says what holds in its place.
    assert model.result_.form == form
    assert not model.result_.bias
    assert model.predict(data.X).shape == y.shape
    assert model.score(data.X, y) > 0.9
    if loss == "logistic":
        chances = model.predict_proba(data.X)
        assert chances.shape == (*y.shape, 2)
        np.testing.assert_allclose(chances.sum(axis=-1), 1.0)
        assert np.array_equal(model.predict(data.X), model.classes_[chances.argmax(axis=-1)])
    else:
        streamed = CLASSIFIER(form=form, ridge=1e-3).partial_fit(data.X, y, classes=["down", "up"])
        np.testing.assert_allclose(streamed.coef_, model.coef_, atol=1e-8)


@pytest.mark.parametrize("mode", ["last", "full", "causal"])
def test_every_method_takes_a_context(mode):
    data = task(pa.Form(mode=mode), n_context_dims=2)
    X, y, Z = data.X, data.Y[..., 0], data.context
    model = REGRESSOR(mode=mode).fit(X, y, context=Z)
    np.testing.assert_allclose(model.predict(X, context=Z), y, atol=1e-9)
    assert model.score(X, y, context=Z) == pytest.approx(1.0)
    assert model.certificate_.n_context_dims == 2
    streamed = REGRESSOR(mode=mode).partial_fit(X[:40], y[:40], context=Z[:40])
    streamed.partial_fit(X[40:], y[40:], context=Z[40:])
    assert streamed.predict(X, return_bound=True, context=Z)[1].shape == y.shape
    np.testing.assert_allclose(streamed.coef_, model.coef_, atol=1e-8)
    with pytest.raises(InvalidInput, match="give them as context"):
        model.predict(X)
    with pytest.raises(InvalidInput, match="takes no context"):
        REGRESSOR(mode=mode).fit(X, y).predict(X, context=Z)
    with pytest.raises(InvalidInput, match="context"):
        streamed.partial_fit(X, y)


def test_a_classifier_takes_a_context():
    data = task(pa.Form(), n_context_dims=2)
    X, Z = data.X, data.context
    y = (data.Y[:, 0] > 0).astype(int)
    model = CLASSIFIER(loss="logistic").fit(X, y, context=Z)
    assert model.score(X, y, context=Z) > 0.9
    assert model.predict_proba(X, context=Z).shape == (80, 2)
    assert model.decision_function(X, context=Z).shape == (80,)
    assert np.array_equal(model.predict(X, context=Z), model.classes_[model.classes_].take(
        (model.decision_function(X, context=Z) > 0).astype(int)))  # fmt: skip


def test_contexts_are_routed_through_a_search():
    data = task(pa.Form(), n_context_dims=2)
    with sklearn.config_context(enable_metadata_routing=True):
        model = REGRESSOR().set_fit_request(context=True).set_score_request(context=True)
        search = GridSearchCV(model, {"ridge": [1e-6, 1e3]}, cv=3)
        search.fit(data.X, data.Y, context=data.context)
    assert search.best_params_ == {"ridge": 1e-6}


def test_few_rows_certify_their_form():
    form = pa.Form(mode="last", decay=0.8, bias=True)
    data = task(form)
    model = REGRESSOR(form=form, solver="dual").fit(data.X[:5], data.Y[:5])
    certificate = model.certificate_
    assert certificate.verdict == "not_identifiable"
    assert certificate.form == form
    assert certificate.digest == pa.certify(data.X[:5], form=form).digest


def test_forms_of_too_many_features_are_fitted_without_a_certificate():
    rng = np.random.default_rng(0)
    form = pa.Form(query=rng.standard_normal((30, 10)))
    model = REGRESSOR(form=form, solver="dual").fit(rng.standard_normal((3, 4, 30)), np.ones(3))
    with pytest.raises(InvalidInput, match="none are made for a certificate"):
        _ = model.certificate_


def test_dependent_features_are_no_lack_of_rows():
    """A matrix that shows one coordinate twice has fewer features to determine than columns."""
    twice = np.array([[1.0, 1.0], [0.0, 0.0]])
    form = pa.Form(query=twice, key=[0], value=[1])
    X = np.random.default_rng(0).standard_normal((1, 5, 2))
    model = REGRESSOR(form=form, solver="dual").fit(X, np.ones(1))
    assert pa.certify(X, form=form).verdict == "identifiable"
    assert model.certificate_.verdict == "identifiable"


def test_what_contradicts_a_form_is_refused():
    data = task(pa.Form())
    with pytest.raises(InvalidInput, match="mode was given beside a form"):
        REGRESSOR(mode="causal", form=pa.Form()).fit(data.X, data.Y)
    with pytest.raises(InvalidInput, match="bias was given beside a form"):
        REGRESSOR(bias=True, form=pa.Form()).fit(data.X, data.Y)
    with pytest.raises(InvalidType, match=r"polyattn\.Form"):
        REGRESSOR(form="causal").fit(data.X, data.Y)
    model = REGRESSOR(form=pa.Form(decay=0.5)).partial_fit(data.X, data.Y)
    with pytest.raises(InvalidInput, match="form or solver changed"):
        model.set_params(form=pa.Form(decay=0.6)).partial_fit(data.X, data.Y)
