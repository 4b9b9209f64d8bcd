"""Errors of query answers: what is measured of rounding and noise, and how it is propagated."""

from __future__ import annotations

import numpy as np
import pytest

from oracle import in_format
from polyattn.softmax.queries.error_bars import HeadEquations
from polyattn.softmax.queries.precision import AnswerNoise, in_units, significant_bits, token_unit
from polyattn.softmax.queries.raw_answers import RawAnswers

pytestmark = pytest.mark.kernel


BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def test_the_format_of_answers_is_seen_in_any_array_and_tokens_are_exact_in_it():
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal(200) * 1e-3
    x, delta = rng.standard_normal((50, 6)), 0.3 * rng.standard_normal(6)
    unit = token_unit(float(np.abs(x).max()), float(np.abs(delta).max()))
    x, delta = in_units(x, unit), in_units(delta, unit)
    for name, bits in BITS.items():
        assert significant_bits(in_format(numbers, name).astype(float)) == bits
        for tokens in (x, x + delta):
            np.testing.assert_array_equal(in_format(tokens, name), tokens)
    # Whole and few numbers say nothing; small differences would be lost beside the tokens.
    for few in (np.arange(100.0), np.zeros(100), np.tile([0.5, 0.25, -0.125], 50)):
        assert significant_bits(few) == 53
    assert token_unit(1.0, 1e-3) == 0.0
    np.testing.assert_array_equal(in_units(x + 1e-9, 0.0), x + 1e-9)


def test_errors_that_grow_with_answers_are_told_from_those_that_do_not():
    rng = np.random.default_rng(2)
    answers, noise = rng.standard_normal((4000, 3)), AnswerNoise(np.zeros(3))
    left = rng.standard_normal(answers.shape) + answers * rng.standard_normal(answers.shape)
    noise.add(1e-2 * left / 2, answers, 0.25)
    assert noise.by_size == pytest.approx((1e-2, 1e-2), rel=0.1)


def test_propagated_errors_are_those_of_repeated_noise():
    """Variances by formula against many draws of the noise."""
    rng = np.random.default_rng(3)
    design, a = 1.5 * rng.standard_normal((40, 3)), rng.standard_normal((2, 3))
    C, weight, std = rng.standard_normal((2, 4)), 2.0, np.array([1.0, 0.1, 2.0, 0.5])
    near = HeadEquations(design, a, C, weight)
    draws = [near.step(std * rng.standard_normal((41, 4))) for _ in range(4000)]
    formulas = near.column_variances(np.tile(std**2, (41, 1))), near.value_variances(std**2)
    for at, predicted in enumerate(formulas):
        seen = np.mean([draw[at] ** 2 for draw in draws], axis=0)
        np.testing.assert_allclose(seen, predicted, rtol=0.15)


def test_equal_answers_to_multiples_of_one_token_are_no_bound():
    """Behind a normalisation large tokens of several sizes have the same answers."""
    raw, rng = RawAnswers(), np.random.default_rng(0)
    token = rng.standard_normal((1, 1, 6))
    for size in 2.0 ** np.arange(8):
        for sign in (1, -1):
            raw.add(sign * size * token, np.array([[sign * 2.0, 1.0]]))
    assert raw.bound is None
    for other in rng.standard_normal((8, 1, 1, 6)):
        raw.add(other, np.array([[np.sign(other[0, 0, 0]) * 2.0, 2.0]]))
    assert raw.bound == 2.0
    # One output of one sign may be as large often, as a constant is.
    one = RawAnswers()
    for other in rng.standard_normal((8, 1, 1, 6)):
        one.add(other, np.array([[2.0, 1.0]]))
    assert one.bound is None
