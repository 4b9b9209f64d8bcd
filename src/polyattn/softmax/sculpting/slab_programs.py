"""The three programs over slabs |N a - b| <= s: farthest point, deepest point, least norm.

Slabs are many more than unknowns, so programs are solved over few of them by cutting planes: a
program whose answer for some of the slabs satisfies all others has found the answer for all.
Those that are violated are added, the worst first, and the program is solved again; a slab never
leaves, so this ends.

Slabs are stated once, as N a - t = 0 with b - s <= t <= b + s: half the rows of two inequalities.
A program that the caller's deadline cuts short is "undecided".
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from polyattn.softmax.examples import Matrix
from polyattn.softmax.recorder import require_time, seconds_left

Status = Literal["found", "empty", "unbounded", "undecided"]
Program = Callable[[Matrix, Matrix, Matrix], tuple[Status, Matrix | None]]

# The status numbers of HiGHS.
STATUS: dict[int, Status] = {0: "found", 2: "empty", 3: "unbounded"}

# Steps, the duality gap that ends them (relative), and how close to the boundary a step may go.
MOST_STEPS, GAP, TOWARDS_BOUNDARY = 80, 1e-10, 0.995


def cut(
    program: Program,
    normals: Matrix,
    rhs: Matrix,
    slack: Matrix,
    first: NDArray[np.intp],
    rounding: float,
) -> tuple[Status, Matrix | None]:
    """Solve ``program(normals, rhs, slack)`` over all Q slabs, starting from those in ``first``.

    The answer is a vector that begins with the point (P,); an entry after it is an allowance by
    which every slab is widened.

    Guarantee: a point that is found satisfies every slab to within ``rounding``; "empty" for a
    part of the slabs is "empty" for all.
    """
    n_unknowns = normals.shape[1]
    # As many violated constraints as unknowns are added at once.
    at_once = max(8, n_unknowns)
    kept = np.zeros(len(rhs), dtype=bool)
    kept[first] = True
    while True:
        status, found = program(normals[kept], rhs[kept], slack[kept])
        require_time()
        if found is None:
            return status, None
        widened = found[n_unknowns] if len(found) > n_unknowns else 0.0
        excess = np.abs(normals @ found[:n_unknowns] - rhs) - slack - widened
        excess[kept] = 0.0
        violated = np.flatnonzero(excess > rounding)
        if len(violated) == 0:
            return status, found
        worst = violated[np.argsort(-excess[violated], kind="stable")[:at_once]]
        kept[worst] = True


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
    if answer.status in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        return "found", np.array(answer.x)
    infeasible = (
        clarabel.SolverStatus.PrimalInfeasible,
        clarabel.SolverStatus.AlmostPrimalInfeasible,
    )
    return ("empty" if answer.status in infeasible else "undecided"), None


def _minimise(cost: Matrix, **constraints: Any) -> tuple[Status, Matrix | None]:
    """A linear program by the dual simplex method of HiGHS."""
    # Slow to import, and only sculpting needs it.
    from scipy.optimize import linprog

    limit = seconds_left()
    options = {"time_limit": limit} if isfinite(limit) else {}
    answer = linprog(cost, method="highs-ds", options=options, **constraints)
    return STATUS.get(answer.status, "undecided"), answer.x if answer.status == 0 else None


def farthest(
    goal: Matrix, normals: Matrix, rhs: Matrix, slack: Matrix, inside: Matrix
) -> Matrix | None:
    """The a (P,) of largest <goal, a> with |N a - b| <= s; ``inside`` must satisfy all strictly.

    None if the gap did not close, which happens where the body is unbounded.  A dense interior-
    point method, Mehrotra's predictor and corrector, for

        u = s - (N a - b) >= 0,   l = s + (N a - b) >= 0.

    A step solves N^T D N da = ..., D diagonal: one product of Q P^2 multiply-adds for Q slabs and
    P unknowns.  Normals are dense and Q >> P, where this is some twenty times faster than a simplex
    method that was made for sparse problems.

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
    normals: Matrix, upper: Matrix, lower: Matrix, above: Matrix, below: Matrix, missing: Matrix
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
