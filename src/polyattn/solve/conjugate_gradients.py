"""Conjugate gradients for several right-hand sides, and what they show of the spectrum.

The coefficients of the recursion are those of the Lanczos process, so extreme eigenvalues come
with the solution [Golub, Van Loan 2013: section 11.3].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

# From columns (p, k) to columns, or to one number for each.
Map = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# Gradients that do not fall to half of their least within so many passes have stalled.
STALLED_PASSES = 500

# So have those that after so many passes would take so many times the passes that are allowed, if
# they went on so.  With few coefficients passes cost little, and often fall at last: not judged.
JUDGED_PASSES, TOO_LONG, MANY_COEFFICIENTS = 100, 2.0, 4000


@dataclass(frozen=True)
class Descent:
    """Where conjugate gradients came to.

    steps : (p, e), the solutions, from zero
    reached : (e,), whether each of them has reached its goal, by the recursion
    passes : the number of products with H
    smallest, largest : extreme Ritz values over all right-hand sides.  They lie within the
        spectrum of H, near the ends of what the gradients have a part in; nan without any pass
    ritz : all Ritz values, one array for each right-hand side.  What is left of an error along an
        eigenvector is prod (1 - lambda / ritz) times what there was
    """

    steps: NDArray[np.float64]
    reached: NDArray[np.bool_]
    passes: int
    smallest: float
    largest: float
    ritz: list[NDArray[np.float64]]


def descend(
    product: Map,
    gradient: NDArray,
    power: Map,
    goals: NDArray,
    most_passes: int,
    is_enough: Callable[[NDArray], bool] = lambda _: False,
) -> Descent:
    """The solutions x (p, e) of H x = gradient, for a symmetric semidefinite H.

    product : H x
    power : the size by which gradients are judged, (e,)
    goals : (e,); columns of no more power than theirs take no part in further products
    is_enough : whether such steps (p, e) may be the last
    """
    steps, active = np.zeros_like(gradient), np.flatnonzero(power(gradient) > goals)
    reached = np.ones(steps.shape[1], dtype=bool)
    reached[active] = False
    gradient = gradient[:, active]
    direction, squares = gradient, _inner(gradient, gradient)
    recursion: list[list[tuple[float, float]]] = [[] for _ in reached]
    least, since, passes, first, is_hopeless = np.inf, 0, 0, 1.0, False
    while len(active) and passes < most_passes and not is_hopeless and not is_enough(steps):
        curved = product(direction)
        passes += 1
        curvature = _inner(direction, curved)
        # Without curvature there is nothing more to find but rounding.
        sound = curvature > 0
        lengths = np.where(sound, squares / np.where(sound, curvature, 1.0), 0.0)
        steps[:, active] += lengths * direction
        gradient = gradient - lengths * curved
        before, squares = squares, _inner(gradient, gradient)
        ratios = squares / before
        for at in np.flatnonzero(sound):
            recursion[active[at]].append((float(lengths[at]), float(ratios[at])))
        left = power(gradient) / goals[active]
        reached[active] = left <= 1.0
        going = sound & (left > 1.0)
        direction = (gradient + ratios * direction)[:, going]
        gradient, squares, active = gradient[:, going], squares[going], active[going]
        worst = float(np.max(left, initial=0.0, where=going))
        least, since = (worst, 0) if worst < 0.25 * least else (least, since + 1)
        first = max(first, worst)
        is_judged = passes >= JUDGED_PASSES and len(steps) >= MANY_COEFFICIENTS
        is_slow = is_judged and _is_slow(first, least, passes / (TOO_LONG * most_passes))
        is_hopeless = is_slow or since >= STALLED_PASSES
    ritz = [_ritz_values(some) for some in recursion]
    every = np.concatenate([*ritz, [] if any(map(len, ritz)) else [np.nan]])
    return Descent(steps, reached, passes, float(every.min()), float(every.max()), ritz)


def squares(columns: NDArray) -> NDArray[np.float64]:
    """The sum of squares of each column."""
    return _inner(columns, columns)


def _is_slow(first: float, least: float, part: float) -> bool:
    """Whether powers fell from first to least, in units of their goal, by less than a part."""
    return bool(np.log(first / max(least, 1.0)) < part * np.log(first))


def _inner(one: NDArray, other: NDArray) -> NDArray[np.float64]:
    return np.asarray(np.einsum("pe,pe->e", one, other))


def _ritz_values(recursion: list[tuple[float, float]]) -> NDArray[np.float64]:
    """The eigenvalues of the tridiagonal matrix of one recursion, ascending."""
    if not recursion:
        return np.zeros(0)
    lengths, ratios = np.array(recursion).T
    diagonal = 1.0 / lengths
    diagonal[1:] += ratios[:-1] / lengths[:-1]
    values = eigvalsh_tridiagonal(diagonal, np.sqrt(ratios[:-1]) / lengths[:-1])
    return np.maximum(values, 0.0)
