"""Lorenz's system: the series on which forecasts of chaos are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_integer, require_number
from polyattn.numerics.random_state import RandomState, require_generator

# Parameters as in Lorenz's paper of 1963, and the largest Lyapunov exponent there [Sprott, 2003].
SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0
LORENZ_EXPONENT = 0.9056

Point = tuple[float, float, float]

# The longest step of the integrator, and the time that is let pass before the first token.
LONGEST_STEP, BEFORE = 0.0025, 25.0


def lorenz(n_tokens: int, dt: float = 0.025, random_state: RandomState = 0) -> NDArray[np.float64]:
    """A series (n_tokens, 3) of Lorenz's system, one token every ``dt``.

        x' = 10 (y - x),    y' = x (28 - z) - y,    z' = x y - 8/3 z,

    from a random point, after a time in which it comes to the attractor.  Errors grow there by
    e^0.9056 in a unit of time: 1 / 0.9056 is a Lyapunov time.
    Runge-Kutta's method of fourth order, in steps of at most 0.0025.

    >>> import polyattn as pa
    >>> pa.data.lorenz(1000).shape
    (1000, 3)
    """
    n_tokens = require_integer("n_tokens", n_tokens)
    dt = require_number("dt", dt)
    if dt == 0.0:
        raise InvalidInput("dt must be a number > 0; got 0.")
    rng = require_generator(random_state)
    n_parts = int(np.ceil(dt / LONGEST_STEP))
    step = dt / n_parts
    start = np.array([1.0, 1.0, 20.0]) + rng.standard_normal(3)
    point = (float(start[0]), float(start[1]), float(start[2]))
    for _ in range(int(np.ceil(BEFORE / LONGEST_STEP))):
        point = _advanced(point, LONGEST_STEP)
    tokens = np.empty((n_tokens, 3))
    for token in tokens:
        token[:] = point
        for _ in range(n_parts):
            point = _advanced(point, step)
    return tokens


def _advanced(point: Point, step: float) -> Point:
    """One step of Runge and Kutta; plain numbers are faster than arrays of three."""
    first = _slope(*point)
    second = _slope(*_moved(point, first, 0.5 * step))
    third = _slope(*_moved(point, second, 0.5 * step))
    fourth = _slope(*_moved(point, third, step))
    x, y, z = (
        a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(first, second, third, fourth, strict=True)
    )
    return _moved(point, (x, y, z), step / 6.0)


def _moved(point: Point, slope: Point, step: float) -> Point:
    return point[0] + step * slope[0], point[1] + step * slope[1], point[2] + step * slope[2]


def _slope(x: float, y: float, z: float) -> Point:
    return SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z
