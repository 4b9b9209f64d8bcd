"""Black boxes of extreme size, and heads that nearly agree: recovered means recovered."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import polyattn as pa
from polyattn.softmax.queries import learn_from_queries


def asked(layer, **options) -> pa.softmax.QueryResult:
    """Learned without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return learn_from_queries(layer, **options)


@pytest.fixture
def layer():
    return pa.data.random_softmax_layer(3, 2, n_heads=2, random_state=0)


def close(found: pa.softmax.QueryResult, planted: pa.SoftmaxAttention) -> bool:
    match = pa.match_heads(found.layer, planted)
    return max(match.worst_attn, match.worst_value) <= max(10 * found.doubt, 1e-9)


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-160, 1e155, 1e200, 1e290])
def test_values_of_any_size(layer, factor):
    large = pa.SoftmaxAttention(layer.attn, factor * layer.value)
    found = asked(large, n_dims=3)
    assert found.recovered, found.outcome
    assert found.n_heads == 2
    # In units in which norms of heads do not underflow.
    restored = pa.SoftmaxAttention(found.layer.attn, found.layer.value / factor)
    match = pa.match_heads(restored, layer)
    assert max(match.worst_attn, match.worst_value) < 1e-9
    assert 0 < found.deviation < 1e-9
    assert 0 < found.validation_error < 1e-9


@pytest.mark.parametrize("factor", [1e-250, 1e-100, 1e-40, 1e-30, 1e-20])
def test_attention_that_acts_on_large_tokens_alone(layer, factor):
    small = pa.SoftmaxAttention(factor * layer.attn, layer.value)
    found = asked(small, n_dims=3)
    assert found.recovered, found.outcome
    restored = pa.SoftmaxAttention(found.layer.attn / factor, found.layer.value)
    match = pa.match_heads(restored, layer)
    assert max(match.worst_attn, match.worst_value) < 1e-9


def test_no_attention_at_any_size_is_one_head(layer):
    flat = pa.SoftmaxAttention(0 * layer.attn, layer.value)
    found = asked(flat, n_dims=3)
    assert found.recovered, found.outcome
    assert found.n_heads == 1
    np.testing.assert_allclose(found.layer.value[0], layer.value.sum(axis=0), atol=1e-12)


def test_tokens_that_are_not_answered_are_named(layer):
    """Attention of 1e-40 acts on tokens that this black box refuses."""
    small = pa.SoftmaxAttention(1e-40 * layer.attn, layer.value)

    def narrow(X):
        if np.abs(X).max() > 1e15:
            raise OverflowError("too large")
        return small(X)

    found = asked(narrow, n_dims=3)
    assert not found.recovered
    assert found.outcome.name == "recovered_on_these_inputs", found.outcome
    assert "up to size 1e+12" in str(found.outcome)


def test_large_tokens_beside_a_constant_are_refused():
    layer = pa.data.random_softmax_layer(4, 2, n_heads=2, random_state=0)
    small = pa.SoftmaxAttention(1e-40 * layer.attn, layer.value, bias=True)
    found = asked(small, n_dims=3, bias=True)
    assert found.outcome.name == "saturated", found.outcome
    assert "constant coordinate" in str(found.outcome)


@pytest.mark.parametrize("seed", [294, 468, 932, 1396, 1570])
def test_heads_that_nearly_agree_are_not_called_one(seed):
    rng = np.random.default_rng(seed)
    d, n_heads, e = (int(rng.integers(*span)) for span in ((2, 6), (1, 4), (1, 5)))
    attn = rng.standard_normal((n_heads, d, d)) / np.sqrt(d)
    value = rng.standard_normal((n_heads, d, e))
    attn[1] = attn[0] + 10.0 ** rng.uniform(-9, -1) * attn[1]
    layer = pa.SoftmaxAttention(attn, value)
    found = asked(layer, n_dims=d, random_state=seed, max_queries=20_000)
    assert not found.recovered or close(found, layer), found.outcome
    assert found.outcome.name == "imprecise"
    assert "heads nearly alike" in str(found.outcome)
    assert found.doubt == np.inf


@pytest.mark.parametrize("gap", [1e-1, 1e-2])
def test_heads_that_differ_by_a_little_are_two(gap):
    rng = np.random.default_rng(0)
    layer = pa.data.random_softmax_layer(4, 3, n_heads=2, random_state=1)
    attn = np.stack([layer.attn[0], layer.attn[0] + gap * rng.standard_normal((4, 4))])
    near = pa.SoftmaxAttention(attn, layer.value)
    found = asked(near, n_dims=4)
    assert found.recovered, found.outcome
    assert found.n_heads == 2
    assert close(found, near)
