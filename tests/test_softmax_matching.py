"""Heads up to order, canonical forms, and whether two softmax layers are the same function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.model import canonical, match_heads


def layer_of(seed=0, n_heads=3, n_dims=3, n_outputs=2, mode="full", bias=False):
    rng = np.random.default_rng(seed)
    width = n_dims + bias
    attn = rng.standard_normal((n_heads, width, width))
    value = rng.standard_normal((n_heads, width, n_outputs))
    return pa.SoftmaxAttention(attn, value, mode, bias)


def disguised(layer, seed=1):
    """The same function: shuffled, one head split in two, an idle head, hidden parts changed."""
    rng = np.random.default_rng(seed)
    part = rng.standard_normal(layer.value.shape[1:])
    attn = np.concatenate(
        [layer.attn, layer.attn[:1], rng.standard_normal((1, *layer.attn[0].shape))]
    )
    value = np.concatenate([layer.value, part[None], np.zeros((1, *part.shape))])
    value[0] -= part
    if layer.bias:
        attn[:, :, -1] += rng.standard_normal(attn.shape[:2])
        moved = rng.standard_normal((len(value), layer.n_outputs))
        value[:, -1] += moved - moved.mean(axis=0)
    order = rng.permutation(len(attn))
    return pa.SoftmaxAttention(attn[order], value[order], layer.mode, layer.bias)


@pytest.mark.parametrize("bias", [False, True])
@given(seed=st.integers(0, 10**6))
def test_a_disguise_is_seen_through(bias, seed):
    layer = layer_of(seed, bias=bias)
    other = disguised(layer, seed + 1)
    X = np.random.default_rng(seed).standard_normal((4, 5, 3))
    np.testing.assert_allclose(other(X), layer(X), rtol=0, atol=1e-12)
    assert pa.same_function(layer, other)
    form, again = canonical(layer), canonical(other)
    assert form.n_heads == again.n_heads == 3
    np.testing.assert_allclose(form(X), layer(X), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(form.attn, again.attn)
    np.testing.assert_allclose(form.value, again.value, rtol=0, atol=1e-13)
    assert canonical(form) == form


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("what", ["attn", "value", "constant"])
def test_changes_are_noticed(what, bias):
    """Negative control, at both sides of the tolerance."""
    layer = layer_of(bias=bias)
    for change, same in ((1e-6, False), (1e-12, True)):
        attn, value = layer.attn.copy(), layer.value.copy()
        if what == "attn":
            attn[1, 0, 0] += change
        else:
            value[1, -1 if what == "constant" else 0, 0] += change
        assert pa.same_function(layer, pa.SoftmaxAttention(attn, value, bias=bias)) is same


def test_merged_and_idle_heads():
    A, B = np.eye(2), 2 * np.eye(2)
    V, W = np.ones((2, 1)), np.array([[1.0], [2.0]])
    twice = pa.SoftmaxAttention(np.stack([B, A, A]), np.stack([W, V, W]))
    assert canonical(twice) == pa.SoftmaxAttention(np.stack([A, B]), np.stack([V + W, W]))
    gone = pa.SoftmaxAttention(np.stack([B, A, A]), np.stack([W, V, -V]))
    assert canonical(gone) == pa.SoftmaxAttention(B, W)
    nothing = pa.SoftmaxAttention(np.stack([A, A]), np.stack([V, -V]))
    assert canonical(nothing) == pa.SoftmaxAttention(0 * A, 0 * V)
    assert pa.same_function(nothing, pa.SoftmaxAttention(B, 0 * V))
    nearly = pa.SoftmaxAttention(np.stack([A, A + 1e-10]), np.stack([V, W]))
    assert canonical(nearly).n_heads == 2
    assert canonical(nearly, tolerance=1e-9).n_heads == 1
    chain = pa.SoftmaxAttention(np.stack([A, A + 2e-10, A + 1e-10]), np.stack([V, V, V]))
    assert canonical(chain, tolerance=1.5e-10).n_heads == 1


def test_what_a_constant_coordinate_hides():
    layer = layer_of(bias=True)
    form = canonical(layer)
    assert not np.any(form.attn[:, :, -1])
    assert np.all(form.value[:, -1] == form.value[0, -1])
    np.testing.assert_allclose(form.value[:, -1].sum(axis=0), layer.value[:, -1].sum(axis=0))
    only = np.zeros((2, 4, 2))
    only[:, -1] = 1.0
    constant = canonical(pa.SoftmaxAttention(layer.attn[:2], only, bias=True))
    assert constant.n_heads == 1
    np.testing.assert_array_equal(constant.value[0], [[0, 0], [0, 0], [0, 0], [2, 2]])


@given(seed=st.integers(0, 10**6), bias=st.booleans())
def test_heads_are_matched_whatever_their_order(seed, bias):
    planted = layer_of(seed, n_heads=4, bias=bias)
    rng = np.random.default_rng(seed)
    order = rng.permutation(4)
    attn, value = planted.attn[order], planted.value[order].copy()
    attn = attn * (1 + 1e-6)
    if bias:
        attn[:, :, -1] = 7.0
        value[:, -1] += np.array([[1.0], [-1.0], [2.0], [-2.0]])
    match = match_heads(pa.SoftmaxAttention(attn, value, bias=bias), planted)
    np.testing.assert_array_equal(order[match.order], np.arange(4))
    np.testing.assert_allclose(match.attn_errors, 1e-6, rtol=1e-3)
    assert match.worst_attn == pytest.approx(1e-6, rel=1e-3)
    assert match.worst_value < 1e-14
    assert "4 of 4 heads matched" in str(match)


@pytest.mark.parametrize("family", ["same_value", "identity", "scales", "close"])
def test_hard_families_are_matched(family):
    planted = pa.data.hard_softmax_layer(family, 4, 4)
    found = pa.SoftmaxAttention(planted.attn[::-1], planted.value[::-1])
    match = match_heads(found, planted)
    np.testing.assert_array_equal(match.order, [3, 2, 1, 0])
    assert match.worst_attn == match.worst_value == 0.0


def test_missing_and_extra_heads_are_named():
    planted = layer_of(n_heads=3)
    fewer = pa.SoftmaxAttention(planted.attn[[2, 0]], planted.value[[2, 0]])
    match = match_heads(fewer, planted)
    np.testing.assert_array_equal(match.order, [1, -1, 0])
    assert match.missing == (1,)
    assert match.extra == ()
    np.testing.assert_array_equal(match.attn_errors, [0, 1, 0])
    assert match.worst_value == 1.0
    assert match.sentence.endswith("; not found: 1.")
    more = match_heads(planted, fewer)
    assert more.extra == (1,)
    assert more.missing == ()
    assert more.worst_attn == more.worst_value == np.inf
    np.testing.assert_array_equal(more.order, [2, 0])
    assert more.sentence.endswith("; found but not planted: 1.")


def test_zero_matrices_have_finite_errors():
    zero = pa.SoftmaxAttention(np.zeros((1, 2, 2)), np.zeros((1, 2, 1)))
    assert match_heads(zero, zero).worst_attn == 0.0
    one = pa.SoftmaxAttention(np.eye(2), np.ones((2, 1)))
    assert match_heads(one, zero).worst_attn == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_scales_do_not_matter(scale):
    layer = layer_of()
    large, same, other = (
        pa.SoftmaxAttention(scale * one.attn, scale * one.value)
        for one in (layer, disguised(layer), layer_of(seed=1))
    )
    assert pa.same_function(large, same)
    assert not pa.same_function(large, other)
    assert match_heads(large, large).worst_attn == 0.0
    assert canonical(large).n_heads == 3


# What is and is not the same function ---------------------------------------------------------


def test_two_tokens_do_not_tell_opposite_heads():
    """sigmoid(z) + sigmoid(-z) = 1; three tokens do."""
    rng = np.random.default_rng(0)
    A, V = rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    layer = pa.SoftmaxAttention(np.stack([A, -A, 0 * A]), np.stack([V, V, -2 * V]))
    assert np.abs(layer(rng.standard_normal((20, 2, 3)))).max() < 1e-14
    assert np.abs(layer(rng.standard_normal((20, 3, 3)))).max() > 0.1
    assert not pa.same_function(layer, pa.SoftmaxAttention(A, 0 * V))


def test_boolean_tokens_do_not_tell_four_distinct_heads():
    """x1 + x2 and x1 - x2 are 2 x1 and 0 in one order or the other; real tokens tell them."""
    first, second = np.eye(2)
    queries = [0 * first, first + second, first - second, 2 * first]
    attn = np.stack([np.outer(query, first) for query in queries])
    V = np.random.default_rng(0).standard_normal((2, 2))
    one = pa.SoftmaxAttention(attn[[0, 3]], np.stack([V, V]))
    other = pa.SoftmaxAttention(attn[[1, 2]], np.stack([V, V]))
    for n_tokens in (1, 2, 3, 9):
        X = pa.data.boolean_sequences(50, n_tokens, 2)
        assert np.abs(one(X) - other(X)).max() < 1e-14
    X = pa.data.random_sequences(50, 3, 2, scale=1.0)
    assert np.abs(one(X) - other(X)).max() > 0.1
    assert not pa.same_function(one, other)


def test_only_like_layers_are_compared():
    layer = layer_of()
    linear = pa.LinearAttention(layer.attn, layer.value, "full")
    with pytest.raises(InvalidInput, match="got SoftmaxAttention and LinearAttention"):
        pa.same_function(layer, linear)
    with pytest.raises(InvalidInput, match="got LinearAttention and int"):
        pa.same_function(linear, 3)
    with pytest.raises(InvalidType, match=r"LinearAttention layers.*got SoftmaxAttention"):
        pa.coefficient_distance(layer, layer)
    with pytest.raises(InvalidInput, match="got SoftmaxAttention and LinearAttention"):
        match_heads(layer, linear)
    with pytest.raises(InvalidType, match=r"is needed; got int.*\.layer"):
        canonical(3)
    with pytest.raises(InvalidType, match="got FitResult"):
        match_heads(layer, pa.fit(np.ones((3, 2, 1)), np.ones(3)))
    with pytest.raises(InvalidInput, match="tolerance must be"):
        pa.same_function(layer, layer, tolerance=-1)
    for other in (layer_of(mode="last"), layer_of(n_outputs=1), layer_of(n_dims=2, bias=True)):
        with pytest.raises(InvalidInput, match="only layers of the same kind"):
            pa.same_function(layer, other)


def test_a_hopeless_head_does_not_disturb_the_others():
    """The second head found is far from both, three times as far from the small one."""
    planted = pa.SoftmaxAttention(
        [[[10.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]], [[[1.0], [0.0]], [[0.0], [1.0]]]
    )
    found = pa.SoftmaxAttention(
        [[[0.0, 0.3], [0.0, 1.0]], [[0.0, 0.0], [3.0, 0.0]]], [[[1.0], [0.0]], [[-1.0], [-1.0]]]
    )
    match = pa.match_heads(found, planted)
    assert match.order.tolist() == [0, 1]
    assert match.attn_errors[1] > 3
