"""Forward passes, comparison of layers and of coefficients, at every scale and in every mode."""

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from invariances import factors, few_and_many, hold, seeds
from planted import EPS
from polyattn.model.forward import coef_forward
from polyattn.reference import layer as reference
from polyattn.sequences import MODES

powers = st.integers(-60, 60)


def some_layer(seed: int, mode: str, kind=pa.LinearAttention):
    """A layer and sequences (N, n, d) for it."""
    rng = np.random.default_rng(seed)
    n_dims, n_heads, n_outputs = (int(rng.integers(1, high)) for high in (5, 6, 4))
    attn = rng.standard_normal((n_heads, n_dims, n_dims))
    value = rng.standard_normal((n_heads, n_dims, n_outputs))
    X = rng.standard_normal((int(rng.integers(1, 6)), int(rng.integers(1, 70)), n_dims))
    return kind(attn, value, mode=mode), X


def size_of(layer: pa.LinearAttention, X: np.ndarray) -> np.ndarray:
    """What is added up in outputs: those of the layer without signs."""
    unsigned = pa.LinearAttention(np.abs(layer.attn), np.abs(layer.value), layer.mode)
    return unsigned(np.abs(X))


def check_forward(seed: int, mode: str, tokens: int, attn: int, value: int) -> None:
    layer, X = some_layer(seed, mode)
    outputs = layer(X)
    rounding = 4 * EPS * (X.shape[1] + 20) * size_of(layer, X)
    # Powers of two change no bit, in one call or sequence by sequence.
    scaled = pa.LinearAttention(np.ldexp(layer.attn, attn), np.ldexp(layer.value, value), mode)
    moved = np.ldexp(outputs, 3 * tokens + attn + value)
    assert np.array_equal(scaled(np.ldexp(X, tokens)), moved)
    # All forms of the input: a list, one by one, reversed, as float32.
    for some in (list(X), pa.SequenceBatch.from_array(X)):
        assert np.allclose(np.array(layer(some)), outputs, rtol=0, atol=rounding.max())
    singles = np.array([layer(x) for x in X])
    assert np.all(np.abs(singles - outputs) <= rounding)
    assert np.all(np.abs(layer(X[::-1])[::-1] - outputs) <= rounding)
    short = X.astype(np.float32)
    assert np.array_equal(layer(short), layer(short.astype(np.float64)))
    # The heads, and the coefficients that they fold into, are one function.
    literal = np.array([reference.forward(layer.attn, layer.value, x, mode) for x in X[:2]])
    assert np.all(np.abs(literal - outputs[:2]) <= rounding[:2])
    folded = coef_forward(pa.SequenceBatch.from_array(X), layer.coef, layer.layout)
    assert np.all(np.abs(folded.reshape(outputs.shape) - outputs) <= rounding)


@few_and_many
@pytest.mark.parametrize("mode", MODES)
def test_outputs_move_with_tokens_and_heads(examples, mode):
    hold(
        partial(check_forward, mode=mode),
        examples,
        seed=seeds,
        tokens=powers,
        attn=powers,
        value=powers,
    )


def check_the_modes_agree_where_they_mean_the_same(kind, seed) -> None:
    """A causal output is that of the prefix, and the last of a full one that of ``last``."""
    causal, X = some_layer(seed, "causal", kind)
    last, full = (kind(causal.attn, causal.value, mode=mode) for mode in ("last", "full"))
    outputs, expected = causal(X), last(X)
    tolerance = 1e3 * EPS * X.shape[1] * np.abs(outputs).max() * 10
    assert np.allclose(outputs[:, -1], expected, rtol=0, atol=tolerance)
    assert np.allclose(full(X)[:, -1], expected, rtol=0, atol=tolerance)
    for t in (1, X.shape[1] // 2 + 1):
        assert np.allclose(outputs[:, t - 1], last(X[:, :t]), rtol=0, atol=tolerance)


@few_and_many
@pytest.mark.parametrize("kind", [pa.LinearAttention, pa.SoftmaxAttention])
def test_the_modes_agree_where_they_mean_the_same(examples, kind):
    hold(partial(check_the_modes_agree_where_they_mean_the_same, kind=kind), examples, seed=seeds)


def check_softmax_sees_only_products_of_tokens_and_heads(seed, power) -> None:
    layer, X = some_layer(seed, "causal", pa.SoftmaxAttention)
    scaled = pa.SoftmaxAttention(
        np.ldexp(layer.attn, -2 * power), np.ldexp(layer.value, -power), mode="causal"
    )
    assert np.array_equal(scaled(np.ldexp(X, power)), layer(X))


@few_and_many
def test_softmax_sees_only_products_of_tokens_and_heads(examples):
    hold(
        check_softmax_sees_only_products_of_tokens_and_heads,
        examples,
        seed=seeds,
        power=st.integers(-30, 30),
    )


def check_same(seed: int, factor: float, kind) -> None:
    """Heads permuted, split, and (for linear ones) rescaled are the same function."""
    layer, _ = some_layer(seed, "last", kind)
    rng = np.random.default_rng(seed)
    order = rng.permutation(layer.n_heads)
    scale = factor if kind is pa.LinearAttention else 1.0
    attn, value = layer.attn[order] * scale, layer.value[order] / scale
    split = np.concatenate([value[:1] * 0.25, value[1:], value[:1] * 0.75])
    other = kind(np.concatenate([attn, attn[:1]]), split, mode="last")
    assert pa.same_function(layer, other)
    assert pa.same_function(other, layer)
    wrong = kind(attn, value * (1 + 1e-6), mode="last")
    assert not pa.same_function(layer, wrong)
    # Whatever the units of inputs and outputs.
    far = [
        kind(some.attn * factor, some.value / np.sqrt(factor), mode="last")
        for some in (layer, other, wrong)
    ]
    assert pa.same_function(far[0], far[1])
    assert not pa.same_function(far[0], far[2])


@few_and_many
@pytest.mark.parametrize("kind", [pa.LinearAttention, pa.SoftmaxAttention])
def test_the_same_function_is_recognised_in_any_units(examples, kind):
    hold(partial(check_same, kind=kind), examples, seed=seeds, factor=factors)


def check_the_distance_of_coefficients_has_their_units(seed, power, factor) -> None:
    one, _ = some_layer(seed, "last")
    rng = np.random.default_rng(seed)
    other = pa.LinearAttention(one.attn + rng.standard_normal(one.attn.shape), one.value)
    distance = pa.coefficient_distance(one, other)
    assert distance == pa.coefficient_distance(other, one)
    assert pa.coefficient_distance(one, one) == 0.0
    moved = (pa.LinearAttention(np.ldexp(x.attn, power), x.value) for x in (one, other))
    assert pa.coefficient_distance(*moved) == pytest.approx(np.ldexp(distance, power), rel=1e-14)
    moved = (pa.LinearAttention(x.attn * factor, x.value) for x in (one, other))
    assert pa.coefficient_distance(*moved) == pytest.approx(factor * distance, rel=1e-9)


@few_and_many
def test_the_distance_of_coefficients_has_their_units(examples):
    hold(
        check_the_distance_of_coefficients_has_their_units,
        examples,
        seed=seeds,
        power=powers,
        factor=factors,
    )
