"""Layers with rotary positions as functions: the same one, written in one way, head by head."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.model.offsets import components, head_distances
from rotary_cases import random_rotary

FREQUENCIES = [1.3, 0.0, 0.2, np.pi]


def layer_of(seed=0, bias=False, mode="causal", n_heads=3, rotary=FREQUENCIES):
    rng = np.random.default_rng(seed)
    width = 3 + bias
    query, key = rng.standard_normal((2, n_heads, width, 2 * len(rotary)))
    value = rng.standard_normal((n_heads, width, 2))
    return pa.SoftmaxAttention((query, key), value, mode, bias, rotary=rotary)


def as_planes(layer):
    half = len(layer.frequencies)
    return [W[..., :half] + 1j * W[..., half:] for W in (layer.query, layer.key)]


def from_planes(planes, frequencies, like, value=None):
    query, key = (np.concatenate([each.real, each.imag], axis=2) for each in planes)
    value = like.value if value is None else value
    return pa.SoftmaxAttention((query, key), value, like.mode, like.bias, rotary=frequencies)


def disguised(layer, seed=0):
    """The same function in other parameters."""
    rng = np.random.default_rng(seed)
    planes, frequencies = as_planes(layer), layer.frequencies.copy()
    # A complex factor for each plane and head.
    factor = rng.uniform(0.5, 2.0, planes[0][:, :1].shape) * np.exp(
        1j * rng.uniform(0, 6, planes[0][:, :1].shape)
    )
    planes = [planes[0] * factor, planes[1] / factor.conj()]
    # Integers do not tell f from f + 2 pi, nor from -f with everything conjugate.
    flipped = rng.random(len(frequencies)) < 0.5
    planes = [np.where(flipped, each.conj(), each) for each in planes]
    frequencies = np.where(flipped, -frequencies, frequencies)
    frequencies = frequencies + 2 * np.pi * rng.integers(-3, 4, len(frequencies))
    # A plane as the mixture of two of one frequency, an idle plane, and another order.
    planes = [np.concatenate([each, each[..., :1], each[..., :1]], axis=2) for each in planes]
    planes[1][..., 0] *= 0.25
    planes[1][..., -2] *= 0.75
    planes[0][..., -1] = 0.0
    order = rng.permutation(len(frequencies) + 2)
    frequencies = np.append(frequencies, [frequencies[0], 0.7])[order]
    planes = [each[..., order] for each in planes]
    # One head as two, an idle head, and another order.
    heads = rng.permutation(layer.n_heads + 2)
    planes = [np.concatenate([each, each[:2]])[heads] for each in planes]
    value = np.concatenate([layer.value, layer.value[:1], np.zeros_like(layer.value[:1])])
    value[0] *= 0.25
    value[-2] *= 0.75
    if layer.bias:
        value[:, -1] += rng.permutation([1.0, -1.0, 2.0, -2.0] + [0.0] * (len(value) - 4))[:, None]
    return from_planes(planes, frequencies, layer, value[heads])


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), bias=st.booleans(), mode=st.sampled_from(["full", "causal"]))
def test_other_parameters_of_one_function(seed, bias, mode):
    layer = layer_of(seed, bias, mode)
    other = disguised(layer, seed)
    X = np.random.default_rng(seed).standard_normal((3, 6, 3))
    np.testing.assert_allclose(other(X), layer(X), atol=1e-9)
    assert pa.same_function(layer, other, 1e-9)
    assert pa.same_function(other, layer, 1e-9)
    written, also = pa.canonical(layer, 1e-9), pa.canonical(other, 1e-9)
    np.testing.assert_allclose(written(X), layer(X), atol=1e-9)
    assert written.n_heads == also.n_heads == 3
    np.testing.assert_allclose(written.frequencies, also.frequencies, rtol=1e-9)
    assert np.all(np.diff(written.frequencies) >= 0)
    # Singular vectors may change with rounding over the gap of singular values.
    match = pa.match_heads(also, written)
    assert match.worst_attn < 1e-9
    assert match.worst_value < 1e-9


def test_the_one_way_to_write_it():
    layer = layer_of(1, True)
    written, also = pa.canonical(layer), pa.canonical(disguised(layer, 5), 1e-9)
    np.testing.assert_allclose(written.query, also.query, atol=1e-8)
    np.testing.assert_allclose(written.key, also.key, atol=1e-8)
    np.testing.assert_allclose(written.value, also.value, atol=1e-8)
    again = pa.canonical(written)
    np.testing.assert_allclose(again.query, written.query, atol=1e-12)
    # Two terms in a plane of frequency zero: the one plane that was given is enough.
    np.testing.assert_allclose(written.frequencies, [0.0, 0.2, 1.3, np.pi])


@pytest.mark.parametrize("change", ["frequency", "query", "phase", "value", "order of planes"])
@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_other_functions_differ(change, mode):
    layer = layer_of(2, True, mode)
    planes, frequencies = as_planes(layer), layer.frequencies.copy()
    value = layer.value.copy()
    if change == "frequency":
        frequencies[0] *= 1 + 1e-6
    elif change == "query":
        planes[0][0, 0, 0] += 1e-6
    elif change == "phase":
        planes[0][0, :, 0] *= np.exp(1e-6j)
    elif change == "value":
        value[1, 0] += 1e-6
    else:
        frequencies[[0, 2]] = frequencies[[2, 0]]
    other = from_planes(planes, frequencies, layer, value)
    assert not pa.same_function(layer, other)
    assert pa.same_function(layer, layer)


def test_what_bias_hides():
    layer = layer_of(3, True)
    planes = as_planes(layer)
    for plane, visible in ((1, False), (0, True), (2, True), (3, True)):
        moved = [each.copy() for each in planes]
        moved[1][:, -1, plane] += 2.0
        other = from_planes(moved, layer.frequencies, layer)
        X = np.random.default_rng(4).standard_normal((3, 5, 3))
        assert (np.abs(other(X) - layer(X)).max() > 1e-3) == visible
        assert pa.same_function(layer, other) != visible
        assert (pa.match_heads(other, layer).worst_attn > 1e-3) == visible
    plain = pa.canonical(layer)
    assert pa.same_function(plain, layer)


@pytest.mark.parametrize("bias", [False, True])
def test_planes_that_are_not_turned_are_no_positions(bias):
    turned = layer_of(5, bias, rotary=np.array([0.0, 2 * np.pi]))
    plain = pa.SoftmaxAttention(turned.attn, turned.value, turned.mode, bias)
    assert pa.same_function(turned, plain)
    assert pa.canonical(turned).frequencies is None
    found, expected = pa.canonical(turned), pa.canonical(plain)
    np.testing.assert_allclose(found.attn, expected.attn, atol=1e-13)
    assert pa.match_heads(turned, plain).worst_attn < 1e-14
    other = layer_of(5, bias, rotary=np.array([0.0, 1e-3]))
    assert not pa.same_function(other, plain)
    np.testing.assert_array_equal(other.attn, plain.attn)
    assert pa.match_heads(other, plain).worst_attn > 0.1


def test_distances_are_root_mean_squares_over_offsets():
    """Frequencies of which offsets 0..39 are whole periods."""
    layer = layer_of(6, rotary=2 * np.pi * np.array([0.0, 0.1, 0.25, 0.5]))
    heads = head_distances([layer], 1e-12)
    attn = np.stack([layer.attn_at(offset) for offset in range(40)], axis=1)
    sizes = np.sqrt(np.mean(np.sum(attn**2, axis=(2, 3)), axis=1))
    np.testing.assert_allclose(heads.sizes, sizes, rtol=1e-12)
    apart = np.sqrt(np.mean(np.sum((attn[0] - attn[1]) ** 2, axis=(1, 2))))
    assert heads.distances[0, 1] == pytest.approx(apart, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-120, 1e120])
def test_distances_of_wide_layers_are_those_of_their_matrices(scale):
    """Where planes are fewer than coordinates, small matrices stand for N_g."""
    layers = [
        pa.data.random_softmax_layer(40, 2, 2, rank=8, rotary=rotary, random_state=seed, bias=True)
        for seed, rotary in enumerate([[1.0, 0.0, 0.3, np.pi], [1.0, 0.3, 0.3, 0.0]])
    ]
    layers = [
        pa.SoftmaxAttention(
            (scale * each.query, scale * each.key), each.value, "full", True,
            rotary=each.frequencies,
        )
        for each in layers
    ]  # fmt: skip
    found = head_distances(layers, 1e-12)
    parts = list(components(layers, 1e-12))
    assert len(parts) == 4
    assert parts[0].small().shape[1] < 41
    squares = np.zeros((4, 4))
    for part in parts:
        heads = np.concatenate(part.matrices) / scale**2
        between = np.abs(heads[:, None] - heads) ** 2
        squares += (1.0 if part.is_real else 0.5) * between.sum(axis=(2, 3))
    whole = np.sqrt(squares)
    unit = whole[0, 1] / found.distances[0, 1]
    np.testing.assert_allclose(unit * found.distances, whole, rtol=1e-12)


def test_components_add_up_to_the_attention():
    layer = layer_of(7, rotary=[1.0, -1.0, 5.0, 1.0 + 2 * np.pi, np.pi, -np.pi, 0.0])
    found = list(components([layer], 1e-12))
    assert [round(each.frequency, 12) for each in found] == [
        0.0, 1.0, round(2 * np.pi - 5.0, 12), round(np.pi, 12),
    ]  # fmt: skip
    for offset in (-3, 0, 1, 2, 17):
        parts = [np.real(each.matrices[0] * np.exp(1j * offset * each.frequency)) for each in found]
        np.testing.assert_allclose(sum(parts), layer.attn_at(offset), atol=1e-12)


def test_idle_layers_and_scales():
    layer = layer_of(8)
    idle = pa.SoftmaxAttention((layer.query, layer.key), 0 * layer.value, rotary=layer.frequencies)
    assert pa.canonical(idle).n_heads == 1
    assert not np.any(pa.canonical(idle).value)
    nothing = pa.SoftmaxAttention(
        (0 * layer.query, layer.key), layer.value, rotary=layer.frequencies
    )
    assert pa.canonical(nothing).n_heads == 1
    for scale in (1e-120, 1e120):
        large = pa.SoftmaxAttention(
            (scale * layer.query, scale * layer.key), layer.value, "causal", rotary=FREQUENCIES
        )
        assert pa.same_function(large, disguised(large))
        assert pa.match_heads(large, large).worst_attn == 0.0
        assert pa.canonical(large).n_heads == 3


def test_matching_names_the_heads():
    layer = random_rotary(n_heads=3)
    order = [2, 0, 1]
    other = pa.SoftmaxAttention(
        (layer.query[order], layer.key[order]), layer.value[order], rotary=layer.frequencies
    )
    assert pa.match_heads(other, layer).order.tolist() == [1, 2, 0]
    with pytest.raises(InvalidInput, match="their mode are"):
        pa.same_function(layer, random_rotary(n_heads=3, mode="last"))
