"""What a certificate asks of a span: its rank, and whether rows lie in it.

A row (G, x) is *inside* if its features are a linear combination of those of training rows.
Every layer (of the kind that was learned) that is right on the training rows then gives the same
output on it: the prediction is determined.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.rows import Rows

INSIDE, OUTSIDE, UNDECIDED = "inside", "outside", "undecided"

FLOATING_POINT = "floating point"

# Squared distance from the span, relative to the row itself: below, above; undecided between.
INSIDE_BELOW, OUTSIDE_ABOVE = 1e-10, 1e-6


class RowSpan(Protocol):
    """The span of the features of training rows, whatever the features are.

    A span that does not compute in floating point says so in an attribute ``arithmetic``.
    """

    @property
    def rank(self) -> int:
        """The dimension of the span."""

    def inside(self, rows: Rows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided"; targets are not looked at."""


def arithmetic_of(span: RowSpan) -> str:
    """How membership is decided, such as "floating point" or "modulo 4194287"."""
    return str(getattr(span, "arithmetic", FLOATING_POINT))


def statuses(distances: NDArray) -> NDArray[np.str_]:
    """The statuses that belong to relative squared distances from the span."""
    result = np.full(distances.shape, UNDECIDED)
    result[distances < INSIDE_BELOW] = INSIDE
    result[distances > OUTSIDE_ABOVE] = OUTSIDE
    return result
