"""What every generator checks: levels, and where the random numbers come from."""

from __future__ import annotations

from numbers import Real

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.numerics.random_state import RandomState, require_generator

__all__ = ["RandomState", "require_generator", "require_level"]


def require_level(value: object, name: str, most: float = np.inf) -> float:
    """A finite real number between 0 and ``most``."""
    if isinstance(value, Real) and not isinstance(value, bool):
        level = float(value)
        if 0.0 <= level <= most and np.isfinite(level):
            return level
    wanted = "a finite number >= 0" if most == np.inf else f"a number between 0 and {most:g}"
    raise InvalidInput(f"{name} must be {wanted}; got {value!r}.")
