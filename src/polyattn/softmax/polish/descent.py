"""Levenberg–Marquardt over attn; every trial has the best values for its attn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish.normal import normal_equations
from polyattn.softmax.polish.projection import Projection, project
from polyattn.softmax.recorder import require_time

Matrix = NDArray[np.float64]

# Relative residuals below this are rounding, and below the second one probably so.
ROUNDING, NEARLY_ROUNDING = 1e-15, 1e-11

# Damping: where it starts, how it moves, and how often a step is tried again.
FIRST_DAMPING, DAMPING_FACTOR, MOST_TRIALS = 1e-3, 8.0, 10

# Descent has come to rest when this many steps together gain less than this.
PATIENCE, GAIN = 4, 1e-5

# No head moves farther than this in one step: saturated logits have no slope that leads back.
LONGEST_STEP = 2.0

# A step that promises to lower the squared error by less than this, relatively, is not made.
LEAST_PROMISE = 1e-13


@dataclass(frozen=True)
class Polished:
    """Where descent came to rest.

    projection : the heads there
    errors : relative residual on the examples after each step
    """

    projection: Projection
    errors: tuple[float, ...]

    @property
    def error(self) -> float:
        """The relative residual at the end."""
        return self.projection.error

    @property
    def attn(self) -> Matrix:
        """(m, d, d)."""
        return self.projection.attn

    @property
    def value(self) -> Matrix:
        """(m, d, e)."""
        return self.projection.value


def polish(
    examples: Examples,
    attn: Matrix,
    n_steps: int = 60,
    on_step: Callable[[Projection], None] | None = None,
    *,
    within: Matrix | None = None,
    gain: float = GAIN,
) -> Polished:
    """Descend from ``attn`` (m, d, d) until four steps gain less than ``gain``, relatively.

    ``within`` (r, d, d), orthonormal, restricts every step to combinations of these matrices.
    ``on_step`` hears of every better projection; what it raises ends the descent.

    Guarantee: the error never rises.  Near an exact, identifiable solution convergence is
    quadratic: five or six steps to rounding.
    """
    here = project(examples, np.array(attn, dtype=np.float64))
    errors = [here.error]
    damping = FIRST_DAMPING
    for _ in range(n_steps):
        if here.error <= ROUNDING or _at_rest(errors, gain):
            break
        require_time()
        found, damping = _step(examples, here, damping, within)
        if found is None:
            break
        here = found
        errors.append(here.error)
        if on_step is not None:
            on_step(here)
    return Polished(here, tuple(errors))


def _step(
    examples: Examples, here: Projection, damping: float, within: Matrix | None
) -> tuple[Projection | None, float]:
    """The first damped step that lowers the error, and the damping for the next one."""
    equations = normal_equations(examples, here)
    hessian, gradient = equations.hessian, equations.gradient
    if within is not None:
        hessian, gradient = _restricted(hessian, gradient, within)
    sizes = np.diag(hessian)
    floor = 1e-12 * sizes.max()
    if floor <= 0.0:
        return None, damping
    sizes = np.maximum(sizes, floor)
    left = examples.power * here.error**2
    n_trials = 2 if here.error < NEARLY_ROUNDING else MOST_TRIALS
    while n_trials:
        step = _solve(hessian, damping * sizes, gradient)
        if step is not None:
            if step @ gradient < LEAST_PROMISE * left:
                return None, damping
            moved = step.reshape(len(here.attn), -1)
            if within is not None:
                moved = moved @ within.reshape(len(within), -1)
            if np.max(np.sum(moved * moved, axis=1)) > LONGEST_STEP**2:
                damping = max(DAMPING_FACTOR * damping, 1e-10)
                continue
            trial = project(examples, here.attn + moved.reshape(here.attn.shape))
            if trial.error < here.error:
                return trial, max(damping / DAMPING_FACTOR, 1e-15)
        damping = max(DAMPING_FACTOR * damping, 1e-10)
        n_trials -= 1
    return None, damping


def _restricted(hessian: Matrix, gradient: Matrix, within: Matrix) -> tuple[Matrix, Matrix]:
    """The normal equations for the coordinates (m, r) of attn in the matrices ``within``."""
    n_free, size = len(within), within[0].size
    n_heads = len(gradient) // size
    frame = within.reshape(n_free, size)
    half = hessian.reshape(-1, n_heads, size) @ frame.T
    half = half.reshape(n_heads, size, n_heads * n_free)
    narrow = np.matmul(frame, half).reshape(n_heads * n_free, n_heads * n_free)
    return narrow, (gradient.reshape(n_heads, size) @ frame.T).reshape(-1)


def _solve(hessian: Matrix, damping: Matrix, gradient: Matrix) -> Matrix | None:
    """(hessian + diag(damping))^-1 gradient; None where rounding made it indefinite."""
    damped = hessian.copy()
    damped[np.diag_indices_from(damped)] += damping
    try:
        factor = cho_factor(damped, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return cho_solve(factor, gradient, check_finite=False)


def _at_rest(errors: list[float], gain: float) -> bool:
    if len(errors) <= PATIENCE:
        return False
    return errors[-1 - PATIENCE] - errors[-1] < gain * errors[-1]
