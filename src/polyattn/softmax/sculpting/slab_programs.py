"""The three programs over slabs |N a - b| <= s: farthest point, deepest point, least norm.

For the first, slabs are stated once, as N a - t = 0 with b - s <= t <= b + s: half the rows of two
inequalities.  A program that the caller's deadline cuts short is "undecided".
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from polyattn.softmax.examples import Matrix
from polyattn.softmax.recorder import require_time, seconds_left

Status = Literal["found", "empty", "unbounded", "undecided"]

# The answers of HiGHS and of Clarabel; all others are undecided.
HIGHS: dict[int, Status] = {0: "found", 2: "empty", 3: "unbounded"}
CLARABEL: dict[str, Status] = {"Solved": "found", "PrimalInfeasible": "empty"}

# Steps, the duality gap that ends them (relative), and how close to the boundary a step may go.
MOST_STEPS, GAP, TOWARDS_BOUNDARY = 80, 1e-10, 0.995


def linear_program(
    goal: Matrix, normals: Matrix, rhs: Matrix, slack: Matrix
) -> tuple[Status, Matrix | None]:
    """The a that maximises <goal, a> over the slabs; normals (Q, P)."""
    count, n_unknowns = normals.shape
    bounds = np.full((n_unknowns + count, 2), (-np.inf, np.inf))
    bounds[n_unknowns:] = np.stack([rhs - slack, rhs + slack], axis=1)
    equations = sparse.hstack([sparse.csc_array(normals), -sparse.eye_array(count)], "csc")
    cost = np.concatenate([-goal, np.zeros(count)])
    status, found = _minimise(cost, A_eq=equations, b_eq=np.zeros(count), bounds=bounds)
    return status, None if found is None else found[:n_unknowns]


def depth_program(normals: Matrix, rhs: Matrix, slack: Matrix) -> tuple[Status, Matrix | None]:
    """The (a, t) of least t with |N a - b| <= s + t: how much slack is missing (or to spare)."""
    count, n_unknowns = normals.shape
    widening = np.ones((count, 1))
    return _minimise(
        np.concatenate([np.zeros(n_unknowns), [1.0]]),
        A_ub=np.block([[normals, -widening], [-normals, -widening]]),
        b_ub=np.concatenate([rhs + slack, slack - rhs]),
        bounds=(None, None),
    )


def norm_program(normals: Matrix, rhs: Matrix, slack: Matrix) -> tuple[Status, Matrix | None]:
    """The a of least norm within the slabs."""
    import clarabel

    count, n_unknowns = normals.shape
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.time_limit = seconds_left()
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(sparse.eye_array(n_unknowns)),
        np.zeros(n_unknowns),
        sparse.csc_matrix(np.concatenate([normals, -normals])),
        np.concatenate([rhs + slack, slack - rhs]),
        [clarabel.NonnegativeConeT(2 * count)],
        settings,
    )
    answer = solver.solve()
    status = CLARABEL.get(str(answer.status).removeprefix("Almost"), "undecided")
    return status, np.array(answer.x) if status == "found" else None


def _minimise(cost: Matrix, **constraints: Any) -> tuple[Status, Matrix | None]:
    """A linear program by the dual simplex method of HiGHS."""
    # Slow to import, and only sculpting needs it.
    from scipy.optimize import linprog

    limit = seconds_left()
    options = {"time_limit": limit} if isfinite(limit) else {}
    answer = linprog(cost, method="highs-ds", options=options, **constraints)
    return HIGHS.get(answer.status, "undecided"), answer.x if answer.status == 0 else None


def farthest(
    goal: Matrix, normals: Matrix, rhs: Matrix, slack: Matrix, inside: Matrix
) -> Matrix | None:
    """The a (P,) of largest <goal, a> with |N a - b| <= s; ``inside`` must satisfy all strictly.

    None if the gap did not close, which happens where the body is unbounded.  A dense interior-
    point method, Mehrotra's predictor and corrector, for the distances to both sides,

        [s - (N a - b), s + (N a - b)] >= 0.

    A step solves N^T D N da = ..., D diagonal: one product of Q P^2 multiply-adds.  Normals are
    dense and Q >> P, where this is some twenty times faster than a simplex method.

    Guarantee: every iterate is inside, and the value is within GAP of the optimum, relatively.
    """
    count = len(rhs)
    a = np.array(inside, dtype=np.float64)
    left = normals @ a - rhs
    if count == 0 or not np.all(np.abs(left) < slack):
        return None
    # Slabs that the optimum touches have nothing left but rounding.
    floor = np.tile(4 * np.finfo(float).eps * (np.abs(rhs) + slack), 2)
    dual = np.full(2 * count, np.abs(goal).max() / count + 1e-9)
    for _ in range(MOST_STEPS):
        require_time()
        left = normals @ a - rhs
        distances = np.maximum(np.concatenate([slack - left, slack + left]), floor)
        missing = goal - normals.T @ (dual[:count] - dual[count:])
        gap, size = dual @ distances, 1.0 + abs(float(goal @ a))
        if gap < GAP * size and np.abs(missing).max() < GAP * (1.0 + np.abs(goal).max()):
            return a
        step = _newton(normals, distances, dual, missing)
        if step is None:
            return None
        a += step[0]
        dual += step[1]
    return None


def _newton(
    normals: Matrix, distances: Matrix, dual: Matrix, missing: Matrix
) -> tuple[Matrix, Matrix] | None:
    """A corrected step of the point (P,) and of the dual variables (2 Q,)."""
    count = len(normals)
    stiffness = dual / distances
    system = (normals * (stiffness[:count] + stiffness[count:])[:, None]).T @ normals
    try:
        factor = cho_factor(system, check_finite=False)
    except LinAlgError:
        return None

    def solve(wanted: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        pushed = wanted / distances
        right_side = missing - normals.T @ (pushed[:count] - pushed[count:])
        da = cho_solve(factor, right_side, check_finite=False)
        taken = normals @ da
        taken = np.concatenate([taken, -taken])
        return da, taken, (wanted + dual * taken) / distances

    def lengths(taken: Matrix, d_dual: Matrix) -> tuple[float, float]:
        """How far to go until a distance, or a dual variable, is zero."""
        return 1 / max(1.0, (taken / distances).max()), 1 / max(1.0, (-d_dual / dual).max())

    _, taken, d_dual = solve(-dual * distances)
    primal_length, dual_length = lengths(taken, d_dual)
    gap = dual @ distances
    predicted = (dual + dual_length * d_dual) @ (distances - primal_length * taken)
    centring = (predicted / gap) ** 3 * gap / len(distances)
    da, corrected, d_dual = solve(centring - dual * distances + taken * d_dual)
    primal_length, dual_length = lengths(corrected, d_dual)
    return TOWARDS_BOUNDARY * primal_length * da, TOWARDS_BOUNDARY * dual_length * d_dual
