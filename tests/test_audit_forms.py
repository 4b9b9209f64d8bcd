"""Audits of layers of every form."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space

import polyattn as pa
from certified_forms import FORMS, cases, layout_of, prompts, rational_rows, some_data
from polyattn.errors import InvalidInput


@cases
def test_the_optimum_of_every_form_is_called_optimal(name, has_context):
    form, rng = FORMS[name], np.random.default_rng(19)
    X, context = some_data(has_context, rng, 120)
    layout = layout_of(form, has_context)
    n_rows = len(X) if form.mode == "last" else X.shape[0] * X.shape[1]
    Y = rng.standard_normal((n_rows, 2)).reshape(*X.shape[: 1 + (form.mode != "last")], 2)
    fitted = pa.fit(X, Y, form=form, context=context)
    found = pa.audit(fitted, X, Y, context=context)
    assert found.outcome.name == "optimal", found.sentence
    assert found.distance < 1e-8
    worse = replace(fitted, coef=layout.as_coef(layout.as_theta(fitted.coef) + 0.1))
    assert pa.audit(worse, X, Y, context=context).outcome.name == "improvable"


def test_what_data_cannot_show_is_not_compared():
    X, Y = prompts(np.random.default_rng(20))
    fitted = pa.fit(X, Y)
    coef = fitted.coef.copy()
    coef[:, :, -1] += 7.0
    found = pa.audit(replace(fitted, coef=coef), X, Y)
    assert found.outcome.name == "optimal"
    assert found.distance < 1e-10
    assert "all that they show" in found.sentence
    X = np.repeat(X[..., :1], 2, axis=2)  # two equal coordinates
    fitted = pa.fit(X, Y)
    coef = fitted.coef.copy()
    coef[:, 0, 0], coef[:, 0, 1] = coef[:, 0, 0] + 3.0, coef[:, 0, 1] - 3.0
    assert pa.audit(replace(fitted, coef=coef), X, Y).distance < 1e-10


def test_a_function_is_compared_with_the_form_that_is_asked_for():
    rng = np.random.default_rng(21)
    X, Z = rng.standard_normal((2, 100, 4, 3))
    Y = np.einsum("nsa,nsb,nb->na", Z, Z, X[:, -1])
    found = pa.audit(lambda x, z: np.einsum("nsa,nsb,nb->na", z, z, x[:, -1]), X, Y, context=Z)
    assert found.outcome.name == "optimal"
    zero = pa.audit(lambda _, z: 0.0 * z[:, 0], X, Y, context=Z)
    assert zero.outcome.name == "improvable"


@pytest.mark.parametrize("name", ["lags", "matrix query", "window"])
def test_what_data_cannot_show_is_not_compared_where_features_depend_on_each_other(name):
    """Features of a lag of zero are symmetric in three factors, whatever the data."""
    form = replace(FORMS[name], mode="causal", window=1) if name == "window" else FORMS[name]
    rng = np.random.default_rng(22)
    X = rng.standard_normal((80, 4, 3))
    X[..., 1] = 0.0
    X[..., 2] = -2.0 * X[..., 0]
    Y = rng.standard_normal((80, 4, 1) if form.mode == "causal" else (80, 1))
    fitted = pa.fit(X, Y, form=form)
    features = np.array(rational_rows(form, X), dtype=float)
    unseen = null_space(features).sum(axis=1)
    layout = fitted.layout
    moved = layout.as_coef(
        layout.as_theta(fitted.coef) + (layout.feature_weights * unseen)[:, None]
    )
    found = pa.audit(replace(fitted, coef=moved), X, Y)
    assert found.certificate.structure.rest == "identifiable"
    assert (found.outcome.name, found.distance < 1e-9) == ("optimal", True)


def test_modules_that_cannot_be_read_are_not_audited_without_their_context():
    """Given the sequences alone, they would compute something else."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(23)
    X, Z = rng.standard_normal((2, 60, 4, 3))
    with pytest.raises(InvalidInput, match="function of both"):
        pa.audit(torch.nn.Flatten(), X, Z[:, -1], context=Z)


def test_bounds_that_an_audit_implies_take_a_context():
    rng = np.random.default_rng(24)
    X, Z = rng.standard_normal((2, 60, 4, 3))
    Y = rng.standard_normal((60, 1))
    fitted = pa.fit(X, Y, context=Z)
    found = pa.audit(replace(fitted, coef=1.1 * fitted.coef), X, Y, context=Z)
    bounds = found.implied.bound(X[:5], context=Z[:5])
    apart = 0.1 * np.abs(fitted.predict(X[:5], context=Z[:5])[:, 0])
    assert np.all(apart <= bounds / 2)
