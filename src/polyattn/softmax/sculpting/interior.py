"""The farthest point in a slab body from a point inside: a dense interior-point method.

    maximise <goal, a>   subject to   u = s - (N a - b) >= 0,   l = s + (N a - b) >= 0

Mehrotra's predictor and corrector.  A step solves N^T D N da = ..., D diagonal: one product of
Q P^2 multiply-adds for Q slabs and P unknowns.  Normals are dense and Q >> P, where this is some
twenty times faster than a simplex method that was made for sparse problems.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from polyattn.softmax.recorder import require_time

Matrix = NDArray[np.float64]

# Steps, the duality gap that ends them (relative), and how close to the boundary a step may go.
MOST_STEPS, GAP, TOWARDS_BOUNDARY = 80, 1e-10, 0.995


def farthest(
    goal: Matrix, normals: Matrix, rhs: Matrix, slack: Matrix, inside: Matrix
) -> Matrix | None:
    """The a (P,) of largest <goal, a> with |N a - b| <= s; ``inside`` must satisfy all strictly.

    None if the gap did not close, which happens where the body is unbounded.

    Guarantee: every iterate is inside, and the value is within GAP (relative) of the optimum by
    duality.
    """
    count = len(rhs)
    a = np.array(inside, dtype=np.float64)
    left = normals @ a - rhs
    if count == 0 or not np.all(np.abs(left) < slack):
        return None
    # Slabs that the optimum touches have nothing left but rounding.
    floor = 4 * np.finfo(float).eps * (np.abs(rhs) + slack)
    above = np.full(count, np.abs(goal).max() / count + 1e-9)
    below = above.copy()
    for _ in range(MOST_STEPS):
        require_time()
        left = normals @ a - rhs
        upper, lower = np.maximum(slack - left, floor), np.maximum(slack + left, floor)
        missing = goal - normals.T @ (above - below)
        gap = above @ upper + below @ lower
        size = 1.0 + abs(float(goal @ a))
        if gap < GAP * size and np.abs(missing).max() < GAP * (1.0 + np.abs(goal).max()):
            return a
        step = _newton(normals, upper, lower, above, below, missing)
        if step is None:
            return None
        da, primal, dual, d_above, d_below = step
        a += primal * da
        above += dual * d_above
        below += dual * d_below
    return None


def _newton(
    normals: Matrix,
    upper: Matrix,
    lower: Matrix,
    above: Matrix,
    below: Matrix,
    missing: Matrix,
) -> tuple[Matrix, float, float, Matrix, Matrix] | None:
    """A corrected step, and how far to go along it in primal and dual variables."""
    stiffness = above / upper + below / lower
    system = (normals * stiffness[:, None]).T @ normals
    try:
        factor = cho_factor(system, check_finite=False)
    except LinAlgError:
        return None

    def solve(want_upper: Matrix, want_lower: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        right_side = missing - normals.T @ (want_upper / upper - want_lower / lower)
        da = cho_solve(factor, right_side, check_finite=False)
        moved = normals @ da
        d_above = (want_upper + above * moved) / upper
        return da, moved, d_above, (want_lower - below * moved) / lower

    def lengths(moved: Matrix, d_above: Matrix, d_below: Matrix) -> tuple[float, float]:
        primal = max(1.0, float((moved / upper).max()), float((-moved / lower).max()))
        dual = max(1.0, float((-d_above / above).max()), float((-d_below / below).max()))
        return 1 / primal, 1 / dual

    _, moved, d_above, d_below = solve(-above * upper, -below * lower)
    primal, dual = lengths(moved, d_above, d_below)
    gap = above @ upper + below @ lower
    predicted = (above + dual * d_above) @ (upper - primal * moved)
    predicted += (below + dual * d_below) @ (lower + primal * moved)
    centring = (predicted / gap) ** 3 * gap / (2 * len(upper))
    da, corrected, more_above, more_below = solve(
        centring - above * upper + moved * d_above, centring - below * lower - moved * d_below
    )
    primal, dual = lengths(corrected, more_above, more_below)
    return da, TOWARDS_BOUNDARY * primal, TOWARDS_BOUNDARY * dual, more_above, more_below
