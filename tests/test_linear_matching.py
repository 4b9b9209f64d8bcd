"""Heads of linear layers: matched up to order and scale, and written in one way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.form.pairs import fold_heads

EPS = float(np.finfo(np.float64).eps)


def layer_of(seed=0, n_heads=3, n_dims=3, n_outputs=2, mode="last", bias=False):
    return pa.data.random_layer(
        n_dims, n_outputs, n_heads=n_heads, mode=mode, bias=bias, random_state=seed
    )


def disguised(layer, seed=1):
    """The same coefficients: heads mixed, and two more that cancel once products are folded."""
    rng = np.random.default_rng(seed)
    mixture = np.linalg.qr(rng.standard_normal((layer.n_heads, layer.n_heads)))[0] * 2.0
    attn = np.einsum("gh,hlb->glb", mixture, layer.attn)
    value = np.einsum("hg,hca->gca", np.linalg.inv(mixture), layer.value)
    query, one, other = rng.standard_normal((3, layer.attn.shape[1]))
    output = rng.standard_normal(layer.n_outputs)
    attn = np.concatenate([attn, [np.outer(query, one), np.outer(query, other)]])
    value = np.concatenate([value, [np.outer(other, output), -np.outer(one, output)]])
    return pa.LinearAttention(attn, value, layer.mode, layer.bias)


def worst(found, planted):
    match = pa.match_heads(found, planted)
    return max(match.worst_attn, match.worst_value)


@given(
    seed=st.integers(0, 10**6), n_heads=st.integers(1, 5), n_dims=st.integers(1, 4),
    n_outputs=st.integers(1, 3), bias=st.booleans(), mode=st.sampled_from(["last", "causal"]),
)  # fmt: skip
def test_layers_of_one_function_have_one_canonical_form(
    seed, n_heads, n_dims, n_outputs, bias, mode
):
    layer = layer_of(seed, n_heads, n_dims, n_outputs, mode, bias)
    other = disguised(layer, seed + 1)
    form, again = pa.canonical(layer), pa.canonical(other)
    assert (form.mode, form.bias) == (mode, bias)
    assert form.n_heads == again.n_heads
    # Rounding turns heads by eps over the distance of their norms, never less than 1e-8.
    assert worst(again, form) < 1e-5
    for each in (form, again):
        assert pa.same_function(each, layer, tolerance=1e3 * EPS)
    assert pa.same_function(pa.canonical(form), form, tolerance=1e3 * EPS)
    assert not pa.same_function(form, layer_of(seed + 2, n_heads, n_dims, n_outputs, mode, bias))


def test_canonical_heads_are_orthogonal_and_of_one_norm():
    form = pa.canonical(layer_of(n_heads=4, n_dims=4))
    attn, value = (each.reshape(form.n_heads, -1) for each in (form.attn, form.value))
    powers = np.diag(attn @ attn.T)
    np.testing.assert_allclose(attn @ attn.T, np.diag(powers), atol=1e-12)
    np.testing.assert_allclose(value @ value.T, np.diag(powers), atol=1e-12)
    assert np.all(np.diff(powers) < 0)
    assert all(A.ravel()[np.argmax(np.abs(A) >= 0.9 * np.abs(A).max())] > 0 for A in attn)
    # The tensor of the heads is the one of least norm: symmetric in key and value.
    tensor = np.einsum("hca,hlb->acbl", form.value, form.attn)
    np.testing.assert_allclose(tensor, tensor.transpose(0, 2, 1, 3), atol=1e-12)


def test_heads_of_equal_norm_are_written_in_one_way():
    """The identity has nine heads of four norms; every mixture of equal ones is one, too."""
    identity = pa.LinearAttention(np.eye(3), np.eye(3))
    form = pa.canonical(identity)
    norms = np.linalg.norm(form.attn, axis=(1, 2))
    assert len(set(norms.round(9))) < form.n_heads == 9
    for seed in range(5):
        again = pa.canonical(disguised(identity, seed))
        np.testing.assert_allclose(again.attn, form.attn, atol=1e-13)
        np.testing.assert_allclose(again.value, form.value, atol=1e-13)


def test_nearly_equal_norms_do_not_turn_heads():
    """Singular values that differ by 1e-10: alone they would be known to six digits only."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    # One output and queries apart from keys and values: nothing is shared but the diagonal.
    attn = [np.outer(basis[0], [1.0, 0.0, 0, 0]), (1 + 1e-10) * np.outer(basis[1], [0, 1.0, 0, 0])]
    value = [np.outer([1.0, 0, 0, 0], [1.0, 0.0]), np.outer([0, 1.0, 0, 0], [0.0, 1.0])]
    layer = pa.LinearAttention(attn, value)
    noisy = pa.LinearAttention(layer.attn * (1 + 4 * EPS * rng.standard_normal((2, 4, 4))), value)
    assert worst(pa.canonical(noisy), pa.canonical(layer)) < 1e-13


def test_functions_of_zero_keep_one_head():
    zero = pa.canonical(pa.LinearAttention(np.zeros((2, 2, 2)), np.ones((2, 2, 1)), "full"))
    assert zero == pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 1)), "full")
    cancelling = pa.LinearAttention([np.eye(2), -np.eye(2)], [np.eye(2), np.eye(2)])
    assert pa.canonical(cancelling).n_heads == 1
    assert np.all(pa.canonical(cancelling).attn == 0)


@pytest.mark.parametrize(("of_attn", "of_value"), [(1e200, 1e-150), (1e-200, 1e190), (2.0, 1.0)])
def test_sizes_do_not_matter(of_attn, of_value):
    layer = layer_of()
    large = pa.LinearAttention(of_attn * layer.attn, of_value * layer.value)
    form = pa.canonical(large)
    assert pa.same_function(form, large, tolerance=1e-13)
    np.testing.assert_allclose(*(np.linalg.norm(m[0]) for m in (form.attn, form.value)))
    assert worst(form, pa.canonical(pa.LinearAttention(large.attn, 1.0 * large.value))) == 0.0


def test_small_heads_are_kept_and_rounding_is_not():
    layer = layer_of(n_heads=1, n_dims=2, n_outputs=1)
    n_heads = pa.canonical(layer).n_heads
    other = layer_of(1, n_heads=1, n_dims=2, n_outputs=1)
    both = pa.LinearAttention(
        np.concatenate([layer.attn, 1e-4 * other.attn]), np.concatenate([layer.value, other.value])
    )
    assert pa.same_function(pa.canonical(both), both, tolerance=1e-13)
    assert pa.canonical(both, tolerance=1e-2).n_heads <= n_heads


# Forms --------------------------------------------------------------------------------------


FORMS = {
    "apart": pa.Form("causal", query=[0], key=[1, 2], value=[3]),
    "partly shared": pa.Form("last", key=[0, 1, 2], value=[1, 2, 3], bias=True, intercept=True),
    "scales": pa.Form("causal", decay=[0.5, 0.9], skip=True, mean=True),
    "lags": pa.Form("last", lags=1, include_query=False),
}


def mixed(layer, seed=1):
    """The same function: heads of each scale mixed with one another."""
    rng = np.random.default_rng(seed)
    attn, value = np.zeros_like(layer.attn), np.zeros_like(layer.value)
    for scale in np.unique(layer.head_scales):
        own = layer.head_scales == scale
        mixture = np.linalg.qr(rng.standard_normal((own.sum(), own.sum())))[0] * 2.0
        attn[own] = np.einsum("gh,hlb->glb", mixture, layer.attn[own])
        value[own] = np.einsum("hg,hca->gca", np.linalg.inv(mixture), layer.value[own])
    return pa.LinearAttention(
        attn, value, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=layer.head_scales, skip=layer.skip, intercept=layer.intercept,
    )  # fmt: skip


@pytest.mark.parametrize("n_context_dims", [None, 5])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_layers_of_every_form_have_one_canonical_form(form, n_context_dims):
    if n_context_dims is not None and form.mode == "last":
        form = pa.Form(key=form.key, value=form.value, bias=form.bias)
    layer = pa.data.random_layer(4, 2, n_heads=2, form=form, n_context_dims=n_context_dims)
    written, again = pa.canonical(layer), pa.canonical(mixed(layer))
    assert (written.form, written.n_context_dims) == (form, n_context_dims)
    assert np.all(np.diff(written.head_scales) >= 0)
    assert pa.same_function(written, layer, tolerance=1e3 * EPS)
    np.testing.assert_array_equal(written.head_scales, again.head_scales)
    assert worst(again, written) < 1e-9
    for name in ("skip", "intercept"):
        np.testing.assert_array_equal(getattr(written, name), getattr(layer, name))


def test_where_nothing_folds_canonical_heads_are_the_fewest():
    form = pa.Form("causal", query=[0, 1, 2], key=[1, 2, 3], value=[0, 4])
    layer = pa.data.random_layer(5, 2, n_heads=2, form=form)
    doubled = pa.LinearAttention(
        np.concatenate([layer.attn, layer.attn]), np.concatenate([layer.value, 3 * layer.value]),
        form=form, n_dims=5,
    )  # fmt: skip
    assert pa.canonical(doubled).n_heads == 2


def test_small_scales_are_judged_by_the_largest():
    form = pa.Form("causal", decay=[0.5, 0.9])
    layer = pa.data.random_layer(2, 1, form=form)
    attn = layer.attn * np.array([1.0, 1e-14])[:, None, None]
    tiny = pa.LinearAttention(attn, layer.value, form=form, head_scales=[0, 1])
    assert set(pa.canonical(layer).head_scales) == {0, 1}
    assert set(pa.canonical(tiny).head_scales) == {0}


def test_heads_of_other_scales_are_not_matched():
    form = pa.Form("causal", decay=[0.5, 0.9])
    layer = pa.data.random_layer(3, n_heads=2, form=form)
    moved = pa.LinearAttention(layer.attn, layer.value, form=form, head_scales=[0, 1, 1, 1])
    match = pa.match_heads(moved, layer)
    np.testing.assert_array_equal(match.order, [0, -1, 2, 3])
    assert match.extra == (1,)
    backwards = pa.LinearAttention(
        layer.attn[::-1], layer.value[::-1], form=form, head_scales=layer.head_scales[::-1]
    )
    np.testing.assert_array_equal(pa.match_heads(backwards, layer).order, [3, 2, 1, 0])


def test_heads_of_different_forms_are_not_matched():
    layer = pa.data.random_layer(3, form=pa.Form("causal", decay=0.5))
    with pytest.raises(InvalidInput, match="layers of one form can be matched"):
        pa.match_heads(layer, pa.data.random_layer(3))
    with pytest.raises(InvalidInput, match="their n_context_dims are None and 2"):
        pa.match_heads(pa.data.random_layer(3), pa.data.random_layer(3, n_context_dims=2))
    # Which positions are predicted does not matter.
    last = pa.LinearAttention(layer.attn, layer.value, form=pa.Form("last", decay=0.5))
    assert worst(last, layer) == 0.0


# Matching -----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), bias=st.booleans())
def test_heads_are_matched_up_to_order_and_scale(seed, bias):
    planted = layer_of(seed, n_heads=4, bias=bias)
    rng = np.random.default_rng(seed)
    order, scale = rng.permutation(4), rng.choice([-3.0, 0.01, 1.0, 200.0], (4, 1, 1))
    found = pa.LinearAttention(
        (1 + 1e-6) * scale * planted.attn[order], planted.value[order] / scale, bias=bias
    )
    match = pa.match_heads(found, planted)
    np.testing.assert_array_equal(order[match.order], np.arange(4))
    # The factor is shared between attn and value.
    np.testing.assert_allclose(match.attn_errors, 5e-7, rtol=1e-3)
    np.testing.assert_allclose(match.value_errors, 5e-7, rtol=1e-3)


def test_matched_heads_compute_the_same_and_others_do_not():
    layer, other = layer_of(), layer_of(1)
    assert worst(layer, layer) == 0.0
    assert worst(other, layer) > 0.1
    assert worst(disguised(layer), layer) == np.inf
    negative = pa.LinearAttention(-layer.attn, layer.value)
    assert worst(negative, layer) > 1.0


def test_missing_extra_and_idle_heads_are_named():
    planted = layer_of(n_heads=3)
    fewer = pa.LinearAttention(-planted.attn[[2, 0]], -planted.value[[2, 0]])
    match = pa.match_heads(fewer, planted)
    np.testing.assert_array_equal(match.order, [1, -1, 0])
    assert match.missing == (1,)
    np.testing.assert_allclose(match.attn_errors, [0, 1, 0], atol=4 * EPS)
    assert pa.match_heads(planted, fewer).extra == (1,)
    idle = pa.LinearAttention(
        planted.attn, planted.value * np.array([1.0, 0.0, 1.0])[:, None, None]
    )
    assert worst(idle, idle) == 0.0
    # A head without a value computes nothing, whatever its attn is.
    moved = idle.attn * np.array([1.0, 7.0, 1.0])[:, None, None]
    assert worst(pa.LinearAttention(moved, idle.value), idle) == 0.0


def test_coefficients_alone_make_the_canonical_form():
    """A layer read from its own coefficients, by another fold, is the same layer."""
    layer = layer_of(n_heads=2, n_dims=3)
    form = pa.canonical(layer)
    np.testing.assert_allclose(fold_heads(form.attn, form.value), layer.coef, atol=1e-13)
    factored = pa.heads.factor(layer.coef)
    again = pa.LinearAttention(factored.attn, factored.value)
    assert worst(pa.canonical(again), form) < 1e-9


def test_a_tolerance_is_a_number():
    for wrong in (-1.0, float("nan"), "1e-9"):
        with pytest.raises(InvalidInput, match="tolerance must be"):
            pa.canonical(layer_of(), tolerance=wrong)
