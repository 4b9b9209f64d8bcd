"""Oracles that are no attention, or more than attention: they are told apart, in few queries."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import learn_from_queries
from polyattn.softmax.queries.beginning import sized
from polyattn.softmax.queries.findings import QueryFindings
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.symmetry import require_symmetry

RNG = np.random.default_rng(4)
MAP = RNG.standard_normal((5, 5))


def planted(bias=False, seed=5, n_outputs=5):
    layer = pa.data.random_softmax_layer(
        5 + bias, n_heads=2, n_outputs=n_outputs, random_state=seed
    )
    return pa.SoftmaxAttention(layer.attn, layer.value, "causal", bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("digits", [np.float64, np.float32])
def test_a_linear_map_is_no_attention(bias, digits):
    """Float32 oracles overflow on the large tokens at which attention is looked for."""

    def oracle(X):
        with np.errstate(over="ignore", invalid="ignore"):
            return (X @ MAP + 0.5 * bias).astype(digits)

    found = learn_from_queries(oracle, 5, bias=bias)
    assert found.outcome.name == "not_attention", found.outcome
    assert "There is no attention: the last token is answered as if" in found.outcome.sentence
    assert "attention alone" in found.outcome.next_step


def test_tokens_that_are_not_answered_do_not_hide_it():
    def narrow(X):
        if np.abs(X).max() > 1e15:
            raise OverflowError("too large")
        return X @ MAP

    assert learn_from_queries(narrow, 5).outcome.name == "not_attention"


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("digits", [np.float64, np.float32])
def test_a_residual_connection_is_named(bias, size, digits):
    layer = planted(bias)
    layer = pa.SoftmaxAttention(size * layer.attn, layer.value, "causal", bias)

    def oracle(X):
        return (X + layer(X)).astype(digits)

    found = learn_from_queries(oracle, 5, bias=bias, residual=False)
    assert found.outcome.name == "other_structure", found.outcome
    assert "adds its input to attention (a residual connection)" in found.outcome.sentence
    assert "residual=True" in found.outcome.next_step
    assert found.n_queries < 1000
    # The advice helps.
    alone = learn_from_queries(oracle, 5, bias=bias)
    assert alone.recovered or alone.outcome.name == "imprecise"
    assert alone.recovered or digits is np.float32
    assert alone.residual
    assert alone.layer.mode == "causal"


def test_a_residual_connection_around_a_mean():
    flat = pa.SoftmaxAttention(np.zeros((1, 5, 5)), MAP[None], "full")
    found = learn_from_queries(lambda X: X + flat(X), 5)
    assert found.recovered
    assert found.residual
    np.testing.assert_allclose(found.layer.value, flat.value, atol=1e-10)
    plain = learn_from_queries(flat, 5)
    assert plain.recovered
    assert not plain.residual


@pytest.mark.parametrize("n_outputs", [3, 5])
def test_another_map_beside_attention_is_no_residual_connection(n_outputs):
    layer = planted(n_outputs=n_outputs)
    found = learn_from_queries(lambda X: X @ MAP[:, :n_outputs] + layer(X), 5)
    assert found.outcome.name == "not_attention"
    assert "residual" not in found.outcome.sentence
    assert "not softmax attention alone" in found.outcome.sentence


def test_positions_in_the_weights_are_seen():
    """A token and its copy are answered alike whatever the weights: two tokens show it."""
    layer = planted()

    def with_positions(X):
        n_tokens = X.shape[1]
        behind = np.subtract.outer(np.arange(n_tokens), np.arange(n_tokens))
        outputs = 0
        for A, V in zip(layer.attn, layer.value, strict=True):
            logits = X @ A @ X.transpose(0, 2, 1) - 0.5 * np.abs(behind)
            weights = np.exp(logits - logits.max(axis=2, keepdims=True))
            outputs = outputs + weights / weights.sum(axis=2, keepdims=True) @ X @ V
        return outputs

    found = learn_from_queries(with_positions, 5)
    assert found.outcome.name == "not_attention"
    assert "positions may matter" in found.outcome.sentence


@pytest.mark.parametrize("seed", range(30))
def test_attention_is_never_taken_for_something_else(seed):
    """Forwards and backwards add up whatever the heads: many, of any size, rounded, noisy."""
    rng = np.random.default_rng(seed)
    d, e, n_heads = (int(rng.integers(*span)) for span in ((1, 6), (1, 4), (1, 8)))
    bias = bool(rng.integers(2))
    attn = rng.standard_normal((n_heads, d + bias, d + bias)) * 10.0 ** rng.uniform(-3, 3)
    layer = pa.SoftmaxAttention(attn, rng.standard_normal((n_heads, d + bias, e)), bias=bias)
    digits, noise = (np.float32, np.float64)[seed % 2], (0.0, 1e-5)[seed % 3 == 0]

    def oracle(X, added=0.0):
        outputs = layer(X) + added * X[:, :, :1]
        return (outputs * (1 + noise * rng.standard_normal(outputs.shape))).astype(digits)

    def examine(function):
        findings = QueryFindings(Oracle(function, d, np.inf, 4096), bias)
        require_symmetry(sized(findings, rng))

    examine(oracle)
    # Negative control: half a coordinate of the token itself, added, is seen.
    with pytest.raises(Stopped, match=r"residual|softmax attention alone"):
        examine(lambda X: oracle(X, 0.5))
