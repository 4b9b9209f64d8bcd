"""A random step, led back by descents: whether some direction has no data, and how little others.

Led back along all directions that change outputs, it ends at zero where the data determine all
coefficients: its length is at most that of its gradient over the smallest eigenvalue.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.solve.conjugate_gradients import Map, descend, squares
from polyattn.solve.excess import least_eigenvalue

# How far its gradient has to fall; in single precision so far at a time, in so many passes, as long
# as its length falls by the last factor.
REDUCTION, SINGLE_REDUCTION, SINGLE_PASSES, LENGTH_FALL = 1e-9, 1e-6, 200, 0.5

# A step as short as this bounds the smallest eigenvalue (``excess.least_eigenvalue``).
SHORT_STEP = 2e-7

# It has length sqrt(k) along k directions without data; less than this is none.
UNSEEN_LENGTH = 1e-3


class Probe(NamedTuple):
    """What a random step showed of the whitened equations without ridge.

    is_unseen : whether some direction has no data
    smallest : the smallest Ritz value
    least : a lower bound of the spectrum; 0 where there is none
    """

    is_unseen: bool
    smallest: float
    least: float
    passes: int


def probe(product: Map, single: Map | None, start: NDArray, most_passes: int) -> Probe:
    """What a random step (p, 1) from ``start`` shows.

    product, single : whitened equations without ridge; the second in single precision, if there is
        one, which is enough where all directions have data
    """
    n_passes = 0
    if single is not None:
        found = _stepped_back(single, start)
        if not found.is_unseen:
            return found
        n_passes = found.passes
    back = -product(start)
    goals = REDUCTION**2 * squares(back)
    there = descend(product, back, squares, goals, most_passes)
    length, explained = float(np.linalg.norm(start + there.steps)), 0.0
    if there.passes and there.smallest > 0:
        explained = float(np.sqrt(goals[0])) / there.smallest
    return Probe(
        length > max(UNSEEN_LENGTH, 10.0 * explained),
        there.smallest,
        least_eigenvalue(there.ritz[0], length),
        n_passes + there.passes + 1,
    )


def _stepped_back(product: Map, step: NDArray) -> Probe:
    """The same by descents in single precision; ``is_unseen`` if they do not end at zero."""

    def is_back(start: NDArray, steps: NDArray) -> bool:
        return float(np.linalg.norm(start + steps)) <= SHORT_STEP

    ritz, n_passes = [np.zeros(0)], 0
    length = before = np.inf
    while length > SHORT_STEP and not length > LENGTH_FALL * before:
        back = -product(step)
        goals = SINGLE_REDUCTION**2 * squares(back)
        found = descend(product, back, squares, goals, SINGLE_PASSES, partial(is_back, step))
        step = step + found.steps
        before, length = length, float(np.linalg.norm(step))
        ritz, n_passes = [*ritz, found.ritz[0]], n_passes + found.passes + 1
    every = np.concatenate(ritz)
    smallest, least = float(np.min(every, initial=np.inf)), least_eigenvalue(every, length)
    return Probe(length > UNSEEN_LENGTH, smallest, least, n_passes)
