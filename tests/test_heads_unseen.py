"""Coefficients that change no output: found exactly, and left out where heads are looked for."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES
from polyattn.form.layout import Layout
from polyattn.heads import compress
from polyattn.heads.metric import Metric
from polyattn.heads.unseen import identities
from polyattn.reference import forms as reference

# name: form, n_dims
FORMS = {
    "one token": (pa.Form(mode="causal", window=1), 3),
    "one token and a constant": (pa.Form(mode="causal", window=1, bias=True, skip=True), 2),
    "lag 0": (pa.Form(mode="causal", lags=2), 3),
    "matrix": (pa.Form(key=np.diag([1.0, 2.0, 4.0])), 3),
    "mean of constants": (pa.Form(mean=True, bias=True, skip=True), 3),
    "mean of constants, intercept": (pa.Form(mean=True, bias=True, intercept=True), 3),
    "normalised": (pa.Form(value=pa.maps.normalised()), 3),
    "polynomials": (pa.Form(key=pa.maps.polynomial(2), value=pa.maps.polynomial(2)), 2),
}


def random_layer(name, n_heads, seed=0):
    """A layer with ``n_heads`` heads for each scale."""
    form, n_dims = FORMS[name]
    layout, rng = Layout.of(form, n_dims), np.random.default_rng(seed)
    count, n_queries = n_heads * layout.n_scales, len(layout.query)
    return pa.LinearAttention(
        rng.standard_normal((count, n_queries, layout.pairs.n_keys)),
        rng.standard_normal((count, layout.pairs.n_values, 2)),
        form=form, n_dims=n_dims, head_scales=np.repeat(np.arange(layout.n_scales), n_heads),
        skip=rng.standard_normal((n_queries, 2)) if form.skip else None,
        intercept=rng.standard_normal(2) if form.intercept else None,
    )  # fmt: skip


def layer_of(found, layer):
    return pa.LinearAttention(
        found.attn, found.value, form=layer.form, n_dims=layer.n_dims,
        head_scales=found.head_scales, skip=found.skip, intercept=found.intercept,
    )  # fmt: skip


SMALL = [case for case in CASES if case.kind == "equal" and case.layout.n_features < 250]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_identities_are_those_of_the_features(case):
    """By the rank of features of random sequences, which the reference computes one by one."""
    layout, form = case.layout, case.plain
    rng = np.random.default_rng(1)
    known = identities(layout)
    n_features = layout.n_features
    if case.name == "own-function":
        assert not known.complete
        return
    rows = []
    while len(rows) < n_features + 10:
        length = int(rng.integers(1, 9))
        X = rng.standard_normal((length, case.n_dims))
        Z = None
        if case.n_context_dims is not None:
            Z = rng.standard_normal((length, case.n_context_dims))
        S, u = reference.summaries(X, form, Z)[-1]
        rows.append(layout.select(np.outer(S, u).ravel()))
    matrix = np.array(rows, dtype=float)
    sizes = np.linalg.norm(matrix, axis=0)
    nullity = n_features - np.linalg.matrix_rank(matrix / np.where(sizes > 0, sizes, 1), 1e-10)
    if known is None:
        assert nullity == 0
        return
    n_products = layout.n_products * len(layout.query)
    own = n_products // layout.n_scales
    whole = np.zeros((n_features, 0))
    for scale, found in enumerate(known.by_scale):
        placed = np.zeros((n_features, found.shape[1]))
        placed[scale * own : (scale + 1) * own] = found[:own]
        placed[n_products:] = found[own:]
        whole = np.hstack([whole, placed])
    assert np.abs(matrix @ whole).max(initial=0.0) <= 1e-8 * np.abs(matrix).max()
    found_nullity = np.linalg.matrix_rank(whole, 1e-9) if whole.size else 0
    assert (found_nullity == nullity) == known.complete


@pytest.mark.parametrize(
    ("name", "n_heads"), [*((name, 1) for name in FORMS), ("lag 0", 2), ("mean of constants", 2)]
)
def test_the_fewest_heads_of_the_function_are_found(name, n_heads):
    """Coefficients of the same function, moved along all directions that change no output."""
    layer = random_layer(name, n_heads)
    layout, rng = layer.layout, np.random.default_rng(3)
    moved = layer.coef.reshape(2, -1).copy()
    n_products = layout.n_products * len(layout.query)
    own = n_products // layout.n_scales
    kept = np.arange(moved.shape[1]) if layout.kept is None else layout.kept
    for scale, found in enumerate(identities(layout).by_scale):
        at = np.r_[scale * own : (scale + 1) * own, n_products : layout.n_features]
        moved[:, kept[at]] += rng.standard_normal((2, found.shape[1])) @ found.T
    coef = moved.reshape(layer.coef.shape)
    assert not np.allclose(coef, layer.coef)
    found = compress(coef, layout=layout)
    counts = np.bincount(found.head_scales, minlength=layout.n_scales)
    assert np.all(counts <= n_heads)
    assert found.lost <= 1e-10
    assert pa.same_function(layer_of(found, layer), layer)
    # One head is proved to be the least, two are only the fewest that were found.
    assert ("no layer with fewer heads" in found.sentence) == np.all(counts == 1)


def test_heads_that_compute_linear_terms_alone_are_left_out():
    layer = random_layer("mean of constants", 1)
    attn, value = np.zeros((1, 4, 4)), np.zeros((1, 4, 2))
    attn[0, :, 3], value[0, 3] = [1.0, 2.0, 3.0, 4.0], 1.0
    by_head = pa.LinearAttention(attn, value, form=layer.form, skip=layer.skip)
    found = compress(by_head.coef, layout=layer.layout)
    assert not found.attn.any()
    assert found.sentence.startswith("Beside its linear terms the function is zero")
    np.testing.assert_allclose(found.skip, layer.skip + attn[0, :, 3:])
    assert pa.same_function(layer_of(found, by_head), by_head)


@pytest.mark.parametrize("sizes", [(1e5, 1.0, 1.0), (1.0, 1e-6, 1.0), (1e-6, 1e-6, 1e-6)], ids=str)
@pytest.mark.parametrize("name", ["lag 0", "mean of constants"])
def test_fits_in_all_units(name, sizes):
    layer = random_layer(name, 1)
    X, fresh = np.random.default_rng(5).standard_normal((2, 150, 5, layer.n_dims))
    result = pa.fit(X * sizes, layer(X), form=layer.form)
    assert result.layer.n_heads == layer.n_heads
    truth = layer(fresh)
    error = np.abs(result.layer(fresh * sizes) - truth).max()
    assert error <= 1e-9 * np.abs(truth).max()


def test_a_metric_without_some_directions():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((12, 5)))[0]
    metric, tensor = Metric(unseen=basis), rng.standard_normal((2, 2, 2, 3))
    seen = metric(tensor)
    np.testing.assert_allclose(metric(seen), seen, atol=1e-14)
    assert np.abs(seen.reshape(2, 12) @ basis).max() <= 1e-14
    assert metric.power(tensor) == pytest.approx(np.sum(seen**2))
    assert metric.work == 2 * basis.size
    # Nothing is left of a large unseen part.
    hidden = 1e10 * (rng.standard_normal((2, 5)) @ basis.T).reshape(tensor.shape)
    assert metric.power(hidden) <= (1e-15 * 1e11) ** 2 * 100


def test_what_is_not_known_is_not_claimed():
    """More features than are compared, and functions that may not take random tokens."""
    wide = Layout.of(pa.Form(mode="causal", window=1), 13)
    assert identities(wide).by_scale[0].shape[1] == 0
    assert not identities(wide).complete
    form = pa.Form(key=np.log, value=[0], query=[1])
    layer = pa.LinearAttention(np.ones((1, 1, 2)), np.ones((1, 1, 1)), form=form, n_dims=2)
    found = compress(layer.coef, layout=layer.layout)
    assert found.n_heads == 1
    assert "no layer with fewer" not in found.sentence


def test_features_of_coordinates_are_not_compared():
    for form in (pa.Form(), pa.Form(mode="causal", decay=[0.5, 0.9], bias=True, skip=True)):
        assert identities(Layout.of(form, 3)) is None
