"""No wrong claim: "recovered" is never said where inputs or noise leave the heads open.

And what ``identifiable_heads`` says of the same layers and inputs.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from oracle import MODES, head_errors, relative_error, softmax_slopes
from polyattn.errors import InvalidInput, PolyattnError

# A claim may be off by so many of its own error bars.
MOST_BARS = 3.0


def bars_off(found, planted) -> float:
    """The largest error of a claim in units of its error bar; 0 where nothing is claimed."""
    if not found.recovered:
        return 0.0
    order, attn, value = head_errors(found.layer, planted)
    if not order:
        return np.inf
    of_bars = attn / found.attn_error[order], value / found.value_error[order]
    return float(max(each.max() for each in of_bars))


def gaussian(seed, n_tokens, n_dims, n_sequences=150):
    return np.random.default_rng([1000, seed]).standard_normal((n_sequences, n_tokens, n_dims))


def boolean(seed, n_dims, n_tokens=4, n_sequences=300):
    return np.random.default_rng(seed).choice([-1.0, 1.0], (n_sequences, n_tokens, n_dims))


def generic(seed, n_heads=2, n_dims=2, n_outputs=2, mode="full", bias=False):
    rng, width = np.random.default_rng(seed), n_dims + bias
    attn = rng.standard_normal((n_heads, width, width))
    return pa.SoftmaxAttention(attn, rng.standard_normal((n_heads, width, n_outputs)), mode, bias)


def sharing(layer, **factors):
    """Heads whose attn, or value, is that of the first one times factors."""
    parts = {"attn": layer.attn, "value": layer.value}
    for name, each in factors.items():
        parts[name] = parts[name][:1] * np.reshape(each, (-1, 1, 1))
    return pa.SoftmaxAttention(**parts, mode=layer.mode)


# One head, and one that attends to all tokens alike.
POOLED, CAUSAL = (sharing(generic(1, mode=mode), attn=[1, 0]) for mode in ("full", "causal"))
OPPOSITE, CANCELLING = sharing(generic(2), attn=[1, -1]), sharing(generic(5), value=[1, -1])
WORDS = np.array([[1.0, 0.3], [-0.2, 1.1]])[np.random.default_rng(0).integers(2, size=(300, 5))]

# What inputs leave open: layer, inputs, and the finding.
PARITY = pa.softmax.parity_layer((0, 1, 2), 3, output=1, n_dims=5, beta=0.6, n_outputs=2)
ONE_HOT = np.eye(3)[np.random.default_rng(8).integers(3, size=(300, 4))]
OPEN: dict[str, tuple[Any, Any, str]] = {
    "mean": (POOLED, gaussian(0, 2, 2), "opposite_heads"),
    "mean, causal": (CAUSAL, gaussian(1, 2, 2), "opposite_heads"),
    "opposite": (OPPOSITE, gaussian(2, 2, 2), "opposite_heads"),
    "cancel": (CANCELLING, gaussian(5, 2, 2), "opposite_heads"),
    "two of one value": (sharing(generic(2), value=[1, 1]), boolean(2, 2), "two_valued"),
    "three of one value": (sharing(generic(1, 3), value=[1] * 3), boolean(1, 2), "two_valued"),
    "two words": (sharing(generic(3), value=[1, 1]), WORDS, "two_valued"),
    "parity": (PARITY, boolean(3, 5, 4, 150), "two_valued"),
    "constant, bias": (
        generic(7, 1, 3, bias=True), gaussian(7, 4, 3) * [1, 1, 0] + [0, 0, 2], "pinned",
    ),
    "one-hot, bias": (generic(8, 1, 3, bias=True), ONE_HOT, "few_queries"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_inputs_leave_open_is_said_and_not_claimed(name):
    layer, X, finding = OPEN[name]
    found = pa.learn_softmax(X, layer(X), layer.n_heads, mode=layer.mode, bias=layer.bias)
    expected = "ambiguous" if finding == "two_valued" else "recovered_on_these_inputs"
    assert found.outcome.name == expected, found.outcome
    # On inputs like these the function is right, and what is open has no error bar.
    assert relative_error(found.layer(X), layer(X)) < 1e-8
    assert np.isinf(found.attn_error).any() | np.isinf(found.value_error).any()
    assert np.isinf(found.attn_std).any() | np.isinf(found.value_std).any()
    report = pa.softmax.identifiable_heads(layer, X)
    assert report.verdict == "not_identifiable"
    assert finding in [each.name for each in report.findings]


# Inputs beside those, as poor as they look: these show the heads.
SHOWN = {
    "a mean and unequal shares of two": (POOLED, gaussian(1, 2, 2)[:, [0, 0, 1]]),
    "a mean and three causal tokens": (CAUSAL, gaussian(1, 3, 2)),
    "opposite heads and three tokens": (OPPOSITE, gaussian(2, 3, 2)),
    "values that cancel and three tokens": (CANCELLING, gaussian(5, 3, 2)),
    "plain heads and two tokens": (generic(5), gaussian(5, 2, 2)),
    "one value and eight queries": (sharing(generic(1, 2, 3), value=[1, 1]), boolean(1, 3, 4, 120)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_inputs_show_is_recovered(name):
    layer, X = SHOWN[name]
    found = pa.learn_softmax(X, layer(X), mode=layer.mode)
    assert found.recovered, found.outcome
    assert max(each.max() for each in head_errors(found.layer, layer)[1:]) < 1e-6
    assert bars_off(found, layer) <= MOST_BARS
    report = pa.softmax.identifiable_heads(layer, X)
    assert (report.verdict, report.findings) == ("identifiable", ())


def test_too_little_is_not_called_recovered():
    """One head cannot do what two do."""
    layer, X = generic(11, 2, 2, 1), gaussian(11, 3, 2, 40)
    assert not pa.learn_softmax(X, layer(X), 1, "moments").recovered


def test_heads_that_noise_does_not_tell_apart_are_not_claimed():
    layer, X, rng = generic(7, 2, 3, 3), boolean(7, 3), np.random.default_rng(7)
    for gap, noise in ((1e-6, 0.0), (1e-6, 0.037), (1e-9, 0.037)):
        attn = np.stack([layer.attn[0], layer.attn[0] + gap * layer.attn[1]])
        Y = pa.SoftmaxAttention(attn, layer.value)(X) + noise * rng.standard_normal((300, 4, 3))
        assert not pa.learn_softmax(X, Y, 2, noise=0.037).recovered


# What is left beside a layer and its noise; noise itself is left by a layer that is right.
BESIDE = {
    "noise": lambda _X, _Y, e: 0 * e,
    "large noise": lambda _X, _Y, e: 100 * e,
    "tanh of tokens": lambda X, *_: 0.1 * np.tanh(X),
    "two sizes": lambda _X, _Y, e: e * (np.arange(300) % 2)[:, None, None],
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_softmax_layer_is_not_called_one(name):
    rng, layer, X = np.random.default_rng(1), generic(13, 1), gaussian(13, 3, 2, 300)
    Y, noise = layer(X), rng.standard_normal((300, 3, 2))
    found = pa.learn_softmax(X, Y + 0.02 * noise + BESIDE[name](X, Y, noise), 1, "moments")
    assert found.recovered == (name == "noise"), found.outcome
    assert found.recovered or found.outcome.name in ("not_recovered", "overfitted"), found.outcome
    assert found.validation_error > 0.01


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(MODES), bias=st.booleans())
def test_the_verdict_is_that_of_the_jacobian(seed, mode, bias):
    """Full rank where heads are called identifiable, and only there."""
    rng = np.random.default_rng(seed)
    n_tokens, real = int(rng.integers(2, 5)), rng.random() < 0.5
    layer = generic(seed, int(rng.integers(1, 4)), int(rng.integers(1, 4)), 2, mode, bias)
    count = int(rng.integers(5, 60))
    X = gaussian(seed, n_tokens, layer.n_dims, count)
    X = X if real else np.sign(X)
    report = pa.softmax.identifiable_heads(layer, X)
    slopes = softmax_slopes(layer, X)
    assert report.n_parameters == slopes.shape[1]
    sizes = np.linalg.norm(slopes, axis=0)
    singular = np.linalg.svd(slopes / np.where(sizes > 0, sizes, 1.0), compute_uv=False)
    rank = np.count_nonzero(singular > 1e-9 * singular[0])
    if report.rank is not None:
        assert report.rank == rank
    if report.verdict == "identifiable":
        assert rank == slopes.shape[1]
    elif report.verdict == "not_identifiable":
        far_away = {"opposite_heads", "two_valued"}
        assert rank < slopes.shape[1] or far_away & {each.name for each in report.findings}


def hiding(place, value):
    X = boolean(0, 3, 4, 100)
    X[place] = value(X)
    return X


HIDING = {
    "one_token": (boolean(0, 3, 1, 100), "full"),
    "pinned": (hiding(np.s_[:, :, 1], lambda _: 1.0), "full"),
    "constant_within": (hiding(np.s_[:, :, 1], lambda X: X[:, :1, 1]), "full"),
    "flat": (hiding(np.s_[:, :, 1], lambda X: X[:, :, 0] - 2 * X[:, :, 2]), "full"),
    "few_queries": (hiding(np.s_[:, -1, 1], lambda X: X[:, -1, 0]), "last"),
    # The first token of a causal sequence attends to itself alone, and shows nothing.
    "few_queries causal": (hiding(np.s_[:, 1:, 1], lambda X: X[:, 1:, 0]), "causal"),
    "too_few": (gaussian(0, 4, 3, 1), "full"),
}


@pytest.mark.parametrize("name", HIDING)
def test_tokens_that_hide_heads_are_named(name):
    X, mode = HIDING[name]
    layer = generic(3, 2, 3, 3, mode)
    slopes = softmax_slopes(layer, X)
    assert np.linalg.matrix_rank(slopes) < slopes.shape[1]
    report = pa.softmax.identifiable_heads(layer, X)
    assert report.verdict == "not_identifiable"
    assert name.split()[0] in [finding.name for finding in report.findings]


def test_what_all_inputs_together_show():
    A, B, V = np.eye(2), 2 * np.eye(2), np.ones((2, 1))
    # Values that the constant coordinate alone carries are no values.
    constant = [[[1.0], [0.0]], [[0.0], [1.0]]]
    for attn, value, bias, expected in (
        ([A, B], [V, 2 * V], False, []),
        ([A, B, A], [V, V, V], False, [("equal_heads", (0, 2))]),
        ([A, B], [V, 0 * V], False, [("zero_value", (1,))]),
        ([A, B], constant, True, [("zero_value", (1,))]),
    ):
        layer = pa.SoftmaxAttention(np.stack(attn), np.stack(value), bias=bias)
        report = pa.softmax.identifiable_heads(layer)
        assert report.verdict == ("not_identifiable" if expected else "identifiable")
        assert [(each.name, each.heads) for each in report.findings] == expected
    with pytest.raises(PolyattnError, match="5"):
        pa.softmax.identifiable_heads(layer, np.ones((3, 2, 5)))


def test_doubt_is_admitted():
    plain = generic(0, 2, 3, 3)
    for layer, X, word in (
        (pa.SoftmaxAttention(1e9 * plain.attn, plain.value), boolean(0, 3), "sharp"),
        (generic(0, 2, 24, 24), gaussian(0, 4, 24, 100), "parameters"),
        (sharing(generic(0, 4, 9, 9), value=[1] * 4), boolean(0, 9), "equal values"),
    ):
        report = pa.softmax.identifiable_heads(layer, X)
        assert report.verdict == "undecided"
        assert word in report.sentence


#: What a call would be called with, by what it says of it.
SAID = ("in place of Y", "bias=True", "mode='causal'", "mode='full'", "No attention")
RNG = np.random.default_rng(0)
TOKENS, HEADS = RNG.standard_normal((200, 4, 3)), 0.8 * RNG.standard_normal((4, 2, 4, 4))


def said(X, Y, **given):
    """What of the hints the outcome gives, after a search that soon ends without success."""
    found = pa.learn_softmax(X, Y, method="moments", max_heads=1, **given)
    assert not found.recovered
    # That a constant explains a part is advice of its own, and no claim about a layer.
    claims = found.outcome.next_step.replace("Try bias=True", "")
    return [hint for hint in SAID if hint in claims]


# What a call was given, what is true, whether the input is added, and the hints.
FORGOTTEN = [
    ({}, {"bias": True}, False, [1]),
    ({"mode": "causal"}, {"mode": "full"}, False, [3]),
    ({}, {"mode": "causal", "bias": True}, True, [0, 1, 2]),
    ({}, {"mode": "causal"}, False, [2]),
    ({}, {}, True, [0]),
]


@pytest.mark.parametrize(("given", "true", "residual", "wanted"), FORGOTTEN)
def test_what_was_forgotten_is_named_and_helps(given, true, residual, wanted):
    """And a call as the hint says it is recovered."""
    X, width = TOKENS, 3 + ("bias" in true)
    attn, value = HEADS[:2, :, :width, :width]
    Y = pa.SoftmaxAttention(attn, value[:, :, :3], **true)(X) + residual * X
    assert said(X, Y, **given) == [SAID[i] for i in wanted]
    # A head that was not polished: only what a constant would explain is said.
    stopped = pa.learn_softmax(X, Y, 1, "moments", polish=False)
    assert ("bias=True" in stopped.outcome.next_step) == ("bias" in true)
    found = pa.learn_softmax(X, Y - residual * X, n_heads=2, **true)
    assert found.recovered
    assert found.outcome.next_step == ""
    assert "other readings" not in [phase.name for phase in found.phases]


def test_noise_half_as_large_as_an_entry_is_no_recovery():
    layer, X = pa.data.random_softmax_layer(3, n_heads=2, random_state=2), TOKENS[:100]
    noise = np.random.default_rng(1).standard_normal(X.shape)
    for size in (0.2, 9.0):
        found = pa.learn_softmax(X, layer(X) + size * noise, 2, noise=size, max_seconds=5)
        assert found.outcome.name == ("recovered" if size < 1 else "ill_determined")
        errors = (*found.attn_error, *found.value_error)
        assert (max(errors) <= 0.5) == found.recovered


def test_outputs_without_attention_are_named():
    for matrix in (np.eye(3), np.arange(6.0).reshape(3, 2) - 2):
        assert said(TOKENS, TOKENS @ matrix) == ["No attention"]


def test_plain_failures_get_no_hint():
    noise = np.random.default_rng(1).standard_normal(TOKENS.shape)
    for mode in ("full", "causal"):
        assert said(TOKENS, noise, mode=mode) == []
    assert said(TOKENS[:40, :2], noise[:40, :2]) == []


# Tokens (N, 4, d) of a generator, of the same heads for each seed.
DEGENERATE = {
    "one-hot": lambda rng, d: np.eye(d)[rng.integers(0, d, (300, 4))],
    "repeated": lambda rng, d: rng.standard_normal((300, 4, d))[:, :, [1, 1, *range(2, d)]],
    "few": lambda rng, d: np.repeat(rng.standard_normal((rng.integers(14, 20), 4, d)), 60, axis=0),
    "two words": lambda rng, d: rng.standard_normal((2, d))[rng.integers(2, size=(300, 4))],
    "boolean": lambda rng, d: rng.choice([-1.0, 1.0], (300, 4, d)),
    "real": lambda rng, d: rng.standard_normal((300, 4, d)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEGENERATE)
def test_no_claim_is_beyond_three_bars(kind):
    """Without noise, and with noise that is declared too small, too large, or not at all."""
    judged = 0
    for seed in range(100, 108):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(3, 6))
        family = ("close", "same_value", "scales", "identity", "cancel", "sharp_mix")[seed % 6]
        layer = pa.data.hard_softmax_layer(family, d, 2, 2.0, 1 + seed % 3, random_state=seed)
        if seed % 4 == 2:
            # Heads that are nearly equal.
            attn = np.stack([layer.attn[0], layer.attn[0] + 10.0 ** -(seed % 9) * layer.attn[1]])
            layer = pa.SoftmaxAttention(attn, layer.value)
        X = DEGENERATE[kind](rng, d)
        noise = (seed % 2) * 0.05 * float(np.std(layer(X)))
        Y = layer(X) + noise * rng.standard_normal(layer(X).shape)
        declared = (None, 0.3 * noise, None, 10 * noise, 0.0, None, 0.1, 1.2 * noise)[seed % 8]
        try:
            found = pa.learn_softmax(X, Y, (2, None, 1)[seed % 3], noise=declared, max_seconds=3)
        except InvalidInput:  # too few different sequences for two heads
            continue
        judged += 1
        planted = layer
        if found.n_heads == 1 and found.validation_error > 1e-9:
            # Heads that noise does not tell apart count as one: the nearest one head.
            planted = pa.learn_softmax(X, layer(X), 1, "moments").layer
        assert bars_off(found, planted) <= MOST_BARS, (seed, found.outcome)
    assert judged >= 4
