"""Programs over many slabs, solved over few: cutting planes.

A program whose answer for some of the constraints satisfies all others has found the answer for
all of them.  Those that are violated are taken in, the worst first, and the program is solved
again; a constraint never leaves, so this ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.recorder import require_time
from polyattn.softmax.sculpting.solvers import Status

Matrix = NDArray[np.float64]
Program = Callable[[Matrix, Matrix, Matrix], tuple[Status, Matrix | None]]

# How many violated constraints are taken in at once, per unknown.
TAKEN_PER_UNKNOWN = 1.0


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
    at_once = max(8, int(TAKEN_PER_UNKNOWN * n_unknowns))
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
