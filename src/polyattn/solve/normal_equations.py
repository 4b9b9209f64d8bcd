"""The normal equations of rows, known only by passes over them, and descents that solve them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import exponent_for
from polyattn.solve.conjugate_gradients import MANY_COEFFICIENTS, Map, descend, squares
from polyattn.solve.excess import Excess, excess
from polyattn.solve.pivoted_rows import PivotedRows
from polyattn.solve.primal import residual_pass
from polyattn.solve.random_step import Probe, probe
from polyattn.solve.whitened_rows import WhitenedRows
from polyattn.solve.whitening import Whitening
from polyattn.stats.rows import Rows

# Descents stop when the gradient has fallen by this factor, whitened; by the other one where a pass
# takes so many products (rows times features) that the last digits would cost minutes.
GRADIENT_REDUCTION, LONG_REDUCTION, LONG_PASS = 1e-12, 1e-8, 1 << 32

# A descent ends after so many passes.
MAX_PASSES = 2000

# Rounding of the recursion is mended by further descents from the true gradient, up to so many.
MAX_DESCENTS = 3

# What rises by more than this part of the squared targets went astray: so many shorter descents
# are tried instead.
HIGHER, MAX_TRIES = 1e-10, 4

# Descents in single precision end after this fall, or so many passes.  Others follow as long as
# the true gradient falls so far, and no Ritz value is so small beside the largest.
SINGLE_REDUCTION, SINGLE_PASSES, SINGLE_FALL, SINGLE_RANGE = 1e-4, 400, 1e-2, 1e-5

# The random step that looks for directions without data.
PROBE_SEED = 0


@dataclass(frozen=True)
class Approach:
    """Where descents led to, for scaled tokens and targets, each output in its unit.

    gradient : (p, e), the true one at ``theta`` (p, e)
    in_norm : whether descents went in the coordinates of the norm, not in whitened ones
    reached : whether all gradients fell as far as was wanted
    smallest, largest : Ritz values in the coordinates of the descents
    least : a lower bound of the whitened spectrum, by a random step; 0 where there is none
    """

    theta: NDArray[np.float64]
    gradient: NDArray[np.float64]
    residual_power: float
    in_norm: bool
    reached: bool = False
    passes: int = 0
    smallest: float = np.inf
    largest: float = 0.0
    least: float = 0.0


@dataclass(frozen=True)
class FeatureEquations:
    """(sum phi phi^T + ridge) theta = sum phi y^T, each output times 2**unit.

    The units keep squares of outputs in the range of float64.
    """

    rows: Rows
    ridge: float
    most_passes: int
    whitening: Whitening
    whitened_rows: WhitenedRows | None  # in single precision, where that pays
    cross: NDArray[np.float64]  # (p, e), the right-hand side
    unit: NDArray[np.intp]  # (e,)
    target_power: float  # sum of the squared targets

    @classmethod
    def of(cls, rows: Rows, ridge: float, most_passes: int) -> FeatureEquations:
        """Those of the rows, after two passes."""
        whitening = Whitening.of(rows, ridge)
        cross, power = residual_pass(np.zeros((rows.n_features, rows.n_outputs)), rows)
        sizes = np.abs(whitening.gradient(cross)).max(axis=0)
        unit = np.array([-(exponent_for(float(size)) or 0) for size in sizes], dtype=np.intp)
        single = WhitenedRows.of(rows, whitening)
        return cls(rows, ridge, most_passes, whitening, single, np.ldexp(cross, unit), unit, power)

    @property
    def is_long(self) -> bool:
        """Whether passes take so long that descents stop sooner."""
        return self.rows.n_rows * self.rows.n_features >= LONG_PASS

    @property
    def reduction(self) -> float:
        """The part of the whitened gradient that may be left."""
        return LONG_REDUCTION if self.is_long else GRADIENT_REDUCTION

    def solved(self, in_norm: bool) -> Approach:
        """The minimiser by descents, the later ones from the true gradient of the one before."""
        goals = self.reduction**2 * self.whitening.power(self.cross)
        now, left = self._start(in_norm), np.inf
        if not in_norm and self.whitened_rows is not None:
            now = self._approached(self.whitened_rows, goals)
            if now.reached and np.all(self.whitening.power(now.gradient) <= goals):
                return now
        for _ in range(MAX_DESCENTS):
            after = self._lowered(now, goals)
            if not after.reached:
                return after
            before, left = left, largest_ratio(self.whitening.power(after.gradient), goals)
            # What does not fall any more is rounding.
            if left > 0.25 * before:
                return replace(now, passes=after.passes)
            now = after
            if left <= 1.0 or now.passes >= self.most_passes:
                break
        return now

    def objective(self, found: Approach) -> float:
        """The squared error and the penalty, for scaled tokens and targets."""
        theta = np.ldexp(found.theta, -self.unit)
        return found.residual_power + self.ridge * float(np.sum(theta**2))

    def largest_objective(self, found: Approach) -> float:
        """The same, not less than it is: rounding of outputs is added to the residuals."""
        rounding = np.ldexp(self.whitening.sizes.of_outputs(found.theta), -self.unit)
        return float(np.sqrt(self.objective(found)) + np.linalg.norm(rounding)) ** 2

    def probed(self) -> Probe:
        """What a random step shows of these equations without their ridge."""
        single, start = None, self.whitening.random_step(PROBE_SEED)
        if self.whitened_rows is not None:
            single = partial(self.whitened_rows.product, ridge=0.0)
        return probe(self._product(False, 0.0), single, start, self.most_passes)

    def whitened(self, found: Approach) -> NDArray[np.float64]:
        """The gradient (p, e) that is left, in the coordinates of the descents."""
        return self._coordinates(found.in_norm)[1](found.gradient)

    def excess(self, found: Approach) -> tuple[Excess, NDArray[np.float64]]:
        """Bounds of the excess of each output in its unit, and the (whitened) gradient's power."""
        # No output is further from its targets than zero is, which descents start from.
        targets = np.ldexp(self.rows.output_sizes, -(self.rows.target_exponent or 0))
        farthest = 2.0 * targets * np.sqrt(self.rows.total_weight)
        residual = np.ldexp(np.minimum(np.sqrt(found.residual_power), farthest), self.unit)
        sizes, largest = self.whitening.sizes, max(found.largest, 1.0)
        plain, whitened = sizes.of_gradient(found.theta, residual, largest)
        lengths = np.sqrt(squares(found.gradient)), np.sqrt(self.whitening.power(found.gradient))
        # What is left out has no bound.
        least = 0.0 if found.in_norm or self.whitening.n_weak else found.least
        rounding = whitened
        if found.in_norm:
            rounding = plain if self.pivoted is None else plain / np.sqrt(self.pivoted.smallest)
        left = np.sqrt(squares(self.whitened(found))) + rounding
        return excess(lengths, (plain, whitened), self.ridge, least), left**2

    def error_estimate(self, found: Approach) -> float:
        """About how far the coefficients are off, beside their norm, by the gradient that is left.

        They are off by H^-1 g, and H^-1 is estimated by L L^T over the smallest Ritz value.
        """
        if not found.smallest > 0:
            return np.inf
        to_theta, to_gradient, _ = self._coordinates(found.in_norm)
        moved = to_theta(to_gradient(found.gradient)) / found.smallest
        return float(np.sqrt(largest_ratio(squares(moved), squares(found.theta))))

    def _start(self, in_norm: bool) -> Approach:
        return Approach(np.zeros_like(self.cross), self.cross, self.target_power, in_norm)

    def _approached(self, rows: WhitenedRows, goals: NDArray) -> Approach:
        """From zero by descents in single precision, as long as the true gradient follows."""
        now, product = self._start(in_norm=False), partial(rows.product, ridge=self.ridge)
        powers = self.whitening.power(now.gradient)
        while np.any(powers > goals) and now.passes < self.most_passes:
            near = np.maximum(0.25 * goals, SINGLE_REDUCTION**2 * powers)
            after = self._descended(now, near, product, SINGLE_PASSES)
            before, powers = powers, self.whitening.power(after.gradient)
            is_slow = np.any(powers > np.maximum(goals, SINGLE_FALL**2 * before))
            if (
                is_slow
                or self._is_higher(after, now)
                or after.smallest < SINGLE_RANGE * after.largest
            ):
                return replace(now, passes=after.passes)
            now = after
        return now

    def _lowered(self, now: Approach, goals: NDArray) -> Approach:
        """One descent further, of fewer passes if rounding took the objective up; or none."""
        limit = MAX_PASSES
        for _ in range(MAX_TRIES):
            after = self._descended(now, goals, most_passes=limit)
            if not self._is_higher(after, now):
                return replace(after, reached=after.reached and limit == MAX_PASSES)
            limit = max(1, (after.passes - now.passes) // 4)
            now = replace(now, passes=after.passes)
        return replace(now, reached=False)

    def _is_higher(self, after: Approach, now: Approach) -> bool:
        rounding = HIGHER * self.target_power
        return not self.objective(after) <= self.objective(now) + rounding

    def _descended(
        self,
        now: Approach,
        goals: NDArray,
        product: Map | None = None,
        most_passes: int = MAX_PASSES,
    ) -> Approach:
        """One descent further, with products in float64 by default."""
        to_theta, to_gradient, power = self._coordinates(now.in_norm)
        product = product or self._product(now.in_norm, self.ridge)
        left = min(most_passes, self.most_passes - now.passes)
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

    @cached_property
    def pivoted(self) -> PivotedRows | None:
        """Coordinates that keep to the row space; None where the plain ones are good enough."""
        is_wide = self.rows.n_features >= MANY_COEFFICIENTS
        return PivotedRows.of(self.rows, self.ridge) if is_wide else None

    def _coordinates(self, in_norm: bool) -> tuple[Map, Map, Map]:
        """From coordinates of a descent to theta, the transpose, and how gradients are judged."""
        if not in_norm:
            return self.whitening.theta, self.whitening.gradient, squares
        pivoted = self.pivoted
        if pivoted is None:
            return _same, _same, self.whitening.power
        judged: Map = lambda columns: self.whitening.power(pivoted.inverse(columns))  # noqa: E731
        return pivoted.theta, pivoted.theta, judged


def largest_ratio(above: NDArray, below: NDArray) -> float:
    """The largest above / below over the columns where ``below`` is positive; 0 without any."""
    positive = below > 0
    return float(np.max(above[positive] / below[positive], initial=0.0))


def _same(columns: NDArray) -> NDArray[np.float64]:
    return columns
