"""Log-loss of class numbers: its value, slopes and curvature at given outputs.

Two classes have one output f, the logarithm of their odds; K > 2 classes have K outputs, of which
softmax makes probabilities.  With m the lead of the own class over the others,

    two classes   loss = log(1 + exp(-m)),   m = f for class 1, -f for class 0
    K classes     loss = log(1 + sum over others exp(f_k - f_own))

Everything is computed from the outputs of the others minus that of the own class, so that small
probabilities keep their digits and no exponential overflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What ``fit`` can minimise for targets or classes; and for several labels at once, each of which
# has one output and is there or not.
LOSSES = ("squared", "logistic")
PER_OUTPUT = "logistic_per_output"


def probabilities(outputs: Any, each: bool = False) -> Any:
    """Probabilities (..., K) of outputs (..., K), or of one (..., 1) for two classes; of lists.

    each : whether every output is that of a label by itself, of which any number may be there
    """
    if isinstance(outputs, list):
        return [probabilities(one, each) for one in outputs]
    if each:
        # exp(-log(1 + exp(-f))): no exponential overflows, and small ones keep their digits.
        return np.exp(-np.logaddexp(0.0, -outputs))
    if outputs.shape[-1] == 1:
        outputs = np.concatenate([-0.5 * outputs, 0.5 * outputs], axis=-1)
    chances = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class LogLoss:
    """sum_i w_i loss_i for class numbers ``codes`` (rows,) and ``weights`` (rows,) >= 0."""

    codes: NDArray[np.intp]
    weights: Array
    n_classes: int

    @property
    def n_outputs(self) -> int:
        """One output for two classes, else one for each class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def third_derivative_factor(self) -> float:
        """c with |third derivative| <= c ||d|| second derivative along outputs d of a row.

        For two classes |l'''| <= l'' |d|.  Otherwise both are central moments of d, which lies
        within an interval of length at most sqrt(2) ||d||.
        """
        return 1.0 if self.n_classes == 2 else float(np.sqrt(2.0))

    @property
    def first_curvature(self) -> float:
        """The curvature of each row where all outputs are zero, along outputs of sum zero."""
        return 0.25 if self.n_classes == 2 else 1.0 / self.n_classes

    def at(self, outputs: Array) -> LossPoint:
        """The loss at outputs (e, rows)."""
        if self.n_classes == 2:
            sign = np.where(self.codes == 1, -1.0, 1.0)
            against = sign * outputs[0]
            losses = np.logaddexp(0.0, against)
            wrong = np.exp(against - losses)
            slopes, odds = (self.weights * sign * wrong)[None], wrong[None]
        else:
            own = self.codes[None]
            others = outputs - np.take_along_axis(outputs, own, axis=0)
            np.put_along_axis(others, own, -np.inf, axis=0)
            top = others.max(axis=0)
            against = top + np.log(np.exp(others - top).sum(axis=0))
            losses = np.logaddexp(0.0, against)
            odds = np.exp(others - losses)
            slopes = self.weights * odds
            wrong = np.exp(against - losses)
            np.put_along_axis(slopes, own, -(self.weights * wrong)[None], axis=0)
            np.put_along_axis(odds, own, np.exp(-losses)[None], axis=0)
            against = top
        return LossPoint(self, losses, slopes, odds, -against, wrong)


@dataclass(frozen=True)
class LossPoint:
    """The loss at some outputs.

    losses : (rows,), without weights
    slopes : (e, rows), the derivatives by the outputs, with weights
    probabilities : (e, rows), of each class, or for two classes of the wrong one
    margins : (rows,), by how much the own class leads the next one; negative where it does not
    wrong : (rows,), the probability of all classes but the own one
    """

    loss: LogLoss
    losses: Array
    slopes: Array
    probabilities: Array
    margins: Array
    wrong: Array

    @property
    def value(self) -> float:
        """sum_i w_i loss_i."""
        return float(self.loss.weights @ self.losses)

    def curved(self, directions: Array, first: int = 0) -> Array:
        """Second derivatives times ``directions`` (e, some rows, from row ``first`` on)."""
        some = slice(first, first + directions.shape[1])
        weights, chances = self.loss.weights[some], self.probabilities[:, some]
        if self.loss.n_classes == 2:
            return np.asarray(weights * (chances * np.exp(-self.losses[some])) * directions)
        # Variances do not change with the origin; at the own class few digits cancel.
        own = self.loss.codes[some][None]
        moved = directions - np.take_along_axis(directions, own, axis=0)
        mean = np.einsum("kr,kr->r", chances, moved)
        return np.asarray(weights * chances * (moved - mean))

    @property
    def typical_curvature(self) -> Array:
        """(rows,) Mean second derivative along directions of sum zero, with weights."""
        if self.loss.n_classes == 2:
            return self.least_curvature
        spread = np.einsum("kr,kr->r", self.probabilities, 1.0 - self.probabilities)
        return np.asarray(self.loss.weights * spread / (self.loss.n_classes - 1))

    @property
    def least_curvature(self) -> Array:
        """(rows,) c_i with d^T (second derivative) d >= c_i ||d||^2 for d of sum zero.

        For two classes it is the second derivative.  Otherwise the variance of d is at least the
        least probability times sum_k (d_k - mean)^2.
        """
        chances = self.probabilities
        least = self.wrong * np.exp(-self.losses) if len(chances) == 1 else chances.min(axis=0)
        return np.asarray(self.loss.weights * least)
