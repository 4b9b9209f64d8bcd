"""Rounded, noisy, clipped and stateful answers of attention with other things around it."""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from adversarial_oracles import bfloat16
from polyattn import learn_from_queries
from polyattn.softmax.queries.raw_answers import RawAnswers
from sublayers import layer_norm, planted, rms_norm, turned, visible

NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm, None: lambda X: X}
ROUNDED = {
    "float64": lambda Y: Y,
    "float32": lambda Y: Y.astype(np.float32),
    "float16": lambda Y: Y.astype(np.float16),
    "bfloat16": bfloat16,
}
X = np.random.default_rng(9).standard_normal((3, 9, 6))


def sublayer(layer, kind=None, residual=True, digits="float64"):
    def answers(X):
        return ROUNDED[digits](residual * X + layer(NORMS[kind](X)))

    return answers


def errors_in_bars(found, true):
    """Errors of attn and value, and their bars, of what can be seen of a layer."""
    d, order = true.n_dims, pa.match_heads(found.layer, true).order
    parts = (
        (true.attn[:, :, :d], found.layer.attn[:, :, :d], found.attn_error[:, :, :d]),
        (true.value[:, :d], found.layer.value[:, :d], found.value_error[:, :d]),
    )
    return [(b[order] - a, bar[order]) for a, b, bar in parts]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", [None, "layer_norm", "rms_norm"])
@pytest.mark.parametrize("digits", ["float64", "float32"])
def test_bars_hold_whatever_lies_around(digits, kind, residual, bias):
    layer = planted(bias=bias)
    found = learn_from_queries(sublayer(layer, kind, residual, digits), 6, bias=bias)
    assert found.outcome.name == "recovered", found.outcome
    assert (found.residual, found.normalisation, found.mode) == (residual, kind, "causal")
    parts = errors_in_bars(found, visible(layer, kind == "layer_norm"))
    within = np.concatenate([(np.abs(error) < 1.96 * bar).ravel() for error, bar in parts])
    assert np.mean(within) > 0.8
    for error, bar in parts:
        assert np.max(np.linalg.norm(error, axis=(1, 2)) / np.linalg.norm(bar, axis=(1, 2))) < 3
    np.testing.assert_allclose(
        found.predict(X),
        sublayer(layer, kind, residual)(X),
        atol=1e-7 if digits == "float64" else 1e-3,
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("digits", ["float16", "bfloat16"])
def test_a_residual_connection_in_few_bits(digits, bias):
    layer = planted(bias=bias)
    found = learn_from_queries(sublayer(layer, digits=digits), 6, bias=bias)
    assert found.recovered, found.outcome
    assert found.residual
    assert found.doubt < 1e-2
    for error, bar in errors_in_bars(found, layer):
        assert np.max(np.linalg.norm(error, axis=(1, 2)) / np.linalg.norm(bar, axis=(1, 2))) < 3


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("digits", ["float16", "bfloat16"])
def test_few_bits_behind_a_normalisation_are_never_called_exact(digits, kind, residual):
    layer = planted()
    found = learn_from_queries(sublayer(layer, kind, residual, digits), 6, max_queries=6000)
    assert found.outcome.name != "recovered"
    if found.recovered:
        for error, bar in errors_in_bars(found, visible(layer, kind == "layer_norm")):
            assert np.max(np.linalg.norm(error, axis=(1, 2)) / np.linalg.norm(bar, axis=(1, 2))) < 3


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", [None, "rms_norm"])
@pytest.mark.parametrize("digits", ["float64", "float32"])
def test_rotary_positions_have_a_doubt_that_holds_and_no_bars(digits, kind, residual):
    layer = turned()
    found = learn_from_queries(sublayer(layer, kind, residual, digits), 6)
    assert found.outcome.name in ("recovered", "imprecise"), found.outcome
    assert found.attn_error is None
    assert found.value_error is None
    apart = np.linalg.norm(found.layer.value[:, None] - layer.value[None], axis=(2, 3))
    order = np.argmin(apart, axis=0)
    for offset in (0, 1, 20):
        true = layer.attn_at(offset)
        wrong = np.linalg.norm(found.layer.attn_at(offset)[order] - true, axis=(1, 2))
        assert np.max(wrong / np.linalg.norm(true, axis=(1, 2))) < 4 * found.doubt


@pytest.mark.parametrize("digits", ["float16", "bfloat16"])
def test_rotary_positions_in_few_bits_are_not_claimed_wrongly(digits):
    """Neither recovered, nor answered with an advice that was followed already."""
    for kind in (None, "rms_norm"):
        oracle = sublayer(turned(), kind, False, digits)
        found = learn_from_queries(oracle, 6, max_queries=4000)
        assert not found.recovered
        assert found.outcome.name in ("not_recovered", "imprecise", "budget", "not_attention")


@pytest.mark.parametrize("kind", [None, "layer_norm", "rms_norm"])
def test_clipped_sums_with_the_input_are_named(kind):
    """The bound is one of the answers, not of the attention in them."""
    for bound in (0.3, 8.0):
        inner = sublayer(planted(), kind)
        found = learn_from_queries(
            lambda X, inner=inner, bound=bound: np.clip(inner(X), -bound, bound), 6
        )
        assert not found.outcome.ok
        assert f"Answers are clipped: none is larger than {bound:g}" in found.outcome.sentence


@pytest.mark.parametrize("digits", ROUNDED)
def test_answers_behind_a_normalisation_are_not_called_clipped(digits):
    """Large tokens of several sizes have the same answers there, which are no bound."""
    found = learn_from_queries(sublayer(planted(), "rms_norm", False, digits), 6, max_queries=900)
    assert "clipped" not in str(found.outcome)
    raw = RawAnswers()
    tokens = np.random.default_rng(0).standard_normal((1, 1, 6))
    for size in 2.0 ** np.arange(8):
        for sign in (1, -1):
            raw.add(sign * size * tokens, np.array([[sign * 2.0, 1.0]]))
    assert raw.bound is None
    for other in np.random.default_rng(1).standard_normal((8, 1, 1, 6)):
        raw.add(other, np.array([[np.sign(other[0, 0, 0]) * 2.0, 2.0]]))
    assert raw.bound == 2.0


class Counting:
    """Its input and attention, and a number that grows from call to call."""

    def __init__(self, size, kind):
        self.size, self.inner, self.n = size, sublayer(planted(), kind), 0

    def __call__(self, X):
        self.n += 1
        return self.inner(X) + self.size * self.n


@pytest.mark.parametrize("kind", [None, "rms_norm"])
@pytest.mark.parametrize("size", [1e-6, 1e-2, 10.0])
def test_state_beside_a_residual_connection_is_named(kind, size):
    found = learn_from_queries(Counting(size, kind), 6, bias=True)
    assert found.outcome.name == "stateful", found.outcome


@pytest.mark.parametrize("kind", [None, "rms_norm"])
def test_statistics_of_the_batch_beside_a_residual_connection_are_named(kind):
    inner = sublayer(planted(), kind, False)
    found = learn_from_queries(lambda X: X + inner(X) * (1 + 1e-6 * np.std(X)), 6)
    assert found.outcome.name == "stateful", found.outcome


def test_rounding_is_that_of_the_sum_with_the_input():
    """Attention a thousand times smaller than its input has few digits left, and is no state."""
    layer = planted()
    small = pa.SoftmaxAttention(layer.attn, 1e-3 * layer.value, layer.mode)
    found = learn_from_queries(sublayer(small, digits="float32"), 6)
    assert found.recovered, found.outcome
    assert found.residual
    for error, bar in errors_in_bars(found, small):
        assert np.max(np.linalg.norm(error, axis=(1, 2)) / np.linalg.norm(bar, axis=(1, 2))) < 3


@pytest.mark.parametrize("given", [{}, {"bias": True}], ids=str)
def test_nothing_but_the_input_has_one_sentence(given):
    found = learn_from_queries(lambda X: X, 6, **given)
    assert found.outcome.name == "not_attention"
    assert "The answer is the token itself: attention has no visible effect" in str(found.outcome)
    shifted = learn_from_queries(lambda X: X + 1.5, 6, bias=True)
    assert "The answer is the token itself and a constant" in shifted.outcome.sentence
