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

Matrix = NDArray[np.float64]

# Relative residuals below this are rounding.
ROUNDING = 1e-15

# Damping: where it starts, how it moves, and how often a step is tried again.
FIRST_DAMPING, DAMPING_FACTOR, MOST_TRIALS = 1e-3, 8.0, 10

# Descent has come to rest when this many steps together gain less than this, relatively.
PATIENCE, GAIN = 4, 1e-5


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
) -> Polished:
    """Descend from ``attn`` (m, d, d) until nothing is gained.

    ``on_step`` hears of every better projection; what it raises ends the descent.

    Guarantee: the error never rises.  Near an exact, identifiable solution convergence is
    quadratic: five or six steps to rounding.
    """
    here = project(examples, np.array(attn, dtype=np.float64))
    errors = [here.error]
    damping = FIRST_DAMPING
    for _ in range(n_steps):
        if here.error <= ROUNDING or _at_rest(errors):
            break
        found, damping = _step(examples, here, damping)
        if found is None:
            break
        here = found
        errors.append(here.error)
        if on_step is not None:
            on_step(here)
    return Polished(here, tuple(errors))


def _step(examples: Examples, here: Projection, damping: float) -> tuple[Projection | None, float]:
    """The first damped step that lowers the error, and the damping for the next one."""
    equations = normal_equations(examples, here)
    sizes = np.diag(equations.hessian)
    floor = 1e-12 * sizes.max()
    if floor <= 0.0:
        return None, damping
    sizes = np.maximum(sizes, floor)
    for _ in range(MOST_TRIALS):
        step = _solve(equations.hessian, damping * sizes, equations.gradient)
        if step is not None:
            trial = project(examples, here.attn + step.reshape(here.attn.shape))
            if trial.error < here.error:
                return trial, max(damping / DAMPING_FACTOR, 1e-15)
        damping = max(DAMPING_FACTOR * damping, 1e-10)
    return None, damping


def _solve(hessian: Matrix, damping: Matrix, gradient: Matrix) -> Matrix | None:
    """(hessian + diag(damping))^-1 gradient; None where rounding made it indefinite."""
    damped = hessian.copy()
    damped[np.diag_indices_from(damped)] += damping
    try:
        factor = cho_factor(damped, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return cho_solve(factor, gradient, check_finite=False)


def _at_rest(errors: list[float]) -> bool:
    if len(errors) <= PATIENCE:
        return False
    return errors[-1 - PATIENCE] - errors[-1] < GAIN * errors[-1]
