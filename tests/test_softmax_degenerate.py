"""Recoveries from degenerate inputs: "recovered" is never said beyond three error bars.

One-hot tokens, Boolean ones with pinned coordinates, tokens on a line, repeated coordinates, few
sequences, nearly equal heads, noise declared too small and too large, targets that no softmax
layer has.  Each seed draws a problem of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import polyattn as pa

N_SEEDS = 20
MOST_BARS = 3.0


@dataclass
class Problem:
    """Examples, the heads behind them (None: there are none), and what the learner is given."""

    X: np.ndarray
    Y: np.ndarray
    layer: pa.SoftmaxAttention | None
    n_heads: int | None = 2
    noise: float | None = None


def drawn(seed: int) -> tuple[np.random.Generator, pa.SoftmaxAttention, int]:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 6))
    return rng, pa.data.random_softmax_layer(d, n_heads=2, random_state=seed), d


def on_tokens(seed: int, layer: pa.SoftmaxAttention, X, rng) -> Problem:
    """Exact targets; for every fourth seed noisy ones, for every third the number is not given."""
    Y = layer(X)
    if seed % 4 == 3:
        Y = Y + 0.02 * np.std(Y) * rng.standard_normal(Y.shape)
    return Problem(X, Y, layer, None if seed % 3 == 2 else 2)


def one_hot(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    return on_tokens(seed, layer, np.eye(d)[rng.integers(0, d, (300, 4))], rng)


def pinned(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    X = pa.data.boolean_sequences(300, 4, d, random_state=seed)
    X[:, :, rng.integers(d)] = rng.choice([-1.0, 1.0])
    if seed % 2:
        # One more coordinate that is the same in all tokens of a sequence.
        X[:, :, rng.integers(d)] = rng.choice([-1.0, 1.0], (300, 1))
    return on_tokens(seed, layer, X, rng)


def on_a_line(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    X = rng.standard_normal((300, 4, 1)) * rng.standard_normal(d)
    return on_tokens(seed, layer, X + (seed % 2) * rng.standard_normal(d), rng)


def repeated(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    X = rng.standard_normal((300, 4, d))
    X[:, :, 0] = X[:, :, -1] if seed % 2 else 2 * X[:, :, 1] - X[:, :, -1]
    return on_tokens(seed, layer, X, rng)


def few_sequences(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    X = rng.standard_normal((int(rng.integers(14, 20)), 4, d))
    return on_tokens(seed, layer, np.repeat(X, 60, axis=0), rng)


def nearly_equal(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    gap = 10.0 ** -float(rng.integers(1, 10))
    attn = np.stack([layer.attn[0], layer.attn[0] + gap * layer.attn[1]])
    close = pa.SoftmaxAttention(attn, layer.value)
    X = rng.standard_normal((300, 4, d))
    if seed % 2:
        X = pa.data.boolean_sequences(300, 4, d, random_state=seed)
    real = (0.0, 0.037)[seed // 2 % 2]
    Y = close(X) + real * rng.standard_normal((300, 4, d))
    return Problem(X, Y, close, None if seed % 5 == 4 else 2, (0.037, None)[seed // 4 % 2])


def noisy(seed: int, factors: tuple[float, ...]) -> Problem:
    rng, layer, d = drawn(seed)
    X = pa.data.boolean_sequences(300, 4, d, random_state=seed)
    real = float(rng.choice([0.01, 0.05, 0.2])) * float(np.std(layer(X)))
    Y = layer(X) + real * rng.standard_normal((300, 4, d))
    declared = factors[seed % len(factors)] * real
    return Problem(X, Y, layer, None if seed % 3 == 2 else 2, declared)


def declared_too_small(seed: int) -> Problem:
    return noisy(seed, (0.0, 0.01, 0.3, 0.7, 0.9))


def declared_too_large(seed: int) -> Problem:
    problem = noisy(seed, (1.2, 2.0, 10.0, 100.0, 1e4))
    if seed % 2:
        # One head for targets of two: what is missing is smaller than what was declared.
        problem.n_heads, problem.noise = 1, 2 * float(np.std(problem.Y))
    return problem


def beside_softmax(seed: int) -> Problem:
    """A softmax layer, and a tenth of something that is none."""
    rng, layer, d = drawn(seed)
    X = pa.data.boolean_sequences(400, 4, d, random_state=seed)
    if seed % 2:
        X = rng.standard_normal((400, 4, d))
    exact, mix = layer(X), rng.standard_normal((d, d)) / np.sqrt(d)
    extra = (
        np.tanh(X @ mix),
        np.tanh(2 * exact),
        np.abs(X @ mix),
        np.tanh(X.mean(1)[:, None] @ mix),
    )
    Y = exact + 0.1 * extra[seed % 4] + 0.02 * rng.standard_normal(exact.shape)
    left = float(np.std(Y - exact))
    return Problem(X, Y, layer, 2, (None, left, 0.02)[seed % 3])


def no_softmax(seed: int) -> Problem:
    rng, layer, d = drawn(seed)
    X = rng.standard_normal((300, 4, d))
    scores = np.maximum(X @ layer.attn[0] @ X.transpose(0, 2, 1), 0.0) + 0.1
    Y = (
        scores / scores.sum(axis=2, keepdims=True) @ X @ layer.value[0],
        np.tanh(2 * layer(X)),
        rng.standard_normal(X.shape),
        X**2 @ layer.value[0],
    )[seed % 4]
    return Problem(X, Y, None, 1 + seed % 2, (None, float(np.std(Y)))[seed // 4 % 2])


KINDS: tuple[Callable[[int], Problem], ...] = (
    one_hot, pinned, on_a_line, repeated, few_sequences, nearly_equal, declared_too_small,
    declared_too_large, beside_softmax, no_softmax,
)  # fmt: skip


def bars_off(found: pa.LearnedSoftmax, problem: Problem) -> float:
    """The largest error of a matrix in units of its own error bar."""
    if problem.layer is None:
        return np.inf
    planted = problem.layer
    if found.n_heads == 1 and problem.n_heads != 1 and not is_exact(found):
        # Heads that noise does not tell apart count as one: the nearest one head.
        planted = pa.learn_softmax(problem.X, planted(problem.X), 1, method="moments").layer
    return in_bars(found, planted)


def in_bars(found: pa.LearnedSoftmax, planted: pa.SoftmaxAttention) -> float:
    """The largest error of a matrix of planted heads in units of its own error bar."""
    if found.n_heads != planted.n_heads:
        return np.inf
    match = pa.match_heads(found.layer, planted)
    of_attn = match.attn_errors / found.attn_error[match.order]
    of_value = match.value_errors / found.value_error[match.order]
    return float(max(of_attn.max(), of_value.max()))


def is_exact(found: pa.LearnedSoftmax) -> bool:
    return found.validation_error < 1e-9


def claim(
    kind: Callable[[int], Problem], seed: int, max_seconds: float | None
) -> tuple[pa.LearnedSoftmax, float]:
    """What was learned, and how many bars a claim is off; 0 where nothing is claimed."""
    problem = kind(seed)
    found = pa.learn_softmax(
        problem.X, problem.Y, problem.n_heads, noise=problem.noise, max_seconds=max_seconds
    )
    return found, bars_off(found, problem) if found.recovered else 0.0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_claims_hold_on_degenerate_inputs(kind):
    found, off = claim(kind, 0, max_seconds=1)
    assert off <= MOST_BARS, found.outcome


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_claim_of_two_hundred_is_beyond_three_bars(kind):
    for seed in range(100, 100 + N_SEEDS):
        found, off = claim(kind, seed, max_seconds=30)
        assert off <= MOST_BARS, (seed, str(found.outcome))
