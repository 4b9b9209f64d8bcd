"""The normal equations of rows, known only by passes over them, and descents that solve them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import exponent_for
from polyattn.solve.conjugate_gradients import Map, descend
from polyattn.solve.primal import residual_pass
from polyattn.solve.whitening import Whitening
from polyattn.stats.rows import Rows

# Descents stop when the gradient has fallen by this factor, whitened.
GRADIENT_REDUCTION = 1e-12

# Rounding of the recursion is mended by further descents from the true gradient, up to so many.
MAX_DESCENTS = 3

# The random step that looks for directions without data, and how far its gradient has to fall.
PROBE_SEED, PROBE_REDUCTION = 0, 1e-9

# It has length sqrt(k) along k directions without data; less than this is none.
UNSEEN_LENGTH = 1e-3


@dataclass(frozen=True)
class Approach:
    """Where descents led to, for scaled tokens and targets, each output in its unit.

    gradient : (p, e), the true one at ``theta`` (p, e)
    in_norm : whether descents went in the coordinates of the norm, not in whitened ones
    reached : whether all gradients fell as far as was wanted
    smallest, largest : Ritz values in the coordinates of the descents
    """

    theta: NDArray[np.float64]
    gradient: NDArray[np.float64]
    residual_power: float
    in_norm: bool
    reached: bool = False
    passes: int = 0
    smallest: float = np.inf
    largest: float = 0.0


@dataclass(frozen=True)
class FeatureEquations:
    """(sum phi phi^T + ridge) theta = sum phi y^T, each output times 2**unit.

    The units keep squares of outputs in the range of float64.
    """

    rows: Rows
    ridge: float
    most_passes: int
    whitening: Whitening
    cross: NDArray[np.float64]  # (p, e), the right-hand side
    unit: NDArray[np.intp]  # (e,)

    @classmethod
    def of(cls, rows: Rows, ridge: float, most_passes: int) -> FeatureEquations:
        """Those of the rows, after two passes."""
        whitening = Whitening.of(rows, ridge)
        cross, _ = residual_pass(np.zeros((rows.n_features, rows.n_outputs)), rows)
        sizes = np.abs(whitening.gradient(cross)).max(axis=0)
        unit = np.array([-(exponent_for(float(size)) or 0) for size in sizes], dtype=np.intp)
        return cls(rows, ridge, most_passes, whitening, np.ldexp(cross, unit), unit)

    def solved(self, in_norm: bool) -> Approach:
        """The minimiser by descents, the later ones from the true gradient of the one before."""
        goals = GRADIENT_REDUCTION**2 * self.whitening.power(self.cross)
        now = Approach(np.zeros_like(self.cross), self.cross, 0.0, in_norm)
        left = np.inf
        for _ in range(MAX_DESCENTS):
            after = self._descended(now, goals)
            before, left = left, largest_ratio(self.whitening.power(after.gradient), goals)
            # What does not fall any more is rounding.
            if left > 0.25 * before:
                return replace(now, passes=after.passes)
            now = after
            if left <= 1.0 or not now.reached or now.passes >= self.most_passes:
                break
        return now

    def probed(self) -> tuple[bool, float, int]:
        """Whether some direction has no data, the smallest Ritz value without ridge, and passes.

        A random step, led back along all directions that change outputs, ends at zero where the
        data determine all coefficients: its length is at most that of its gradient over the
        smallest eigenvalue.
        """
        step, product = self.whitening.random_step(PROBE_SEED), self._product(False, 0.0)
        back = -product(step)
        goals = PROBE_REDUCTION**2 * squares(back)
        found = descend(product, back, squares, goals, self.most_passes)
        explained = np.sqrt(goals[0]) / found.smallest if found.passes else 0.0
        length = float(np.linalg.norm(step + found.steps))
        is_unseen = length > max(UNSEEN_LENGTH, 10.0 * explained)
        return is_unseen, found.smallest, found.passes + 1

    def whitened(self, gradient: NDArray, in_norm: bool) -> NDArray[np.float64]:
        """A gradient (p, e) in the coordinates of the descents."""
        return self._coordinates(in_norm)[1](gradient)

    def _descended(self, now: Approach, goals: NDArray) -> Approach:
        """One descent further."""
        to_theta, to_gradient, power = self._coordinates(now.in_norm)
        product = self._product(now.in_norm, self.ridge)
        left = self.most_passes - now.passes
        found = descend(product, to_gradient(now.gradient), power, goals, left)
        theta = now.theta + to_theta(found.steps)
        gradient, residual_power = residual_pass(np.ldexp(theta, -self.unit), self.rows)
        return Approach(
            theta,
            np.ldexp(gradient, self.unit) - self.ridge * theta,
            residual_power,
            now.in_norm,
            bool(np.all(found.reached)),
            now.passes + found.passes,
            min(now.smallest, found.smallest),
            max(now.largest, found.largest),
        )

    def _product(self, in_norm: bool, ridge: float) -> Map:
        """The matrix of the equations in the coordinates of the descents, as a map of columns."""
        to_theta, to_gradient, _ = self._coordinates(in_norm)

        def product(columns: NDArray) -> NDArray[np.float64]:
            theta = to_theta(columns)
            gradient, _ = residual_pass(theta, self.rows, with_targets=False)
            return to_gradient(ridge * theta - gradient)

        return product

    def _coordinates(self, in_norm: bool) -> tuple[Map, Map, Map]:
        """From coordinates of a descent to theta, the transpose, and how gradients are judged."""
        if in_norm:
            return _same, _same, self.whitening.power
        return self.whitening.theta, self.whitening.gradient, squares


def squares(columns: NDArray) -> NDArray[np.float64]:
    """The sum of squares of each column."""
    return np.asarray(np.einsum("pe,pe->e", columns, columns))


def largest_ratio(above: NDArray, below: NDArray) -> float:
    """The largest above / below over the columns where ``below`` is positive; 0 without any."""
    positive = below > 0
    return float(np.max(above[positive] / below[positive], initial=0.0))


def _same(columns: NDArray) -> NDArray[np.float64]:
    return columns
