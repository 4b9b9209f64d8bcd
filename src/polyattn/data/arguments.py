"""What every generator checks: sizes, levels, and where the random numbers come from."""

from __future__ import annotations

from numbers import Real
from typing import TypeAlias, TypeGuard

import numpy as np

from polyattn.errors import InvalidInput

RandomState: TypeAlias = int | np.random.Generator


def require_generator(random_state: RandomState) -> np.random.Generator:
    """A seed becomes a new generator; a generator is used, and advances."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if _is_integer(random_state) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise InvalidInput(
        "random_state must be an integer >= 0 or a numpy Generator, so that the data can be "
        f"made again; got {random_state!r}."
    )


def require_level(value: object, name: str, most: float = np.inf) -> float:
    """A finite real number between 0 and ``most``."""
    if isinstance(value, Real) and not isinstance(value, bool):
        level = float(value)
        if 0.0 <= level <= most and np.isfinite(level):
            return level
    wanted = "a finite number >= 0" if most == np.inf else f"a number between 0 and {most:g}"
    raise InvalidInput(f"{name} must be {wanted}; got {value!r}.")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
