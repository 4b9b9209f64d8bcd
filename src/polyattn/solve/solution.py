"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.solve.structure import FeatureGroups
from polyattn.stats import Moments, TriangularFactor


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
    # False: an iteration had to stop before, or found another minimiser than that of least norm, or
    # rounding keeps it from the least error.
    is_reached: bool = True
