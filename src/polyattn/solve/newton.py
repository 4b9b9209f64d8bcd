"""Log-loss plus a ridge, minimised by Newton's method without forming its matrix.

    J(theta) = sum_i w_i loss_i(theta^T phi_i) + ridge ||theta||^2

is convex.  A step solves H step = -gradient by conjugate gradients, each of which takes one pass
over the summaries, with a factored Gram matrix as preconditioner.  Outputs are kept, so that the
length of a step costs no pass: it is found by the derivative along the step, to any accuracy.
Without a ridge the data may be separable: J then has no minimiser.  It is told by a theta for which
all margins are positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import EPS
from polyattn.solve.curvature_model import Inverse, SearchSpace
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LogLoss, LossPoint
from polyattn.solve.row_kernel import RowKernel

Array = NDArray[np.float64]

# Steps end when the next one would gain less than this part of J.  Near the minimum the gain is
# the square of the error of theta, relatively.
SMALL_GAIN = 1e-20
# A rise by this part of J may be rounding.
ROUNDED = 1e-12
# A gain below this part of J that no longer falls is rounding.
STALLED_GAIN = 1e-10

MAX_STEPS = 100
# Conjugate gradients of one step, and the accuracies between which they end.
MAX_PRODUCTS, TIGHT, LOOSE = 500, 1e-6, 0.1

# Along a step the derivative falls to this part of its start, after at most so many trials.
LEVEL, MAX_TRIALS = 0.1, 60
# The first of them changes no output by more than this: almost singular steps are far too long.
FIRST_CHANGE = 1e3

# Margins above so many roundings of each term behind them are positive.
ROUNDINGS = 8.0

# Up to so many conjugate gradients of a step, no other preconditioner is looked for.
LEAST_PRODUCTS = 20


@dataclass(frozen=True)
class NewtonIterate:
    """Where Newton's method is, and ends.

    theta : (p, e); if ``separates``, all margins are positive and the least is 1
    outputs : (e, rows), theta^T phi
    point : the loss there
    objective, gradient : J and its derivative (p, e)
    settled : whether no step gains anything
    """

    theta: Array
    outputs: Array
    point: LossPoint
    objective: float
    gradient: Array
    n_steps: int = 0
    settled: bool = False
    separates: bool = False


def minimise(
    passes: FeaturePasses,
    loss: LogLoss,
    ridge: float,
    inverse: Inverse,
    space: SearchSpace | None = None,
    kernel: RowKernel | None = None,
) -> NewtonIterate:
    """Newton's method from zero.

    inverse : about the inverse of the second derivative of J at zero
    space, kernel : for few features or few rows, where better inverses are found if needed

    Cost: 4 e p flops per row for each conjugate gradient, some tens to hundreds of them.
    """
    newton = _Newton(passes, loss, ridge, inverse, space, kernel)
    here = newton.at(np.zeros((passes.n_features, loss.n_outputs)))
    for n_steps in range(1, MAX_STEPS + 1):
        here = replace(newton.moved(here), n_steps=n_steps)
        if newton.separates(here):
            divided = newton.at(here.theta / newton.least_margin(here))
            if newton.separates(divided):
                return replace(divided, n_steps=n_steps, separates=True)
        if here.settled:
            break
    # Outputs were added up step by step.
    return replace(newton.at(here.theta), n_steps=here.n_steps)


def iterate_at(
    passes: FeaturePasses, loss: LogLoss, ridge: float, theta: Array, outputs: Array | None = None
) -> NewtonIterate:
    """J and its gradient at theta (p, e), whose outputs may be known."""
    outputs = passes.outputs(theta) if outputs is None else outputs
    point = loss.at(outputs)
    gradient = _centred(passes.correlated(point.slopes) + 2.0 * ridge * theta)
    objective = point.value + ridge * float(np.sum(theta**2))
    return NewtonIterate(theta, outputs, point, objective, gradient)


class _Newton:
    """One problem, and what the next step needs to know of those before."""

    def __init__(
        self,
        passes: FeaturePasses,
        loss: LogLoss,
        ridge: float,
        inverse: Inverse,
        space: SearchSpace | None,
        kernel: RowKernel | None = None,
    ) -> None:
        self.passes, self.loss, self.ridge = passes, loss, ridge
        self.inverse, self.space, self.kernel = inverse, space, kernel
        self.scale = np.ones(passes.n_features) if space is None else space.scale
        self.norms = passes.norms(self.scale) if ridge == 0.0 else np.empty(0)
        # Rows without features have margin 0 whatever theta is, and rows of weight 0 do not count.
        self.counted = passes.has_features() & (loss.weights > 0.0)
        self.first_power, self.last_gain = 0.0, np.inf

    def at(self, theta: Array, outputs: Array | None = None) -> NewtonIterate:
        """Value and gradient at theta, whose outputs may be known."""
        return iterate_at(self.passes, self.loss, self.ridge, theta, outputs)

    def moved(self, here: NewtonIterate) -> NewtonIterate:
        """One step further; ``settled`` if it was too small to matter."""
        power = float(np.sum(here.gradient * self.inverse(here.gradient)))
        if not power > 0.0:
            return replace(here, settled=True)
        self.first_power = self.first_power or power
        accuracy = float(np.clip((power / self.first_power) ** 0.25, TIGHT, LOOSE))
        step, count = _newton_step(
            lambda direction: self._curved(here.point, direction),
            self.inverse, here.gradient, accuracy,
        )  # fmt: skip
        step = _centred(step)
        gain = -0.5 * float(np.sum(here.gradient * step))
        stalled = gain > 0.25 * self.last_gain and gain <= STALLED_GAIN * here.objective
        settled = stalled or gain <= SMALL_GAIN * here.objective
        self.last_gain = gain
        along = self.passes.outputs(step)
        length = _step_length(self.loss, here, step, along, self.ridge)
        there = self.at(here.theta + length * step, here.outputs + length * along)
        if not there.objective <= (1.0 + ROUNDED) * here.objective:
            # Rounding: this step leads nowhere, and neither would another.
            return replace(here, settled=True)
        self._refresh(there.point, count)
        return replace(there, settled=settled)

    def separates(self, here: NewtonIterate) -> bool:
        """Whether all margins that count are positive, by more than rounding can make of zero."""
        if self.ridge > 0.0 or not np.any(self.counted) or not self.least_margin(here) > 0.0:
            return False
        size = float(np.linalg.norm(self.scale[:, None] * here.theta, axis=0).max())
        rounding = ROUNDINGS * EPS * self.passes.n_terms * size * self.norms
        return bool(np.all(here.point.margins[self.counted] > rounding[self.counted]))

    def least_margin(self, here: NewtonIterate) -> float:
        """The smallest margin that counts."""
        return float(here.point.margins[self.counted].min())

    def _curved(self, point: LossPoint, direction: Array) -> Array:
        """The second derivative of J times a direction (p, e)."""
        curved = _centred(self.passes.curvature_product(direction, point.curved))
        return curved + 2.0 * self.ridge * direction

    def _refresh(self, point: LossPoint, count: int) -> None:
        """A preconditioner of the present curvature, where the last step took many products."""
        weights = point.typical_curvature
        worth = self.passes.n_features / (16.0 * self.loss.n_outputs)
        if self.kernel is not None:
            if count > LEAST_PRODUCTS:
                self.inverse = self.kernel.inverse(weights)
        elif self.space is not None and count > max(LEAST_PRODUCTS, worth):
            curvature = self.space.curvature(self.passes, weights, 2.0 * self.ridge)
            self.inverse = self.space.inverse(curvature)


def _centred(columns: Array) -> Array:
    """Columns (p, e) without the part in which the outputs of all classes move together.

    Softmax does not change along it: what is there is rounding, beside a ridge as well.
    """
    if columns.shape[1] == 1:
        return columns
    return np.asarray(columns - columns.mean(axis=1, keepdims=True))


def _newton_step(
    product: Callable[[Array], Array], inverse: Inverse, gradient: Array, accuracy: float
) -> tuple[Array, int]:
    """The step with H step = -gradient, to an accuracy in the metric of ``inverse``; products."""
    step, residual = np.zeros_like(gradient), -gradient
    turned = inverse(residual)
    direction, power = turned, float(np.sum(residual * turned))
    enough, count = accuracy**2 * power, 0
    while power > enough and count < MAX_PRODUCTS:
        curved = product(direction)
        curvature = float(np.sum(direction * curved))
        if not curvature > 0.0:
            # Rounding: nothing curves in this direction, and the step so far is the answer.
            break
        length = power / curvature
        step = step + length * direction
        residual = residual - length * curved
        turned = inverse(residual)
        new_power, count = float(np.sum(residual * turned)), count + 1
        direction, power = turned + (new_power / power) * direction, new_power
    return (step if count else direction), count


def _step_length(
    loss: LogLoss, here: NewtonIterate, step: Array, along: Array, ridge: float
) -> float:
    """The length at which J is least along the step, nearly: a root of its derivative.

    ``along`` are the outputs of the step.  The derivative increases, so Newton's method on it is
    kept within a bracket, whose lower end lies below the minimum.
    """
    inner, square = 2.0 * ridge * float(np.sum(here.theta * step)), float(np.sum(step**2))

    def derivatives(length: float) -> tuple[float, float, float]:
        point = loss.at(here.outputs + length * along)
        change = point.value - here.point.value + length * (inner + ridge * length * square)
        slope = float(np.sum(point.slopes * along)) + inner + 2.0 * ridge * length * square
        return change, slope, float(np.sum(along * point.curved(along))) + 2.0 * ridge * square

    start = -derivatives(0.0)[1]
    low, high = 0.0, np.inf
    length = min(1.0, FIRST_CHANGE / max(float(np.abs(along).max()), 1.0))
    for _ in range(MAX_TRIALS):
        change, slope, curvature = derivatives(length)
        # Far behind the minimum J may rise slowly, and be higher than here.
        if abs(slope) <= LEVEL * start and change <= ROUNDED * here.objective:
            break
        low, high = (length, high) if slope < 0.0 else (low, length)
        most = min(high, 4.0 * low) if low > 0.0 else high
        length = length - slope / curvature if curvature > 0.0 else np.inf
        if not low < length < high:
            length = 0.5 * (low + most)
        length = min(length, most)
    return length
