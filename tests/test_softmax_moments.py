"""Moments as a start: spans that are nearly right, heads told apart, and no data that break it."""

import numpy as np
import pytest

from polyattn.model.softmax import softmax
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.moments import initialise
from polyattn.softmax.moments.first_order import correlate, frame_of, unfold
from polyattn.softmax.polish import polish
from polyattn.softmax.recorder import Recorder


def layer(attn, value, keys, hidden=None):
    total = 0.0
    for A, V in zip(attn, value, strict=True):
        logits = (keys @ A) @ keys.transpose(0, 2, 1)
        if hidden is not None:
            logits[:, hidden] = -np.inf
        total = total + softmax(logits) @ keys @ V
    return total


def planted(seed, n_heads=2, n_dims=6, n_tokens=4, count=2000, size=0.5, n_outputs=None):
    rng = np.random.default_rng(seed)
    attn = rng.standard_normal((n_heads, n_dims, n_dims)) * size / n_dims
    value = rng.standard_normal((n_heads, n_dims, n_outputs or n_dims)) / np.sqrt(n_dims)
    keys = rng.choice([-1.0, 1.0], (count, n_tokens, n_dims))
    return rng, attn, value, keys


def examples_of(attn, value, keys):
    return Examples((ExampleBlock(keys, layer(attn, value, keys), None),))


def outside(span, attn):
    """The largest part of a head that lies outside the span, relative to the head."""
    frame = span.reshape(len(span), -1)
    flat = attn.reshape(len(attn), -1)
    left = flat - (flat @ frame.T) @ frame
    return float(np.max(np.linalg.norm(left, axis=1) / np.linalg.norm(flat, axis=1)))


def farthest(attn, found):
    """The largest relative distance of a head from the nearest one found."""
    distances = np.linalg.norm(attn[:, None] - found[None], axis=(2, 3))
    return float(np.max(distances.min(axis=1) / np.linalg.norm(attn, axis=(1, 2))))


@pytest.mark.parametrize("seed", range(3))
def test_heads_are_near_before_any_free_descent(seed):
    rng, attn, value, keys = planted(seed)
    start = initialise(examples_of(attn, value, keys), 2, rng)
    assert outside(start.span, attn) < 0.25
    assert farthest(attn, start.attn) < 0.35
    random = np.linalg.qr(rng.standard_normal((36, 2)))[0].T.reshape(2, 6, 6)
    assert outside(random, attn) > 0.8


def test_more_data_and_smaller_logits_make_the_span_better():
    errors = []
    for count, size in ((500, 2.0), (2000, 0.5), (20_000, 0.1)):
        rng, attn, value, keys = planted(7, count=count, size=size)
        errors.append(outside(initialise(examples_of(attn, value, keys), 2, rng).span, attn))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.08


def test_own_token_of_the_query_does_not_bias_the_tensor():
    """To first order in the logits the folded tensor is exact up to sampling."""
    _, attn, value, keys = planted(8, n_heads=1, n_dims=3, count=60_000, size=0.05)
    examples = examples_of(attn, value, keys)
    frame = frame_of(examples)
    found, visible, _ = correlate(examples, frame)
    white = frame.colouring @ attn[0] @ frame.colouring.T
    seen = np.einsum("ab,dc->abdc", white, frame.colouring @ value[0])
    folded = seen + seen.transpose(0, 2, 1, 3)
    off = ~np.eye(3, dtype=bool) & visible
    error = np.linalg.norm((found[1:] - folded)[:, off])
    assert error < 0.1 * np.linalg.norm(folded[:, off])


def test_any_covariance_is_as_good_as_white():
    rng, attn, value, keys = planted(9)
    colour = rng.standard_normal((6, 6)) + 2 * np.eye(6)
    back = np.linalg.inv(colour)
    coloured = Examples(
        (ExampleBlock(keys @ colour, layer(attn, value, keys), None),)
    )  # the same logits and outputs for back A back^T, back V
    start = initialise(coloured, 2, rng)
    white = colour @ start.attn @ colour.T
    assert farthest(attn, white) < 0.35
    found = polish(coloured, start.attn)
    assert found.error < 1e-11
    assert farthest(back @ attn @ back.T, found.attn) < 1e-8


@pytest.mark.parametrize("mode", ["causal", "last", "ragged"])
def test_modes_and_ragged_lengths(mode):
    rng, attn, value, _ = planted(10)
    groups = []
    for length in (3, 5):
        keys = rng.choice([-1.0, 1.0], (1500, length, 6))
        hidden = ~np.tri(length, dtype=bool) if mode == "causal" else None
        targets = layer(attn, value, keys, hidden)
        groups.append(ExampleBlock(keys, targets[:, -1:] if mode == "last" else targets, hidden))
    start = initialise(Examples(tuple(groups)), 2, rng)
    assert outside(start.span, attn) < 0.4
    assert polish(Examples(tuple(groups)), start.attn).error < 1e-12


def test_tokens_that_are_not_centred_and_one_constant_coordinate():
    rng, attn, value, keys = planted(11)
    shifted = keys + rng.standard_normal(6)
    start = initialise(examples_of(attn, value, shifted), 2, rng)
    assert outside(start.span, attn) < 0.6
    keys[:, :, 0] = 1.0
    examples = examples_of(attn, value, keys)
    start = initialise(examples, 2, rng)
    assert polish(examples, start.attn).error < 1e-11


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_singular_values_drop_after_the_number_of_heads(n_heads):
    rng, attn, value, keys = planted(12, n_heads=n_heads, n_dims=8)
    examples = examples_of(attn, value, keys)
    sigma = initialise(examples, n_heads, rng).singular_values
    assert sigma[n_heads - 1] > 2 * sigma[n_heads]


@pytest.mark.parametrize(
    ("n_heads", "n_dims", "n_tokens", "n_outputs", "count"),
    [(1, 1, 2, 1, 30), (3, 1, 4, 2, 30), (6, 2, 3, 1, 40), (2, 5, 2, 1, 30), (12, 3, 4, 3, 20)],
)
def test_degenerate_sizes(n_heads, n_dims, n_tokens, n_outputs, count):
    rng, attn, value, keys = planted(13, n_heads, n_dims, n_tokens, count, 1.0, n_outputs)
    recorder = Recorder()
    start = initialise(examples_of(attn, value, keys), n_heads, rng, recorder)
    assert start.attn.shape == (n_heads, n_dims, n_dims)
    assert np.all(np.isfinite(start.attn))
    assert [phase.name for phase in recorder.phases][:2] == ["moments", "separation"]
    assert all(phase.sentence != "Not finished." for phase in recorder.phases)


@pytest.mark.parametrize("kind", ["zero targets", "equal tokens", "one token", "one example"])
def test_data_that_show_nothing_give_finite_heads(kind):
    rng, attn, value, keys = planted(14, count=20)
    if kind == "equal tokens":
        keys[:] = 1.0
    keys = keys[:, :1] if kind == "one token" else keys
    keys = keys[:1] if kind == "one example" else keys
    targets = layer(attn, value, keys) * (kind != "zero targets")
    examples = Examples((ExampleBlock(keys, targets, None),))
    start = initialise(examples, 2, rng)
    assert np.all(np.isfinite(start.attn))


def test_unfolding_finds_a_planted_tensor_of_low_rank():
    rng = np.random.default_rng(15)
    heads = rng.standard_normal((2, 7, 6))
    values = rng.standard_normal((2, 6, 6))
    tensor = np.einsum("hab,hdc->abdc", heads, values)
    folded = tensor + tensor.transpose(0, 2, 1, 3)
    diagonal = np.arange(6)
    folded[:, diagonal, diagonal] /= 2
    visible = np.ones((6, 6), dtype=bool)
    spans = unfold(folded, visible, 2, rng)
    assert outside(spans.attn, heads) < 0.05
