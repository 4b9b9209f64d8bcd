"""Errors of query answers: what is measured of rounding and noise, and how it is propagated."""

from __future__ import annotations

import numpy as np
import pytest

from polyattn.softmax.queries.error_bars import HeadEquations
from polyattn.softmax.queries.precision import AnswerNoise

pytestmark = pytest.mark.kernel


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
