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


@dataclass(frozen=True)
class Descent:
    """Where conjugate gradients came to.

    steps : (p, e), the solutions, from zero
    reached : (e,), whether each of them has reached its goal, by the recursion
    passes : the number of products with H
    smallest, largest : extreme Ritz values over all right-hand sides.  They lie within the
        spectrum of H, near the ends of what the gradients have a part in; nan without any pass
    """

    steps: NDArray[np.float64]
    reached: NDArray[np.bool_]
    passes: int
    smallest: float
    largest: float


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
    least, since, passes = np.inf, 0, 0
    while len(active) and passes < most_passes and since < STALLED_PASSES and not is_enough(steps):
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
    extremes = np.array([_extremes(some) for some in recursion if some] or [(np.nan, np.nan)])
    return Descent(steps, reached, passes, float(extremes[:, 0].min()), float(extremes[:, 1].max()))


def _inner(one: NDArray, other: NDArray) -> NDArray[np.float64]:
    return np.asarray(np.einsum("pe,pe->e", one, other))


def _extremes(recursion: list[tuple[float, float]]) -> tuple[float, float]:
    """The least and the largest eigenvalue of the tridiagonal matrix of one recursion."""
    lengths, ratios = np.array(recursion).T
    diagonal = 1.0 / lengths
    diagonal[1:] += ratios[:-1] / lengths[:-1]
    values = eigvalsh_tridiagonal(diagonal, np.sqrt(ratios[:-1]) / lengths[:-1])
    return max(float(values[0]), 0.0), float(values[-1])
