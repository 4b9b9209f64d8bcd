"""Where random numbers come from: a seed, a generator that goes on, or a fresh start."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.quoting import shown

# numpy's older RandomState is what scikit-learn hands to estimators.
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None

# Seeds that are drawn lie below this: ten digits are easily written down.
LARGEST_SEED = 1 << 31


def require_generator(random_state: RandomState) -> np.random.Generator:
    """A generator is used, and advances; everything else becomes the generator of its seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(require_seed(random_state))


def require_seed(random_state: RandomState) -> int:
    """A seed is kept; a generator gives one, and advances; None gives a fresh one."""
    if random_state is None:
        return int(np.random.default_rng().integers(LARGEST_SEED))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(LARGEST_SEED, dtype=np.int64))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if whole and random_state >= 0:
        return int(random_state)
    raise InvalidInput(
        "random_state must be an integer >= 0, a numpy Generator, or None for a fresh start; "
        f"got {shown(random_state)}."
    )
