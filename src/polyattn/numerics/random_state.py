"""Where random numbers come from: a seed, or a generator that goes on."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from polyattn.errors import InvalidInput

RandomState: TypeAlias = int | np.random.Generator


def require_generator(random_state: RandomState) -> np.random.Generator:
    """A seed becomes a new generator; a generator is used, and advances."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    is_integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if is_integer and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise InvalidInput(
        "random_state must be an integer >= 0 or a numpy Generator, so that the data can be "
        f"made again; got {random_state!r}."
    )
