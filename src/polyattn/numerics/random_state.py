"""Where random numbers come from: a seed, a generator that goes on, or a fresh start."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.quoting import shown

RandomState: TypeAlias = int | np.random.Generator | None

# Seeds that are drawn lie below this: ten digits are easily written down.
LARGEST_SEED = 1 << 31


def require_generator(random_state: RandomState) -> np.random.Generator:
    """A seed becomes a new generator; a generator is used, and advances; None starts afresh."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng()
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if whole and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise InvalidInput(
        "random_state must be an integer >= 0, a numpy Generator, or None for a fresh start; "
        f"got {shown(random_state)}."
    )


def require_seed(random_state: RandomState) -> int:
    """A seed is kept; a generator gives one, and advances; None gives a fresh one."""
    rng = require_generator(random_state)
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(rng.integers(LARGEST_SEED))
    return int(random_state)
