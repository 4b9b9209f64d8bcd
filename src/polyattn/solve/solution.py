"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.stats import Moments, TriangularFactor


@dataclass(frozen=True)
class Solution:
    """Coefficients in the coordinates of the norm, for scaled tokens and targets.

    theta : array (p, e); P = theta / s
    rank : numerical rank of the features (None where a penalty made it irrelevant)
    residual_power : sum of weighted squared residuals, scaled targets
    condition : estimated condition number of the (column-equilibrated) features
    note : what else is to be said, a sentence that begins with a space
    statistics : the sums behind it, where the solver made some or started from them
    """

    theta: NDArray[np.float64]
    rank: int | None
    residual_power: float
    condition: float
    ridge: float
    note: str = ""
    statistics: Moments | TriangularFactor | None = None
