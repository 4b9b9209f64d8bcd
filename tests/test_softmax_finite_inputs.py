"""Inputs of few kinds: other heads, far away, compute the same, and no claim is made.

Where every query sees two kinds of tokens equally often, heads have other signs; where queries
are few, heads of equal value pair otherwise; where outputs repeat each other, a few numbers
determine nothing.  Inputs beside them, as poor as they look, still show the heads.
"""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from polyattn.softmax.identifiability import other_layers
from polyattn.softmax.identifiability.other_layers import (
    Alternative,
    Unexamined,
    mirrored,
    rearranged,
)
from polyattn.softmax.judging import alternatives
from test_softmax_degenerate import MOST_BARS, in_bars


def bars_off(found: pa.LearnedSoftmax, planted: pa.SoftmaxAttention) -> float:
    """The largest error of a claim in units of its error bar; 0 where nothing is claimed."""
    return in_bars(found, planted) if found.recovered else 0.0


def pooled(seed: int, d: int = 2, mode: str = "full") -> pa.SoftmaxAttention:
    """One head, and one that attends to all tokens alike."""
    layer = pa.data.random_softmax_layer(d, n_heads=2, logits=1.4, mode=mode, random_state=seed)
    attn = layer.attn.copy()
    attn[1] = 0.0
    return pa.SoftmaxAttention(attn, layer.value, mode)


def of_one_value(seed: int, d: int, n_heads: int, e: int) -> pa.SoftmaxAttention:
    rng = np.random.default_rng(seed)
    attn = rng.standard_normal((n_heads, d, d))
    return pa.SoftmaxAttention(attn, np.repeat(rng.standard_normal((1, d, e)), n_heads, 0))


def gaussian(seed: int, n_tokens: int, d: int, n_sequences: int = 150) -> np.ndarray:
    return np.random.default_rng(1000 + seed).standard_normal((n_sequences, n_tokens, d))


def boolean(seed: int, d: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1.0, 1.0], (300, 4, d))


# Two kinds of tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_two_tokens_do_not_show_signs_beside_a_mean(seed, copies):
    layer = pooled(seed)
    X = np.concatenate([gaussian(seed, 2, 2)] * copies, axis=1)
    found = pa.learn_softmax(X, layer(X))
    assert found.outcome.name == "recovered_on_these_inputs", found.outcome
    assert "signs of heads" in str(found.outcome)
    assert np.isinf(found.attn_error).any()
    assert np.isinf(found.value_error).any()
    np.testing.assert_allclose(found.layer(X), layer(X), atol=1e-9)
    report = pa.softmax.identifiable_heads(layer, X)
    assert [finding.name for finding in report.findings] == ["opposite_heads"]


@pytest.mark.parametrize("seed", range(3))
def test_unequal_numbers_of_two_tokens_do(seed):
    layer, X = pooled(seed), gaussian(seed, 2, 2)[:, [0, 0, 1]]
    found = pa.learn_softmax(X, layer(X))
    assert found.recovered, found.outcome
    assert pa.match_heads(found.layer, layer).worst_value < 1e-8
    assert pa.softmax.identifiable_heads(layer, X).verdict == "identifiable"


@pytest.mark.parametrize(("n_tokens", "determined"), [(2, False), (3, True)])
def test_what_a_causal_query_sees_counts(n_tokens, determined):
    layer, X = pooled(1, mode="causal"), gaussian(1, n_tokens, 2)
    found = pa.learn_softmax(X, layer(X), mode="causal")
    assert found.recovered == determined, found.outcome
    assert bars_off(found, layer) <= MOST_BARS
    verdict = pa.softmax.identifiable_heads(layer, X).verdict
    assert verdict == ("identifiable" if determined else "not_identifiable")


def test_a_head_too_many_is_not_claimed_on_two_tokens():
    for seed in (0, 3):
        layer = pa.data.random_softmax_layer(2, n_heads=2, logits=1.4, random_state=seed)
        X = gaussian(seed, 2, 2)
        found = pa.learn_softmax(X, layer(X), random_state=seed)
        assert bars_off(found, layer) <= MOST_BARS, found.outcome


def test_values_that_cancel_flip_together_on_two_tokens():
    rng = np.random.default_rng(5)
    value = rng.standard_normal((2, 2, 2))
    layer = pa.SoftmaxAttention(rng.standard_normal((2, 2, 2)), np.stack([value[0], -value[0]]))
    X = gaussian(5, 2, 2)
    assert pa.learn_softmax(X, layer(X), 2).outcome.name == "recovered_on_these_inputs"
    assert pa.learn_softmax(gaussian(5, 3, 2), layer(gaussian(5, 3, 2)), 2).recovered
    # Heads whose values do not cancel have no other signs.
    free = pa.SoftmaxAttention(layer.attn, value)
    assert pa.learn_softmax(X, free(X), 2).recovered


@pytest.mark.parametrize("case", ["zero", "opposite", "cancelling"])
def test_mirrored_layers_agree_on_two_tokens_and_on_no_others(case):
    layer = pa.data.random_softmax_layer(3, 2, n_heads=3, logits=2.0, random_state=2)
    attn, value = layer.attn.copy(), layer.value.copy()
    if case == "zero":
        attn[1] = 0.0
    elif case == "opposite":
        attn[2] = -attn[0]
    else:
        value[2] = -value[0]
    layer = pa.SoftmaxAttention(attn, value)
    others = list(mirrored(attn, value, 1e-9))
    assert others
    for other in others:
        there = pa.SoftmaxAttention(other.attn, other.value)
        two, three = gaussian(0, 2, 3), gaussian(0, 3, 3)
        np.testing.assert_allclose(there(two), layer(two), atol=1e-12)
        assert np.abs(there(three) - layer(three)).max() > 1e-3


# Few queries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "d", "n_heads"), [(1, 2, 2), (2, 2, 2), (1, 2, 3), (1, 3, 3)])
def test_heads_of_one_value_pair_otherwise_on_boolean_tokens(seed, d, n_heads):
    layer, X = of_one_value(seed, d, n_heads, e=[3, 2, 1][seed % 3]), boolean(seed, d)
    found = pa.learn_softmax(X, layer(X), max_seconds=20, random_state=seed)
    assert bars_off(found, layer) <= MOST_BARS, found.outcome
    if d == 2:
        assert found.outcome.name == "ambiguous", found.outcome
        assert np.isinf(found.attn_error).all()
        report = pa.softmax.identifiable_heads(layer, X)
        assert [finding.name for finding in report.findings] == ["two_valued"]


@pytest.mark.parametrize("seed", range(3))
def test_eight_boolean_queries_determine_two_heads_of_one_value(seed):
    layer, X = of_one_value(seed, 3, 2, e=2), boolean(seed, 3)
    found = pa.learn_softmax(X, layer(X), random_state=seed)
    assert found.recovered, found.outcome
    assert bars_off(found, layer) <= MOST_BARS


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_dictionary_of_two_words_leaves_pairs_open_with_noise_too(noise):
    layer, rng = of_one_value(3, 2, 2, e=2), np.random.default_rng(0)
    X = np.array([[1.0, 0.3], [-0.2, 1.1]])[rng.integers(2, size=(400, 5))]
    Y = layer(X) + noise * rng.standard_normal((400, 5, 2))
    assert not pa.learn_softmax(X, Y, 2).recovered
    real = gaussian(3, 5, 2, 400)
    found = pa.learn_softmax(real, layer(real) + noise * rng.standard_normal((400, 5, 2)), 2)
    assert found.recovered, found.outcome


def test_three_heads_of_one_value_are_three_numbers_at_one_coordinate():
    """d = 1: the outputs are multiples of one, and four numbers are no evidence for two heads."""
    layer, X = of_one_value(0, 1, 3, e=3), boolean(0, 1)
    found = pa.learn_softmax(X, layer(X))
    assert found.outcome.name == "ill_determined", found.outcome
    assert "4 numbers for" in str(found.outcome)


def test_queries_that_are_zero_show_the_sum_of_values_alone():
    """Tokens 0 and 1: three values at the query 1 are no evidence for two heads."""
    rng = np.random.default_rng(0)
    attn = rng.standard_normal((3, 1, 1))
    attn[1] = -attn[0]
    layer = pa.SoftmaxAttention(attn, rng.standard_normal((3, 1, 2)))
    X = rng.integers(2, size=(200, 3, 1)).astype(float)
    assert not pa.learn_softmax(X, layer(X)).recovered


def test_rearranged_heads_agree_at_the_queries():
    rng = np.random.default_rng(0)
    attn = rng.standard_normal((3, 3, 3))
    value = np.repeat(rng.standard_normal((1, 3, 2)), 3, axis=0)
    words = rng.standard_normal((3, 3))
    layer = pa.SoftmaxAttention(attn, value)
    X = words[rng.integers(3, size=(40, 5))]
    others = list(rearranged(attn, value, words, 1e-9))
    assert others
    for other in others[:20]:
        assert isinstance(other, Alternative)
        there = pa.SoftmaxAttention(other.attn, other.value)
        np.testing.assert_allclose(there(X), layer(X), atol=1e-10)
        assert pa.match_heads(there, layer).worst_attn > 1e-3
    # A fourth word in general position leaves nothing to choose.
    more = np.concatenate([words, rng.standard_normal((8, 3))])
    assert not list(rearranged(attn, value, more, 1e-9))
    assert not list(rearranged(attn, rng.standard_normal((3, 3, 2)), words, 1e-9))


def test_what_is_too_much_to_try_is_no_recovery(monkeypatch):
    monkeypatch.setattr(other_layers, "MOST_TRIED", 4)
    layer, X = of_one_value(0, 3, 2, e=2), boolean(0, 3)
    queries = X.reshape(-1, 3)
    assert list(rearranged(layer.attn, layer.value, queries, 1e-9)) == [Unexamined((0, 1))]
    assert pa.softmax.identifiable_heads(layer, X).verdict == "undecided"
    found = pa.learn_softmax(X, layer(X))
    assert found.outcome.name == "ill_determined", found.outcome
    assert "too many ways" in str(found.outcome)
    # Queries on which no form of degree two vanishes need no trials.
    real = gaussian(0, 4, 3)
    assert not list(rearranged(layer.attn, layer.value, real.reshape(-1, 3), 1e-9))
    assert pa.learn_softmax(real, layer(real)).recovered


def test_too_many_pairings_end_the_search(monkeypatch):
    monkeypatch.setattr(other_layers, "MOST_SETS", 1)
    layer, X = of_one_value(0, 2, 3, e=2), boolean(0, 2)
    others = list(rearranged(layer.attn, layer.value, X.reshape(-1, 2), 1e-9))
    assert others == [Unexamined((0, 1, 2))]
    monkeypatch.setattr(alternatives, "MOST_TRIED", 0)
    monkeypatch.setattr(other_layers, "MOST_SETS", 100)
    assert not pa.learn_softmax(X, layer(X), 3).recovered


# Inputs that show everything --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_three_real_tokens_show_pooled_heads_and_heads_of_one_value(seed):
    for layer in (pooled(seed), of_one_value(seed, 2, 2, e=2)):
        X = gaussian(seed, 3, 2)
        found = pa.learn_softmax(X, layer(X))
        assert found.recovered, found.outcome
        match = pa.match_heads(found.layer, layer)
        assert match.worst_value < 1e-8
        assert pa.softmax.identifiable_heads(layer, X).verdict == "identifiable"


# Error bars -------------------------------------------------------------------------------------


def test_bars_hold_for_heads_that_differ_in_one_row():
    """Rounding of the values, divided by the square of a small singular value, was 30 bars."""
    rng = np.random.default_rng(410)
    d, n_heads, e, n = (int(rng.integers(*span)) for span in ((1, 5), (1, 4), (1, 4), (3, 6)))
    rng.integers(11), rng.integers(8)
    X = (rng.standard_normal((200, n, d)) > 0) * 1.0
    attn, value = rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e))
    attn[:, 1:], value[:] = attn[0, 1:], value[0]
    layer = pa.SoftmaxAttention(attn, value)
    found = pa.learn_softmax(X, layer(X), random_state=410)
    assert found.recovered, found.outcome
    assert bars_off(found, layer) <= MOST_BARS


def test_bars_are_no_finer_than_targets_of_single_precision():
    task = pa.data.planted_softmax(2000, 5, 3, 1, n_heads=1, random_state=0)
    found = pa.learn_softmax(task.X, task.Y.astype(np.float32), 1)
    assert found.recovered
    assert min(found.attn_error.min(), found.value_error.min()) >= 2.0**-24
