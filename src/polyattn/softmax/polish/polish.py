"""Levenberg–Marquardt over attn; every trial has the best values for its attn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from polyattn.numerics.damping import Damping, Rest, damped_step
from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.polish.projection import Projection, normal_equations, project
from polyattn.softmax.recorder import require_time

OnStep = Callable[[Projection], None]

# Relative residuals below this are rounding, and below the second one probably so.
ROUNDING, NEARLY_ROUNDING = 1e-15, 1e-11

# How often a step is tried with more damping.
DAMPING, MOST_TRIALS = Damping(), 10

# Descent has come to rest when this many steps together gain less than this.
PATIENCE, GAIN = 4, 1e-5

# No head moves farther than this in one step: saturated logits have no slope that leads back.  A
# step that promises to lower the squared error by less than the second, relatively, is not made.
LONGEST_STEP, LEAST_PROMISE = 2.0, 1e-13

# Equations for each unknown while far from a solution: with fewer there are more local minima.
# So many examples cost next to nothing, however few the unknowns.
FAR_EQUATIONS, FEWEST_EXAMPLES = 16.0, 100


def polish(
    examples: Examples,
    attn: Matrix,
    n_steps: int = 60,
    on_step: OnStep | None = None,
    *,
    within: Matrix | None = None,
    gain: float = GAIN,
) -> Projection:
    """Descend from ``attn`` (m, d, d) until four steps gain less than ``gain``, relatively.

    ``within`` (r, d, d), orthonormal, restricts every step to combinations of these matrices.
    ``on_step`` is called with every better projection; what it raises ends the descent.

    Guarantee: the error never rises.  Near an exact, identifiable solution convergence is
    quadratic: five or six steps to rounding.
    """
    here = project(examples, np.array(attn, dtype=np.float64))
    errors = [here.error]
    damping, rest = DAMPING.first, Rest(PATIENCE, gain)
    for _ in range(n_steps):
        if here.error <= ROUNDING or rest.reached(errors):
            break
        require_time()
        found, damping = _step(examples, here, damping, within)
        if found is None:
            break
        here = found
        errors.append(here.error)
        if on_step is not None:
            on_step(here)
    return replace(here, errors=tuple(errors))


def enough(examples: Examples, n_heads: int, equations: float = FAR_EQUATIONS) -> Examples:
    """The first examples, with about ``equations`` scalar targets for each unknown."""
    targets = examples.n_outputs * examples.n_rows / len(examples)
    needed = round(equations * examples.n_unknowns(n_heads) / targets)
    return examples.first(max(FEWEST_EXAMPLES, needed))


def _step(
    examples: Examples, here: Projection, damping: float, within: Matrix | None
) -> tuple[Projection | None, float]:
    """The first damped step that lowers the error, and the damping for the next one."""
    equations = normal_equations(examples, here)
    hessian, gradient = equations.hessian, equations.gradient
    frame = None
    if within is not None:
        # The normal equations for the coordinates (m, r) of attn in the matrices ``within``.
        frame, n_heads = within.reshape(len(within), -1), here.n_heads
        half = hessian.reshape(len(gradient), n_heads, -1) @ frame.T
        half = half.reshape(n_heads, frame.shape[1], -1)
        hessian = np.matmul(frame, half).reshape(n_heads * len(frame), -1)
        gradient = (gradient.reshape(n_heads, -1) @ frame.T).reshape(-1)
    sizes = np.diag(hessian)
    floor = 1e-12 * sizes.max()
    if floor <= 0.0:
        return None, damping
    sizes = np.maximum(sizes, floor)
    left = examples.power * here.error**2
    n_trials = 2 if here.error < NEARLY_ROUNDING else MOST_TRIALS
    while n_trials:
        step = damped_step(hessian, damping * sizes, gradient)
        too_long = False
        if step is not None:
            if step @ gradient < LEAST_PROMISE * left:
                return None, damping
            moved = step.reshape(len(here.attn), -1)
            if frame is not None:
                moved = moved @ frame
            too_long = bool(np.max(np.sum(moved * moved, axis=1)) > LONGEST_STEP**2)
            if not too_long:
                trial = project(examples, here.attn + moved.reshape(here.attn.shape))
                if trial.error < here.error:
                    return trial, DAMPING.lowered(damping)
        damping = DAMPING.raised(damping)
        n_trials -= not too_long
    return None, damping
