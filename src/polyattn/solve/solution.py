"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import EPS
from polyattn.solve.structure import FeatureGroups
from polyattn.stats import Moments, TriangularFactor

# Coefficients that rounding changes by less than this part of their norm need no word.
SEEN_ROUNDING = 1e-2

SMALL_RIDGE = (
    " The ridge is so small beside the errors that remain that rounding leaves the coefficients "
    "uncertain by about {:.0e} of their norm: predictions on inputs unlike the data may be wrong. "
    "A larger ridge would steady them."
)


class Stall(NamedTuple):
    """Where an iteration stopped short."""

    passes: int
    gradient: float  # what is left of it, beside its start


@dataclass(frozen=True)
class Solution:
    """Coefficients in the coordinates of the norm, for scaled tokens and targets."""

    theta: NDArray[np.float64]  # (p, e); P = theta / s
    rank: int | None  # of the features; None where a penalty made it irrelevant
    residual_power: float  # sum of weighted squared residuals
    condition: float  # of the column-equilibrated features, estimated
    ridge: float
    note: str = ""  # sentences for the outcome, beginning with a space
    # The sums behind it, where the solver made some or started from them.
    statistics: Moments | TriangularFactor | None = None
    structure: FeatureGroups | None = None  # features that are zero or stand for others
    # The objective, scaled, is proved to be at most so much above its infimum.  None: not examined.
    objective_bound: float | None = None
    stall: Stall | None = None
    # The part of the coefficients that a small ridge is known to leave to rounding.
    uncertain: float = 0.0
    # False: an iteration had to stop before, or found another minimiser than that of least norm, or
    # rounding keeps it from the least error.
    is_reached: bool = True
    # Of an iteration: proved to be minimal up to rounding, and a random test found no other.
    seems_unique: bool = False

    def judged(self, coordinate_sizes: NDArray) -> Solution:
        """The same, with a word on coefficients that a small ridge leaves to rounding.

        Beside the largest, features of small coordinates have the third power of their sizes.
        """
        sizes, rounding = coordinate_sizes[coordinate_sizes > 0], self.uncertain
        if len(sizes):
            smallest = float(sizes.min() / sizes.max()) ** 3
            by_size = left_to_rounding(self.theta, self.residual_power, self.condition, self.ridge)
            rounding = max(rounding, smallest * by_size)
        if rounding <= SEEN_ROUNDING:
            return self
        return replace(self, note=self.note + SMALL_RIDGE.format(rounding), is_reached=False)


def left_to_rounding(
    theta: NDArray, residual_power: float, condition: float, ridge: float
) -> float:
    """How uncertain a small ridge leaves the coefficients, beside their norm; 0 if unknown.

    theta = Phi^T r / ridge for the residuals r: what rounding leaves of the products, about
    EPS ||Phi|| ||r||, is magnified by 1 / ridge along directions without data.  ||Phi|| is the
    condition number times the root of the ridge.
    """
    if ridge == 0.0:
        return 0.0
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(theta)) * ridge**0.5
    if not (length > 0 and np.isfinite(condition)):
        return 0.0
    return EPS * condition * residual_power**0.5 / length
