"""Levenberg-Marquardt descent to heads that fit a symmetric tensor.

Minimises  f = <R, M R>,  R = S - sym T(heads),  over the numbers that heads are made of, where the
metric M is the identity or the second moments of data.  Each step solves

    (J^T M J + damping) step = J^T M R.

``balanced`` heads are orthogonal, so with M = I the diagonal blocks of J^T J are (I + K)/2 times
||head||^2 with ||K|| <= 1: conjugate gradients scaled by that diagonal need few rounds, each a few
matrix products.  Tiny problems, which are the stiff ones, are solved densely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.head_set import HeadSet
from polyattn.heads.low_rank_heads import LowRankHeads
from polyattn.heads.metric import Metric
from polyattn.numerics.damping import damped_step

AnyHeads = TypeVar("AnyHeads", HeadSet, LowRankHeads)

# Jacobians up to so many entries are formed and factored.
DENSE_ENTRIES = 60_000
# The work of a step is counted in multiply-adds; a call from Python costs about so many.
CALL_WORK = 5e5
MAX_ROUNDS = 200
MAX_STEPS = 200
MAX_DAMPING = 1e8
MIN_DAMPING = 1e-15
# Below this relative loss there is only rounding.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Patience:
    """When to stop.

    After ``window`` steps that together lowered f by less than ``fraction``, after ``work``
    multiply-adds, or below the relative loss ``enough`` once progress slows.
    """

    window: int
    fraction: float
    work: float = np.inf
    enough: float = 0.0


@dataclass(frozen=True)
class HeadDescent(Generic[AnyHeads]):
    """Where the descent ended: heads, relative loss sqrt(<R, M R> / <S, M S>), work spent."""

    heads: AnyHeads
    loss: float
    work: float


def descend(
    tensor: NDArray, heads: AnyHeads, metric: Metric, patience: Patience
) -> HeadDescent[AnyHeads]:
    """The heads found from a start for ``tensor`` S (J e, n_values, n_keys, r), <S, M S> > 0.

    Guarantee: the loss is never above that of the start.  Near a generic exact solution
    convergence is superlinear.
    Cost: O(H) times the size of S and one application of the metric per round of conjugate
    gradients.
    """
    size = metric.power(tensor)
    residual = tensor - heads.tensor()
    pulled = metric(residual)
    history = [metric.power(residual, pulled) / size]
    damping, growth, spent, fast = 1.0, 2.0, 0.0, False
    while not (_finished(history, spent, patience, fast) or damping > MAX_DAMPING):
        heads = heads.balanced()
        gradient = heads.gradient(pulled)
        forcing = min(0.1, history[-1] ** 0.25)
        step, decrease, rounds = _step(tensor.size, heads, gradient, metric, damping, forcing)
        spent += rounds * round_work(tensor, len(heads), metric)
        trial = heads.moved(step)
        residual = tensor - trial.tensor()
        trial_pulled = metric(residual)
        loss = metric.power(residual, trial_pulled) / size
        if not loss < history[-1]:
            damping, growth, fast = damping * growth, 2.0 * growth, False
            continue
        # Nielsen's rule: damping follows how well the quadratic model predicted the decrease.
        gain = min(1.0, (history[-1] - loss) * size / max(decrease, np.finfo(np.float64).tiny))
        damping = max(MIN_DAMPING, damping * max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3))
        heads, pulled, growth = trial, trial_pulled, 2.0
        fast = loss < 0.1 * history[-1]
        history.append(loss)
    return HeadDescent(heads, float(np.sqrt(max(0.0, history[-1]))), spent)


def round_work(tensor: NDArray, n_heads: int, metric: Metric) -> float:
    """Multiply-adds of one round of conjugate gradients, calls included."""
    n_outputs = len(tensor) // metric.n_scales
    calls = CALL_WORK * metric.n_scales
    return 4.0 * n_heads * tensor.size / metric.n_scales + n_outputs * metric.work + calls


def _finished(history: list[float], spent: float, patience: Patience, fast: bool) -> bool:
    loss, window = history[-1], patience.window
    if loss <= ROUNDING**2 or len(history) > MAX_STEPS:
        return True
    # Superlinear convergence soon ends by itself: no limit stops it.
    if not fast and (loss <= patience.enough**2 or spent > patience.work):
        return True
    return len(history) > window and loss > (1.0 - patience.fraction) * history[-1 - window]


def _step(
    size: int, heads: AnyHeads, gradient: NDArray, metric: Metric, damping: float, forcing: float
) -> tuple[NDArray, float, int]:
    """The damped Gauss-Newton step, the decrease its model predicts, and rounds of work."""
    diagonal = heads.diagonal()
    shift = damping * max(float(np.mean(diagonal)), np.finfo(np.float64).tiny)
    if len(gradient) * size <= DENSE_ENTRIES:
        derivatives = heads.derivatives()
        flat = derivatives.reshape(len(derivatives), -1)
        pulled = metric(derivatives).reshape(flat.shape)
        dense = damped_step(flat @ pulled.T, shift, gradient)
        # Not definite in floating point: no step, which raises the damping.
        step = np.zeros_like(gradient) if dense is None else dense
        decrease = float(step @ gradient + shift * (step @ step))
        return step, decrease, 8 + len(flat) // 16  # it takes as long as so many rounds

    def curvature(step: NDArray) -> NDArray[np.float64]:
        return heads.gradient(metric(heads.change(step))) + shift * step

    step, remainder, rounds = _conjugate_gradients(curvature, gradient, diagonal + shift, forcing)
    decrease = float(step @ gradient + step @ remainder + shift * (step @ step))
    return step, decrease, rounds


def _conjugate_gradients(
    curvature: Callable[[NDArray], NDArray], gradient: NDArray, diagonal: NDArray, forcing: float
) -> tuple[NDArray, NDArray, int]:
    """Preconditioned conjugate gradients: the step, what is left of the gradient, rounds."""
    step, remainder = np.zeros_like(gradient), gradient.copy()
    scaled = remainder / diagonal
    direction, power = scaled, float(remainder @ scaled)
    goal, rounds = forcing**2 * power, 0
    while power > goal and rounds < MAX_ROUNDS:
        curved = curvature(direction)
        rounds += 1
        bend = float(direction @ curved)
        if bend <= 0.0:
            # Only rounding is left of a singular metric.
            break
        length = power / bend
        step = step + length * direction
        remainder = remainder - length * curved
        scaled = remainder / diagonal
        previous, power = power, float(remainder @ scaled)
        direction = scaled + (power / previous) * direction
    return step, remainder, rounds
