"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Solution:
    """Coefficients in the coordinates of the norm, for scaled tokens and targets.

    theta : array (p, e); P = theta / s
    rank : numerical rank of the features (None where a penalty made it irrelevant)
    residual_power : sum of weighted squared residuals, scaled targets
    condition : estimated condition number of the (column-equilibrated) features
    """

    theta: NDArray[np.float64]
    rank: int | None
    residual_power: float
    condition: float
    ridge: float
    note: str = ""
