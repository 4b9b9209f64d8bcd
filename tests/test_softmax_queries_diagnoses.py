"""Black boxes that misbehave are told in what: a sentence that names it, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from polyattn import learn_from_queries
from polyattn.errors import InvalidInput


@pytest.fixture
def layer():
    rng = np.random.default_rng(0)
    return pa.SoftmaxAttention(rng.standard_normal((2, 5, 5)) / 2, rng.standard_normal((2, 5, 5)))


@pytest.mark.parametrize("bound", [0.3, 2.0, 8.0])
def test_clipped_answers_are_named(layer, bound):
    asked = learn_from_queries(lambda X: np.clip(layer(X), -bound, bound), 5)
    assert not asked.outcome.ok
    assert f"Answers are clipped: none is larger than {bound:g}" in asked.outcome.sentence
    assert "without the bound" in asked.outcome.next_step


def test_a_bound_that_large_tokens_reach_alone(layer):
    """The layer is right below it; the claim is about these inputs, not about all."""
    asked = learn_from_queries(lambda X: np.clip(layer(X), -1e3, 1e3), 5)
    assert asked.recovered
    assert "clipped" not in asked.outcome.sentence
    X = np.random.default_rng(1).standard_normal((4, 6, 5))
    np.testing.assert_allclose(asked.layer(X), layer(X), atol=1e-8)


@pytest.mark.parametrize("digits", [np.float64, np.float16])
def test_unclipped_answers_are_not_called_clipped(layer, digits):
    assert "clipped" not in str(learn_from_queries(lambda X: layer(X).astype(digits), 5).outcome)


class Counting:
    def __init__(self, layer, size):
        self.layer, self.size, self.n = layer, size, 0

    def __call__(self, X):
        self.n += 1
        return self.layer(X) + self.size * self.n


@pytest.mark.parametrize("size", [1e-6, 1e-2, 10.0])
def test_a_counter_is_state(layer, size):
    asked = learn_from_queries(Counting(layer, size), 5, bias=True)
    assert asked.outcome.name == "stateful", asked.outcome
    assert "answers depend on earlier queries" in asked.outcome.sentence
    assert "caches and counters" in asked.outcome.next_step


def test_a_cache_is_state(layer):
    kept = np.zeros((1, 0, 5))

    def caching(X):
        nonlocal kept
        before = np.broadcast_to(kept, (len(X), *kept.shape[1:]))
        kept = X[:1, -1:]
        return layer(np.concatenate([before, X], axis=1))[:, before.shape[1] :]

    asked = learn_from_queries(caching, 5)
    assert asked.outcome.name == "stateful", asked.outcome


@pytest.mark.parametrize("size", [1e-6, 0.3])
def test_statistics_of_the_batch_are_named(layer, size):
    asked = learn_from_queries(lambda X: layer(X) * (1 + size * np.std(X)), 5)
    assert asked.outcome.name == "stateful", asked.outcome
    assert "answers depend on the batch" in asked.outcome.sentence
    assert "evaluation mode" in asked.outcome.next_step


def test_a_change_in_the_middle_of_the_run_is_noticed(layer):
    n_calls = 0

    def drifting(X):
        nonlocal n_calls
        n_calls += 1
        return layer(X) * (1 + 1e-6 * (n_calls > 25))

    asked = learn_from_queries(drifting, 5, max_queries=4000)
    assert not asked.outcome.ok
    assert asked.outcome.name in ("stateful", "not_recovered", "imprecise"), asked.outcome


@pytest.mark.parametrize("bias", [False, True])
def test_an_oracle_that_ignores_its_input(bias):
    constant = np.random.default_rng(2).standard_normal(3)
    asked = learn_from_queries(lambda X: np.broadcast_to(constant, (*X.shape[:2], 3)), 5, bias=bias)
    assert asked.outcome.name == "not_attention"
    assert "ignores its input" in asked.outcome.sentence


@pytest.mark.parametrize("digits", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_an_oracle_that_returns_its_input(digits, bias):
    asked = learn_from_queries(lambda X: X.astype(digits), 5, bias=bias)
    assert asked.outcome.name == "not_attention"
    assert "The answer is the token itself" in asked.outcome.sentence
    assert "residual connection" in asked.outcome.next_step


def test_twice_the_input_is_not_the_input():
    asked = learn_from_queries(lambda X: 2 * X, 5)
    assert asked.outcome.name == "not_attention"
    assert "token itself" not in asked.outcome.sentence


@pytest.mark.parametrize("size", [1e-6, 1e-2])
def test_positions_that_a_copy_shows_are_named(layer, size):
    asked = learn_from_queries(
        lambda X: layer(X) + size * np.arange(X.shape[1])[:, None], 5, max_queries=4000
    )
    assert asked.outcome.name == "not_attention"
    assert "A token and its copy" in asked.outcome.sentence


@pytest.mark.parametrize("digits", [np.float64, np.float32, np.float16])
def test_a_small_bias_is_not_taken_for_rounding(digits):
    rng = np.random.default_rng(3)
    value = rng.standard_normal((2, 6, 4))
    value[:, -1] *= 1e-2
    biased = pa.SoftmaxAttention(rng.standard_normal((2, 6, 6)), value, bias=True)
    asked = learn_from_queries(lambda X: biased(X).astype(digits), 5)
    assert asked.outcome.name == "bias_needed"


def test_answers_of_a_wrong_shape_or_without_numbers_are_refused(layer):
    with pytest.raises(InvalidInput, match="shape"):
        learn_from_queries(lambda X: layer(X)[:, -1], 5)
    with pytest.raises(InvalidInput, match="NaN"):
        learn_from_queries(lambda X: np.nan * X, 5)


def test_noise_beyond_averaging_is_named(layer):
    rng = np.random.default_rng(4)
    asked = learn_from_queries(lambda X: layer(X) + rng.standard_normal((*X.shape[:2], 5)), 5)
    assert asked.outcome.name == "not_deterministic"
    assert "differ by" in asked.outcome.sentence


def test_noise_that_hides_the_heads_is_no_recovery():
    layer, rng = (
        pa.data.random_softmax_layer(6, n_heads=2, random_state=11),
        np.random.default_rng(1),
    )
    found = pa.learn_from_queries(lambda X: layer(X) + 0.05 * rng.standard_normal(X.shape), 6)
    assert found.outcome.name == "not_deterministic"
    assert "No layer explains the oracle" in found.outcome.sentence


def test_sentences_name_the_lengths_that_were_checked_and_answers_of_zero():
    layer = pa.data.random_softmax_layer(3, n_heads=1, random_state=0)
    assert "of up to 256 tokens" in pa.learn_from_queries(layer, 3).outcome.sentence
    silent = pa.learn_from_queries(lambda X: 0 * X, 3)
    assert "Every answer was zero" in silent.outcome.sentence
    assert "zero" not in pa.learn_from_queries(layer, 3).outcome.sentence
