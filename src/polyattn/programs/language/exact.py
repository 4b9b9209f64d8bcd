"""Weights as the exact numbers they are: what is summed of them is never rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np

# Integers are the fast case, and nearly all weights are integers or halves.
Exact: TypeAlias = int | Fraction


def exact(weight: float | Fraction | np.generic) -> Exact:
    """The number itself, as an integer where it is one: a float64 is an integer times 2^e."""
    number = Fraction(weight.item() if isinstance(weight, np.generic) else weight)
    return number.numerator if number.denominator == 1 else number
