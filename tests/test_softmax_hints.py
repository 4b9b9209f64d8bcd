"""learn_softmax says what would explain examples that no layer explains, and never guesses."""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa

RNG = np.random.default_rng(0)
X, HEADS = RNG.standard_normal((200, 4, 3)), 0.8 * RNG.standard_normal((4, 2, 4, 4))

#: What a call would be called with, by what it says of it.
SAID = ("in place of Y", "bias=True", "mode='causal'", "mode='full'", "No attention")


def layer(mode="full", bias=False):
    attn, value = HEADS[:2] if bias else HEADS[:2, :, :3, :3]
    return pa.SoftmaxAttention(attn, value[:, :, :3], mode, bias)


def said(X, Y, **given):
    """What of the hints the outcome gives, after a search that soon ends without success."""
    given = given if "n_heads" in given else given | {"max_heads": 1}
    found = pa.learn_softmax(X, Y, method="moments", **given)
    assert not found.recovered
    assert not found.outcome.ok
    # That a constant explains a part is advice of its own, and no claim about a layer.
    claims = found.outcome.next_step.replace("Try bias=True", "")
    return [hint for hint in SAID if hint in claims]


def slow(*row):
    return pytest.param(*row, marks=pytest.mark.slow)


FORGOTTEN = [
    ({}, {"bias": True}, False, [1]),
    slow({"mode": "full", "n_heads": 2}, {"mode": "causal"}, False, [2]),
    ({"mode": "causal"}, {"mode": "full"}, False, [3]),
    slow({"n_heads": 2}, {}, True, [0]),
    ({}, {"mode": "causal", "bias": True}, True, [0, 1, 2]),
]


@pytest.mark.parametrize(("given", "true", "residual", "wanted"), FORGOTTEN)
def test_what_was_forgotten_is_named_and_helps(given, true, residual, wanted):
    """Whatever the units; and a call as the hint says it is recovered."""
    Y = layer(**true)(X) + residual * X
    for scale in (1.0, 1e5) if residual and not true else (1.0,):
        assert said(scale * X, scale * Y, **given) == [SAID[i] for i in wanted]
    assert pa.learn_softmax(X, Y - residual * X, n_heads=2, **true).recovered


@pytest.mark.slow
def test_residuals_with_noise_in_mode_last_and_of_other_lengths():
    Y = layer()(X) + X
    assert said(X, Y + 0.01 * RNG.standard_normal(Y.shape)) == ["in place of Y"]
    many = RNG.standard_normal((600, 3, 3))
    last = (layer()(many) + many)[:, -1]
    found = pa.learn_softmax(many, last, max_heads=1, mode="last", method="moments")
    assert "Y - X[:, -1]" in found.outcome.next_step
    ragged = [RNG.standard_normal((n, 3)) for n in RNG.integers(1, 6, 200)]
    Y = [layer("causal")(each) + each for each in ragged]
    assert said(ragged, Y) == ["in place of Y", "mode='causal'"]


def test_outputs_without_attention_are_named():
    for matrix in (np.eye(3), np.arange(6.0).reshape(3, 2) - 2):
        assert said(X, X @ matrix) == ["No attention"]


FAILURES = {
    "noise": lambda X: np.random.default_rng(1).standard_normal(X.shape),
    "linear attention": lambda X: (X @ X.swapaxes(1, 2)) @ X,
    "neighbours": lambda X: np.roll(X, 1, axis=1) * X,
    "heavy noise": lambda X: layer()(X) + np.random.default_rng(1).standard_t(1.5, X.shape),
    "too few heads": pa.SoftmaxAttention(*RNG.standard_normal((2, 3, 3, 3))),
    "squares of tokens": lambda X: X**2,
}


@pytest.mark.parametrize("name", [name if n < 1 else slow(name) for n, name in enumerate(FAILURES)])
def test_plain_failures_get_no_hint(name):
    for mode in ("full",) if name == "too few heads" else ("full", "causal"):
        assert said(X, FAILURES[name](X), mode=mode) == []
    for shape in ((40, 2, 1), (12, 6, 2)) if name == "noise" else ():
        narrow = np.random.default_rng(3).standard_normal(shape)
        for Y in (FAILURES[name](narrow), np.abs(narrow)):
            assert said(narrow, Y) == []


def test_success_asks_for_no_other_reading():
    found = pa.learn_softmax(X, layer()(X), n_heads=2)
    assert found.recovered
    assert "other readings" not in [phase.name for phase in found.phases]
    assert found.outcome.next_step == ""
