"""Fits of every form with few heads, or of limited rank: risks and gaps are those of layers."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.form.layout import Layout

FORMS = {
    "whole": (pa.Form(), 4),
    "labels": (pa.Form(include_query=False, mean=True, query=range(3), value=[3]), 4),
    "linear": (pa.Form(skip=True, intercept=True, key=[0, 1, 2], value=[1, 2, 3]), 4),
    "decays": (pa.Form(mode="causal", decay=[0.5, 0.9], skip=True), 3),
}


def examples(form, n_dims, n_sequences=150, noise=0.3):
    """Targets of one random head of each scale, with noise."""
    rng = np.random.default_rng(0)
    layout = Layout.of(form, n_dims)
    scales, n_queries = np.arange(layout.n_scales), len(layout.query)
    layer = pa.LinearAttention(
        rng.standard_normal((len(scales), n_queries, layout.pairs.n_keys)),
        rng.standard_normal((len(scales), layout.pairs.n_values, 2)),
        form=form, n_dims=n_dims, head_scales=scales,
        skip=rng.standard_normal((n_queries, 2)) if form.skip else None,
        intercept=rng.standard_normal(2) if form.intercept else None,
    )  # fmt: skip
    X = rng.standard_normal((n_sequences, 6, n_dims))
    clean = layer(X)
    return X, clean + noise * clean.std() * rng.standard_normal(clean.shape)


def risk_of(layer, X, Y):
    return float(np.mean(np.sum((layer(X) - Y) ** 2, axis=-1)))


@pytest.mark.parametrize(
    ("name", "ridge"), [("whole", 0.0), ("labels", 0.0), ("linear", 5.0), ("decays", 0.0)]
)
def test_the_risk_is_that_of_the_layer(name, ridge):
    form, n_dims = FORMS[name]
    X, Y = examples(form, n_dims)
    optimum = pa.fit(X, Y, form=form, ridge=ridge)
    assert risk_of(optimum.predict, X, Y) == pytest.approx(optimum.risk, rel=1e-9)
    for limits in ({"n_heads": 1}, {"n_heads": 2, "head_rank": 1}, {"n_heads": "auto"}):
        result = pa.fit(X, Y, form=form, ridge=ridge, **limits)
        assert risk_of(result.layer, X, Y) == pytest.approx(result.risk, rel=1e-9)
        np.testing.assert_allclose(result.layer.coef, result.coef, atol=1e-10)
        assert result.optimal_risk == pytest.approx(optimum.risk, rel=1e-9)
        assert result.gap >= -1e-9 * result.risk or ridge
        if isinstance(limits["n_heads"], int):
            assert result.layer.n_heads == limits["n_heads"]


@pytest.mark.parametrize("name", ["whole", "linear", "decays"])
def test_heads_of_any_number_are_split_into_those_of_a_rank(name):
    form, n_dims = FORMS[name]
    for n_heads, noise in ((None, 0.0), ("auto", 0.1)):
        X, Y = examples(form, n_dims, noise=noise)
        free = pa.fit(X, Y, form=form, n_heads=n_heads)
        result = pa.fit(X, Y, form=form, n_heads=n_heads, head_rank=1)
        assert max(np.linalg.matrix_rank(attn, 1e-10) for attn in result.layer.attn) == 1
        assert result.layer.n_heads > free.layer.n_heads
        assert result.risk == pytest.approx(free.risk, rel=1e-9)
        np.testing.assert_allclose(result.layer(X), free.layer(X), atol=1e-8 * np.abs(Y).max())


def test_a_limit_on_rank_and_number_has_a_gap():
    form, n_dims = FORMS["whole"]
    X, Y = examples(form, n_dims, noise=0.0)
    gaps = [pa.fit(X, Y, n_heads=1, head_rank=rank).gap for rank in (1, 2, 3, 4)]
    assert np.all(np.diff(gaps) <= 1e-9)
    assert gaps[0] > 1e-3 * np.mean(Y**2)
    assert gaps[-1] <= 1e-9 * np.mean(Y**2)
    assert "rank at most 1" in str(pa.fit(X, Y, n_heads=1, head_rank=1).outcome)
    with pytest.raises(pa.errors.InvalidInput, match="head_rank"):
        pa.fit(X, Y, n_heads=2, head_rank=0)


def test_the_risk_is_that_of_the_layer_where_coefficients_are_large():
    """Features depend on one another, and so the coefficients of few heads may be of any size."""
    form = pa.Form(
        mean=True, decay=0.8, query=pa.maps.elu1(), key=pa.maps.hedgehog(), skip=True, bias=True
    )
    rng = np.random.default_rng(31)
    X, Y = rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 1))
    result = pa.fit(X, Y, form=form, n_heads=2, head_rank=1)
    assert np.abs(result.coef).max() > 1e4
    assert result.risk == pytest.approx(np.mean((result.layer(X) - Y) ** 2), rel=1e-10)
