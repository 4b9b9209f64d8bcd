"""An epsilon-net in the span: every choice of m of its points is a candidate [chen2024].

A point t of the net is the attention matrix base + sum_a t_a D_a.  Its features F_t = p_t X do
not depend on the other heads, so the products F_s^T F_t and F_t^T Y of all points are made once,
and a candidate costs one (m d) x (m d) system, however many examples there are.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.sculpting.span_descent import Family

Matrix = NDArray[np.float64]

# Points on one axis of the net, points in all, and candidates.
POINTS_PER_AXIS, MOST_POINTS, MOST_CANDIDATES = 33, 64, 4096

# Candidates that are solved at once.
BATCH = 512

# Keeps systems of nearly equal heads solvable, relative to their trace.
RIDGE = 1e-9


def best_of_net(
    family: Family, n_heads: int, radius: float, count: int, rng: np.random.Generator
) -> tuple[list[Matrix], int]:
    """Coefficients (m, m') of the ``count`` best candidates, best first, and how many were tried.

    Within |t| <= ``radius`` the net is a grid for one or two directions and random points for
    more; all choices of m points are tried, or MOST_CANDIDATES of them drawn at random.

    Guarantee: for m = 2 the best pair up to the spacing of the net, radius / 16.
    Cost: rows (points d)^2 + candidates (m d)^3.
    """
    points = _points(family.basis.shape[0] - 1, radius, rng)
    coefficients = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    chosen = _choices(len(points), n_heads, rng)
    gram, moment = _products(family, coefficients)
    explained = np.concatenate(
        [
            _explained(gram, moment, chosen[first : first + BATCH])
            for first in range(0, len(chosen), BATCH)
        ]
    )
    order = np.argsort(-explained, kind="stable")[:count]
    return [coefficients[chosen[index]] for index in order], len(chosen)


def _points(n_directions: int, radius: float, rng: np.random.Generator) -> Matrix:
    if n_directions == 0:
        return np.zeros((1, 0))
    if n_directions <= 2:
        per_axis = POINTS_PER_AXIS if n_directions == 1 else int(np.sqrt(MOST_POINTS))
        ticks = np.linspace(-radius, radius, per_axis)
        return np.stack(np.meshgrid(*[ticks] * n_directions), axis=-1).reshape(-1, n_directions)
    return rng.uniform(-radius, radius, (MOST_POINTS, n_directions))


def _choices(n_points: int, n_heads: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Different points for all heads, shape (candidates, m); if there are too few, any points."""
    if n_points < n_heads:
        return rng.integers(0, n_points, (BATCH, n_heads))
    if comb(n_points, n_heads) <= MOST_CANDIDATES:
        return np.array(list(combinations(range(n_points), n_heads)), dtype=np.intp)
    keys = rng.random((MOST_CANDIDATES, n_points))
    return np.sort(np.argpartition(keys, n_heads - 1, axis=1)[:, :n_heads], axis=1)


def _products(family: Family, coefficients: Matrix) -> tuple[Matrix, Matrix]:
    """gram (T, T, d, d) and moment (T, d, e) of the features of all T points."""
    n_points, n_dims = len(coefficients), family.basis.shape[1]
    features = family.seen(coefficients)
    gram = (features.T @ features).reshape(n_points, n_dims, n_points, n_dims)
    moment = (features.T @ family.targets).reshape(n_points, n_dims, -1)
    return gram.transpose(0, 2, 1, 3), moment


def _explained(gram: Matrix, moment: Matrix, chosen: NDArray[np.intp]) -> Matrix:
    """How much of ||Y||^2 each candidate (c, m) explains, shape (c,)."""
    count, n_heads = chosen.shape
    size = n_heads * gram.shape[2]
    systems = gram[chosen[:, :, None], chosen[:, None, :]].transpose(0, 1, 3, 2, 4)
    systems = systems.reshape(count, size, size)
    trace = np.trace(systems, axis1=1, axis2=2)[:, None, None]
    systems = systems + RIDGE * np.maximum(trace, np.finfo(float).tiny) * np.eye(size)
    moments = moment[chosen].reshape(count, size, -1)
    return np.sum(moments * np.linalg.solve(systems, moments), axis=(1, 2))
