"""Layers behind rounded and noisy answers: error bars that hold, and outcomes that say so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

import polyattn as pa
from polyattn import learn_from_queries
from polyattn.softmax.queries.error_bars import HeadEquations
from polyattn.softmax.queries.precision import AnswerNoise, in_units, significant_bits, token_unit


def bfloat16(Y):
    """Rounded to bfloat16, in an array of float32."""
    bits = np.ascontiguousarray(Y, np.float32).view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)).view(
        np.float32
    )


ROUNDED = {
    "float64": lambda Y: Y,
    "float32": lambda Y: Y.astype(np.float32),
    "float16": lambda Y: Y.astype(np.float16),
    "bfloat16": bfloat16,
}


def planted(d, n_heads, e=None, bias=False, seed=0):
    rng = np.random.default_rng([seed, d, n_heads])
    rows = d + bias
    attn = rng.standard_normal((n_heads, rows, rows)) / np.sqrt(rows)
    return pa.SoftmaxAttention(
        attn, rng.standard_normal((n_heads, rows, e or d)) / np.sqrt(rows), bias=bias
    )


def in_bars(layer, result):
    """Errors in standard errors (entries), and of heads the norms of errors in norms of bars."""
    d, found = layer.n_dims, result.layer
    assert found.n_heads == layer.n_heads
    apart = np.linalg.norm(layer.value[:, None, :d] - found.value[None, :, :d], axis=(2, 3))
    order = linear_sum_assignment(apart)[1]
    entries, heads = [], []
    for true, other, bars in (
        (layer.attn[:, :, :d], found.attn[:, :, :d], result.attn_error[:, :, :d]),
        (layer.value[:, :d], found.value[:, :d], result.value_error[:, :d]),
    ):
        error, bar = other[order] - true, bars[order]
        entries.append((error / bar).ravel())
        heads.append(np.linalg.norm(error, axis=(1, 2)) / np.linalg.norm(bar, axis=(1, 2)))
    return np.concatenate(entries), np.max(heads)


# What answers say of their rounding ---------------------------------------------------------------


@pytest.mark.parametrize(("name", "bits"), list(zip(ROUNDED, (53, 24, 11, 8), strict=True)))
def test_the_format_of_answers_is_seen_in_any_array(name, bits):
    numbers = np.random.default_rng(0).standard_normal(200) * 1e-3
    assert significant_bits(ROUNDED[name](numbers).astype(np.float64)) == bits


def test_whole_and_few_numbers_say_nothing_of_their_format():
    assert significant_bits(np.arange(100.0)) == 53
    assert significant_bits(np.zeros(100)) == 53
    assert significant_bits(np.tile([0.5, 0.25, -0.125], 50)) == 53


def test_tokens_in_units_are_exact_in_every_format_and_so_are_their_sums():
    rng = np.random.default_rng(1)
    x, delta = rng.standard_normal((50, 6)), 0.3 * rng.standard_normal(6)
    unit = token_unit(float(np.abs(x).max()), float(np.abs(delta).max()))
    x, delta = in_units(x, unit), in_units(delta, unit)
    for rounded in ROUNDED.values():
        for tokens in (x, x + delta):
            np.testing.assert_array_equal(rounded(tokens), tokens)
    # Differences that would be lost beside the tokens leave these as they are.
    assert token_unit(1.0, 1e-3) == 0.0
    np.testing.assert_array_equal(in_units(x + 1e-9, 0.0), x + 1e-9)


def test_errors_that_grow_with_answers_are_told_from_those_that_do_not():
    rng = np.random.default_rng(2)
    answers = rng.standard_normal((4000, 3))
    noise = AnswerNoise(np.zeros(3))
    left = 1e-2 * rng.standard_normal(answers.shape)
    left += 1e-2 * answers * rng.standard_normal(answers.shape)
    noise.add(left / 2, answers, 0.25)
    absolute, relative = noise.by_size
    assert absolute == pytest.approx(1e-2, rel=0.1)
    assert relative == pytest.approx(1e-2, rel=0.1)


# Propagation --------------------------------------------------------------------------------------


def fitted(design, columns, values, effects, weight, total):
    """The least-squares heads, by the slow way: Gauss-Newton with one whole Jacobian."""
    a, C = columns.copy(), values.copy()
    (n_heads, k), e = a.shape, C.shape[1]
    for _ in range(6):
        sigmoids = expit(design @ a.T)
        slopes = sigmoids * (1 - sigmoids)
        whole = np.vstack([sigmoids, np.full((1, n_heads), weight)])
        left = np.vstack([effects, weight * total]) - whole @ C
        by_column = np.einsum("qh,qk,he->qehk", slopes, design, C).reshape(-1, n_heads * k)
        by_column = np.vstack([by_column, np.zeros((e, n_heads * k))])
        by_value = np.einsum("qh,ef->qehf", whole, np.eye(e)).reshape(-1, n_heads * e)
        jacobian = np.hstack([by_column, by_value])
        step = np.linalg.lstsq(jacobian, left.ravel(), rcond=None)[0]
        a += step[: n_heads * k].reshape(n_heads, k)
        C += step[n_heads * k :].reshape(n_heads, e)
    return a, C


def test_propagated_errors_are_those_of_repeated_noise():
    """Variances by formula against many draws of the noise; and the step against the slow fit."""
    rng = np.random.default_rng(3)
    design, a = 1.5 * rng.standard_normal((40, 3)), rng.standard_normal((2, 3))
    C, weight = rng.standard_normal((2, 4)), 2.0
    near = HeadEquations(design, a, C, weight)
    std = np.array([1.0, 0.1, 2.0, 0.5])
    draws = [near.step(std * rng.standard_normal((41, 4))) for _ in range(4000)]
    for at, predicted in enumerate(
        (near.column_variances(np.tile(std**2, (41, 1))), near.value_variances(std**2))
    ):
        seen = np.mean([draw[at] ** 2 for draw in draws], axis=0)
        np.testing.assert_allclose(seen, predicted, rtol=0.15)
    # Where values are orthogonal the heads decouple, and the step is the one of the whole fit.
    C = np.linalg.qr(rng.standard_normal((4, 2)))[0].T
    noise, total = 1e-6 * rng.standard_normal((40, 4)), C.sum(axis=0)
    effects = expit(design @ a.T) @ C + noise
    slow = fitted(design, a, C, effects, weight, total)
    step = HeadEquations(design, a, C, weight).step(np.vstack([noise, np.zeros((1, 4))]))
    np.testing.assert_allclose(slow[0] - a, step[0], atol=1e-9)
    np.testing.assert_allclose(slow[1] - C, step[1], atol=1e-9)


# Layers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ROUNDED)
def test_error_bars_hold(name, bias):
    """Nominal 95 % intervals hold more than 90 % of the entries, over several layers."""
    entries = []
    for seed, (d, n_heads) in enumerate([(4, 2), (8, 3), (12, 3)]):
        layer = planted(d, n_heads, bias=bias, seed=seed)
        result = learn_from_queries(lambda X, layer=layer: ROUNDED[name](layer(X)), d, bias=bias)
        assert result.recovered, result.outcome
        assert result.outcome.name == "recovered" or name in ("float16", "bfloat16")
        errors, worst = in_bars(layer, result)
        entries.append(errors)
        assert worst < 3
        assert result.doubt <= {"float64": 1e-11, "float32": 1e-5}.get(name, 0.05)
    assert np.mean(np.abs(np.concatenate(entries)) < 1.96) > 0.9


def test_a_module_that_computes_in_bfloat16():
    """Tokens, logits, weights and values are rounded, too, and torch tensors are answered."""
    layer = planted(8, 2, seed=5)
    attn, value = (torch.tensor(a, dtype=torch.bfloat16) for a in (layer.attn, layer.value))
    exact = pa.SoftmaxAttention(attn.double().numpy(), value.double().numpy())

    def module(X):
        tokens = torch.tensor(X, dtype=torch.bfloat16)[:, None]
        weights = torch.softmax(tokens @ attn @ tokens.transpose(2, 3), dim=-1)
        return (weights @ (tokens @ value)).sum(dim=1)

    result = learn_from_queries(module, 8)
    assert result.outcome.name == "recovered_to_precision", result.outcome
    errors, worst = in_bars(exact, result)
    assert np.mean(np.abs(errors) < 1.96) > 0.85
    assert worst < 3
    assert "one standard error" in result.outcome.sentence


def test_noise_is_averaged_and_named():
    layer, rng = planted(6, 2, seed=6), np.random.default_rng(0)

    def noisy(X):
        outputs = layer(X)
        return outputs + 1e-3 * rng.standard_normal(outputs.shape)

    result = learn_from_queries(noisy, 6)
    assert result.outcome.name == "not_deterministic"
    assert "attn and value are known to" in result.outcome.sentence
    errors, worst = in_bars(layer, result)
    assert np.mean(np.abs(errors) < 1.96) > 0.9
    assert worst < 3
    # More queries leave smaller errors.
    few = learn_from_queries(noisy, 6, max_queries=900)
    assert few.doubt > 1.3 * result.doubt


def test_the_doubt_is_that_of_the_bars():
    layer = planted(6, 2, seed=7)
    result = learn_from_queries(lambda X: bfloat16(layer(X)), 6)
    relative = [
        np.linalg.norm(bars, axis=(1, 2)) / np.linalg.norm(heads, axis=(1, 2))
        for bars, heads in (
            (result.attn_error, result.layer.attn),
            (result.value_error, result.layer.value),
        )
    ]
    assert result.doubt == pytest.approx(np.max(relative))


def test_bars_have_the_units_of_the_heads():
    layer = planted(5, 2, seed=8)
    plain, scaled = (
        learn_from_queries(lambda X, of=of, by=by: bfloat16(by * layer(of * X)), 5)
        for of, by in ((1.0, 1.0), (2.0**-10, 2.0**30))
    )
    for name, power in (("attn", 2.0**-20), ("value", 2.0**20)):
        ratio = np.linalg.norm(getattr(scaled, f"{name}_error")) / np.linalg.norm(
            getattr(plain, f"{name}_error")
        )
        assert 0.3 < ratio / power < 3
    for factor in (1e-6, 1e5):
        other = learn_from_queries(lambda X, by=factor: bfloat16(by * layer(X)), 5)
        assert other.recovered
        assert in_bars(pa.SoftmaxAttention(layer.attn, factor * layer.value), other)[1] < 3


def test_what_conventions_fix_has_no_error():
    layer = planted(5, 2, bias=True, seed=9)
    result = learn_from_queries(lambda X: bfloat16(layer(X)), 5, bias=True)
    np.testing.assert_array_equal(result.attn_error[:, :, -1], 0)
    assert np.all(result.value_error > 0)
    b, found = layer.value[:, -1].sum(axis=0), result.layer.value[:, -1].sum(axis=0)
    assert np.max(np.abs(b - found) / (2 * result.value_error[0, -1])) < 5


def test_bars_are_kept_and_shown(tmp_path):
    layer = planted(4, 2, seed=10)
    result = learn_from_queries(lambda X: bfloat16(layer(X)), 4)
    pa.save(result, tmp_path / "file")
    loaded = pa.load(tmp_path / "file")
    for name in ("attn_error", "value_error"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(result, name))
    assert loaded.recovered
    assert "standard error" in str(result)
    assert {"attn_error", "value_error"} <= set(result.arrays())
    short = learn_from_queries(layer, 4, max_queries=60)
    assert short.attn_error is None
    assert set(short.arrays()) == {"attn", "value"}
