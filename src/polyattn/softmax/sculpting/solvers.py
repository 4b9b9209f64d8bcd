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

from polyattn.softmax.recorder import require_time, seconds_left

Matrix = NDArray[np.float64]
Status = Literal["found", "empty", "unbounded", "undecided"]
Program = Callable[[Matrix, Matrix, Matrix], tuple[Status, Matrix | None]]

# The status numbers of HiGHS.
STATUS: dict[int, Status] = {0: "found", 2: "empty", 3: "unbounded"}

# How many violated constraints are added at once, per unknown.
ADDED_PER_UNKNOWN = 1.0


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
    at_once = max(8, int(ADDED_PER_UNKNOWN * n_unknowns))
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
