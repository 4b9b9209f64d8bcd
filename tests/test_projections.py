"""Layers as W_Q, W_K, W_V, W_O of any width, against plain numpy, and ranks within a tolerance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import to_projections
from polyattn.sequences import MODES
from projection_cases import EPS, KINDS, content, layer_of, outputs, relative, tokens_of


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_projections_compute_what_the_layer_does(kind, bias, mode):
    layer = layer_of(kind, mode=mode, bias=bias)
    found = to_projections(layer)
    X = tokens_of(layer)
    assert relative(outputs(content(found), X, mode), layer(X)) < 1e3 * EPS
    assert (found.kind, found.mode, found.n_heads, found.head_dim) == (kind, mode, 2, 3)
    back = found.to_layer()
    assert type(back) is type(layer)
    assert pa.same_function(back, layer, tolerance=1e-13)
    match = pa.match_heads(back, layer)
    assert max(match.worst_attn, match.worst_value) < 1e-13
    # A negative control for the oracle.
    other = content(found) | {"scale": 2.0 * found.scale}
    assert relative(outputs(other, X, mode), layer(X)) > 1e-3


@given(
    ranks=st.lists(st.integers(0, 4), min_size=1, max_size=3), head_dim=st.integers(1, 5),
    value_dim=st.none() | st.integers(1, 5), n_dims=st.integers(1, 4), n_outputs=st.integers(1, 4),
    bias=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_linear_layers_fit_every_width(ranks, head_dim, value_dim, n_dims, n_outputs, bias, seed):
    layer = layer_of("linear", ranks, n_dims, n_outputs, "causal", bias, seed)
    found = to_projections(layer, head_dim, value_dim)
    assert found.W_Q.shape == found.W_K.shape == (found.n_heads, n_dims, head_dim)
    assert found.W_O.shape == (found.n_heads, found.value_dim, n_outputs)
    assert value_dim in (None, found.value_dim)
    of_attn = [-(-min(rank, n_dims + bias) // head_dim) or 1 for rank in ranks]
    of_value = -(-min(n_dims + bias, n_outputs) // found.value_dim)
    assert found.n_heads == sum(of_attn) * of_value
    np.testing.assert_array_equal(
        found.heads, np.repeat(np.arange(len(ranks)), np.array(of_attn) * of_value)
    )
    assert found.change <= 1e-12
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-12)


@given(
    ranks=st.lists(st.integers(0, 3), min_size=1, max_size=3), value_dim=st.integers(1, 4),
    n_dims=st.integers(1, 4), n_outputs=st.integers(1, 4), bias=st.booleans(),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_values_of_softmax_heads_are_split(ranks, value_dim, n_dims, n_outputs, bias, seed):
    layer = layer_of("softmax", ranks, n_dims, n_outputs, "full", bias, seed)
    found = to_projections(layer, value_dim=value_dim)
    parts = -(-min(n_dims, n_outputs) // value_dim)
    assert found.n_heads == len(ranks) * parts
    assert found.b_K is None
    assert found.b_V is None
    # Parts of one head attend alike, so merging gives the heads back.
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-11)
    X = tokens_of(layer)
    assert relative(outputs(content(found), X, "full"), layer(X)) < 1e-11


def test_softmax_heads_are_not_split():
    layer = layer_of("softmax", ranks=(1, 3))
    message = r"head 1 has attn of rank 3, more than head_dim = 2, and a softmax.*give head_dim=3"
    with pytest.raises(InvalidInput, match=message):
        to_projections(layer, head_dim=2)
    assert to_projections(layer, head_dim=3).head_dim == 3


def test_more_coordinates_than_needed_are_zero():
    found = to_projections(layer_of("softmax", ranks=(1,)), head_dim=6, value_dim=9)
    assert found.W_Q.shape == (1, 4, 6)
    assert found.W_V.shape == (1, 4, 9)
    assert np.abs(found.W_V[:, :, 3:]).max() == 0.0
    assert np.abs(found.W_Q[:, :, 1:]).max() < 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_zero_heads_stay(kind):
    layer = KINDS[kind](np.zeros((2, 3, 3)), np.zeros((2, 3, 2)), "full")
    found = to_projections(layer)
    assert (found.n_heads, found.head_dim, found.value_dim, found.change) == (2, 1, 1, 0.0)
    assert found.to_layer() == layer


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_do_not_matter(scale):
    plain = layer_of("linear")
    layer = pa.LinearAttention(scale * plain.attn, plain.value / scale, "causal")
    found = to_projections(layer, head_dim=1)
    assert found.n_heads == 5
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-13)


@pytest.mark.parametrize("size", [1e-7, 1e5, 1e9])
@pytest.mark.parametrize("kind", KINDS)
def test_units_of_coordinates_do_not_matter(kind, size):
    """Small entries of attn and value belong to large coordinates: they are no rounding."""
    sizes = np.array([1.0, size, 1.0, 1.0])
    plain = layer_of(kind, ranks=(2, 4), mode="full")
    layer = KINDS[kind](plain.attn / sizes / sizes[:, None], plain.value / sizes[:, None], "full")
    X = tokens_of(layer) * sizes
    for head_dim in (None, 4) if kind == "softmax" else (None, 1, 3):
        found = to_projections(layer, head_dim)
        assert found.head_dim == (head_dim or 4)
        assert relative(found.to_layer()(X), layer(X)) < 1e3 * EPS
        assert found.change < 1e-12
    # A tolerance that is asked for is one in norm.
    assert to_projections(layer, tolerance=1e-3).head_dim < 4


def noisy(kind, noise=1e-9, bias=False):
    """Ranks of 2 up to noise."""
    layer = layer_of(kind, ranks=(2, 2), n_outputs=4, bias=bias)
    rng = np.random.default_rng(3)
    attn = layer.attn + noise * rng.standard_normal(layer.attn.shape)
    return KINDS[kind](attn, layer.value, layer.mode, bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_within_tolerance_is_dropped_and_reported(kind, bias):
    layer = noisy(kind, bias=bias)
    full = to_projections(layer)
    assert full.head_dim == 4 + (bias and kind == "linear")
    found = to_projections(layer, head_dim=2, tolerance=1e-7)
    assert found.n_heads == 2
    assert 1e-10 < found.change < 1e-7
    assert f"{found.change:.1e}" in str(found)
    back = found.to_layer()
    match = pa.match_heads(back, layer)
    visible = found.change * (1.0 if kind == "linear" else 2.0)
    assert 1e-11 < match.worst_attn <= visible * (1 + 1e-6) + 1e-14
    assert pa.same_function(back, layer, tolerance=1e-7)
    # With room for it, nothing is dropped.
    assert to_projections(layer, head_dim=5, tolerance=1e-7).change < 1e-15


def test_the_tolerance_that_the_message_names_is_enough():
    layer = noisy("softmax")
    with pytest.raises(InvalidInput, match="rank 4") as caught:
        to_projections(layer, head_dim=2)
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    found = to_projections(layer, head_dim=2, tolerance=named)
    assert 0.8 * named < found.change <= named


def test_the_change_of_a_linear_head_is_that_of_its_last_part():
    layer = noisy("linear")
    assert to_projections(layer, head_dim=1, tolerance=1e-7).n_heads == 4
    exact = to_projections(layer, head_dim=1)
    assert (exact.n_heads, exact.change) == (8, 0.0)


def test_misuse_of_to_projections_is_named():
    layer = layer_of("linear")
    for argument in ("head_dim", "value_dim"):
        with pytest.raises(InvalidInput, match=f"{argument} must be an integer"):
            to_projections(layer, **{argument: 0})
    with pytest.raises(InvalidInput, match="tolerance must be a number between 0 and 1"):
        to_projections(layer, tolerance=2.0)
    with pytest.raises(InvalidType, match=r"got int.*\.layer"):
        to_projections(3)


def test_the_content_cannot_be_changed():
    found = to_projections(layer_of("linear"))
    with pytest.raises(ValueError, match="read-only"):
        found.W_Q[0, 0, 0] = 1.0
    assert repr(found) == "Projections(linear, 2 heads, head_dim=3, value_dim=3, scale=1)"
    assert str(found).startswith("2 linear heads as 2 heads with queries and keys of 3 coord")
