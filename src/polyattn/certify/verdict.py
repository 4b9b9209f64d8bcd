"""The verdicts, and Finding: a verdict with how it was reached and what supports it.

Which verdict data get is decided in ``decide.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

IDENTIFIABLE = "identifiable"
NOT_IDENTIFIABLE = "not_identifiable"
UNDECIDED = "undecided"
VERDICTS = (IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED)

# Coefficients on the features of a space: integers that were checked, or float64.
Direction = tuple[int, ...] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Finding:
    """The verdict of one method.

    ``method``: "count" (fewer rows than dimensions), "exact" (integers, modulo a prime), "gram"
    or "triangular" (floating point with proved rounding bounds), "span" (a custom domain).
    ``rank`` is a proved lower bound by method "exact", otherwise the number of singular values
    above rounding.  ``rounding`` is the bound that the proof had to overcome, 0 if exact.
    ``direction`` (m,) is a difference of coefficients that the training data do not see.
    """

    verdict: str
    method: str
    rank: int | None
    rounding: float
    direction: Direction | None = field(default=None, repr=False)
    prime: int | None = None
    note: str = ""
