"""Answers of learn_from_queries that were ok and wrong in 0.3.0: each must be right, or not ok."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyattn as pa

D = 4
LAYER = pa.data.random_softmax_layer(D, n_heads=2, random_state=0)


def attention(X, seen=None, logits=lambda Z: Z, layer=LAYER):
    """softmax(X A X^T) X V by hand: ``seen`` (n, n) says who attends to whom."""
    outputs = 0
    for A, V in zip(layer.attn, layer.value, strict=True):
        Z = logits(X @ A @ X.transpose(0, 2, 1))
        if seen is not None:
            Z = np.where(seen, Z, -np.inf)
        P = np.exp(Z - Z.max(axis=2, keepdims=True))
        outputs = outputs + P / P.sum(axis=2, keepdims=True) @ X @ V
    return outputs


def back(n):
    """How far token s stands before token t, (t, s)."""
    return np.subtract.outer(np.arange(n), np.arange(n))


def window(X, w, causal):
    distance = back(X.shape[1])
    near = np.abs(distance) < w
    return attention(X, near & (distance >= 0) if causal else near)


def window_and_first(X, w):
    distance = back(X.shape[1])
    near = (distance < w) | (np.arange(X.shape[1]) == 0)
    return attention(X, near & (distance >= 0))


def strided(X, near, step):
    """The next tokens, and every ``step``-th before them."""
    distance = back(X.shape[1])
    return attention(X, (distance >= 0) & ((distance < near) | (distance % step == 0)))


def chunks(X, size):
    chunk = np.arange(X.shape[1]) // size
    return attention(X, (back(X.shape[1]) >= 0) & (chunk[:, None] == chunk))


def last_tokens(X, most):
    kept = X[:, -most:]
    answers = LAYER(kept)
    return np.concatenate([np.repeat(answers[:, :1], X.shape[1] - kept.shape[1], 1), answers], 1)


def first_tokens(X, most):
    return attention(X, np.broadcast_to(np.arange(X.shape[1]) < most, (X.shape[1],) * 2))


def largest(X, k):
    def of(Z):
        if Z.shape[2] <= k:
            return Z
        return np.where(np.sort(Z, axis=2)[:, :, -k:][:, :, :1] <= Z, Z, -np.inf)

    return attention(X, logits=of)


def cooled(X, after, power):
    n = X.shape[1]
    return attention(X, logits=lambda Z: Z * (max(n, after) / after) ** power)


def by_logarithm(X, after):
    n = X.shape[1]
    return attention(X, logits=lambda Z: Z * np.log(max(n, after)) / np.log(after))


def far_away(X, after, slope):
    distance = np.abs(back(X.shape[1]))
    return attention(X, logits=lambda Z: Z - slope * np.maximum(distance - after, 0))


def more_terms(X, after, size):
    extra = np.mean(X, axis=1, keepdims=True) if X.shape[1] > after else 0
    return LAYER(X) + size * extra


def uneven_rows(X, w):
    """The last row sees everything, those before it a window."""
    distance = back(X.shape[1])
    seen = np.abs(distance) < w
    seen[-1] = True
    return attention(X, seen)


LIMITS: dict[str, tuple[Callable, list[tuple]]] = {
    "window": (
        window,
        [(w, causal) for w in (10, 12, 16, 24, 40, 63, 100, 200) for causal in (True, False)],
    ),
    "window and first": (window_and_first, [(10,), (30,), (100,)]),
    "strided": (strided, [(10, 2), (10, 4), (12, 16), (16, 3), (32, 8)]),
    "chunks": (chunks, [(10,), (16,), (50,)]),
    "last tokens": (last_tokens, [(10,), (32,), (128,)]),
    "first tokens": (first_tokens, [(10,), (32,), (128,)]),
    "largest": (largest, [(10,), (12,), (32,)]),
    "cooled": (cooled, [(16, 0.5), (10, 1.0), (100, 0.2)]),
    "by logarithm": (by_logarithm, [(10,), (16,)]),
    "far away": (far_away, [(9, 0.1), (16, 1.0), (40, 0.01)]),
    "more terms": (more_terms, [(9, 1.0), (9, 1e-2), (32, 1e-4)]),
    "uneven rows": (uneven_rows, [(12,), (70,)]),
}

CASES = [(kind, given) for kind, (_, cases) in LIMITS.items() for given in cases]


def test_there_are_49_limits():
    assert len(CASES) == 49


@pytest.mark.parametrize(("kind", "given"), CASES, ids=str)
def test_what_begins_after_nine_tokens_is_seen(kind, given):
    """0.3.0 held sequences of 2 to 9 tokens against an oracle: most of these were recovered."""
    oracle = LIMITS[kind][0]
    found = pa.learn_from_queries(lambda X: oracle(X, *given), D)
    assert not found.outcome.ok, found.outcome
    if found.outcome.name == "long_sequences_differ":
        # What is said of short ones holds.
        X = np.random.default_rng(0).standard_normal((5, 8, D))
        np.testing.assert_allclose(found.predict(X)[:, -1], oracle(X, *given)[:, -1], atol=1e-9)


def test_the_sentence_says_up_to_which_length_it_was_checked():
    assert "up to 256 tokens" in pa.learn_from_queries(LAYER).outcome.sentence
    assert "up to 256" in pa.learn_from_queries(lambda X: window(X, 300, True), D).outcome.sentence

    def short(X):
        if X.shape[1] > 20:
            raise ValueError("no more than 20 tokens")
        return LAYER(X)

    found = pa.learn_from_queries(short, D)
    assert found.outcome.ok
    assert "up to 9 tokens" in found.outcome.sentence
    assert "64 tokens were not checked" in found.outcome.sentence
    assert "no more than 20 tokens" in found.outcome.sentence


@pytest.mark.parametrize("answers", [np.float32, np.float16], ids=str)
def test_windows_behind_rounded_answers_are_seen(answers):
    found = pa.learn_from_queries(lambda X: window(X, 12, True).astype(answers), D)
    assert not found.outcome.ok
    honest = pa.learn_from_queries(lambda X: window(X, 999, True).astype(answers), D)
    assert honest.outcome.ok, honest.outcome
    assert "up to 256 tokens" in honest.outcome.sentence


@pytest.mark.parametrize("centred", [True, False])
def test_float16_answers_behind_a_normalisation_are_attention(centred):
    """0.3.0 called them not_attention: beside the token that is added, few bits are left."""

    def answered(X):
        Z = X - centred * X.mean(axis=-1, keepdims=True)
        Z = Z / np.sqrt(np.mean(Z**2, axis=-1, keepdims=True) + 1e-5)
        return (X + LAYER(Z)).astype(np.float16)

    found = pa.learn_from_queries(answered, D)
    assert found.outcome.name == "recovered_to_precision", found.outcome
    X = np.random.default_rng(0).standard_normal((5, 20, D))
    np.testing.assert_allclose(found.predict(X), answered(X).astype(float), atol=0.05)
