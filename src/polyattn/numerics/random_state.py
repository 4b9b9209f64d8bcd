"""Where random numbers come from: a seed, a generator that goes on, or chance."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from polyattn.errors import InvalidInput

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


def require_generator(random_state: RandomState) -> np.random.Generator:
    """A generator is used, and advances; everything else becomes the generator of its seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(require_seed(random_state))


def require_seed(random_state: RandomState) -> int:
    """An integer stays; a generator draws one, and advances; None is another one in every call.

    What is computed later, or again from a file, keeps the seed.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(1 << 31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(1 << 31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(1 << 31, dtype=np.int64))
    is_integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if is_integer and random_state >= 0:
        return int(random_state)
    raise InvalidInput(
        "random_state must be an integer >= 0, a numpy Generator that goes on, or None for "
        f"other random numbers in every call; got {random_state!r}."
    )
