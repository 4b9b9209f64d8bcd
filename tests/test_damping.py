"""Damping and stopping of Levenberg–Marquardt."""

import numpy as np
import pytest

from polyattn.numerics.damping import Damping, Rest, damped_step


def test_damping_moves_by_its_factor_within_its_limits():
    damping = Damping(first=1.0, factor=10.0, least=1e-3, again=1e-2)
    assert damping.lowered(1.0) == pytest.approx(0.1)
    assert damping.lowered(1e-3) == 1e-3
    assert damping.raised(1.0) == pytest.approx(10.0)
    assert damping.raised(1e-6) == 1e-2


def test_rest_is_reached_when_steps_gain_little_together():
    rest = Rest(patience=2, gain=0.1)
    assert not rest.reached([1.0])
    assert not rest.reached([1.0, 1.0])
    assert rest.reached([1.0, 0.99, 0.98])
    assert not rest.reached([1.0, 0.99, 0.5])


def test_a_damped_step_solves_the_damped_equations():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 4))
    hessian, gradient = root.T @ root, rng.standard_normal(4)
    sizes = 0.1 * np.diag(hessian)
    before = hessian.copy()
    step = damped_step(hessian, sizes, gradient)
    np.testing.assert_allclose((hessian + np.diag(sizes)) @ step, gradient)
    np.testing.assert_array_equal(hessian, before)
    assert damped_step(-hessian, sizes, gradient) is None
