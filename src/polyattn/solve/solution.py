"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.solve.structure import FeatureGroups
from polyattn.stats import Moments, TriangularFactor


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
    # False: an iteration had to stop before, or found another minimiser than that of least norm, or
    # rounding keeps it from the least error.
    is_reached: bool = True
