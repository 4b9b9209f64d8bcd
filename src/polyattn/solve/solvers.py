"""The solvers: one table of how each is called, and what it costs.

A new solver is a module with a function from rows and a ridge to a ``Solution``, and a row here:
``fit``, ``plan``, the estimators and the command line read the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from polyattn.solve.costs import (
    Size,
    Work,
    direct_work,
    dual_work,
    iterative_work,
    primal_work,
)
from polyattn.solve.direct import solve_direct
from polyattn.solve.dual import solve_dual
from polyattn.solve.iterative import solve_iterative
from polyattn.solve.primal import solve_primal
from polyattn.solve.solution import Solution
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# What a solver may start from.
Source: TypeAlias = Rows | Moments | TriangularFactor


@dataclass(frozen=True)
class Solver:
    """A row of the table, for n rows, p features of m sums and r queries, and e outputs.

    solve : the solution for a source and a ridge
    numbers : from the size to how many are in memory, to within a factor of two
    worker_numbers : how many each of several workers holds, beside its part of the summaries
    work : from the size to what is to be done, in the least case
    suits : from (n, p) to whether ``auto`` may take it
    reason : why then, in words
    statistics : the kind of statistics that it can start from, instead of the rows
    """

    solve: Callable[[Any, float], Solution]
    numbers: Callable[[Size], int]
    worker_numbers: Callable[[Size], int]
    work: Callable[[Size], Work]
    suits: Callable[[int, int], bool]
    reason: str
    statistics: type[Moments | TriangularFactor] | None = None


SOLVERS = {
    "primal": Solver(
        solve=solve_primal,
        numbers=lambda s: 3 * s.p**2 + s.p**2 // 4 + 2 * s.p * s.e,
        worker_numbers=lambda s: s.p**2 // 2 + 2 * s.p * s.e,
        work=primal_work,
        # Fewer rows leave the sums singular.
        suits=lambda n, p: n >= p,
        reason="{rows} for {features}: sums of size p x p",
        statistics=Moments,
    ),
    "direct": Solver(
        solve=solve_direct,
        numbers=lambda s: s.p * (6 * s.p if s.n >= s.p else 3 * s.n) + 2 * s.p * s.e,
        worker_numbers=lambda s: 3 * s.p**2,
        work=direct_work,
        # Of many rows the sums are as good, since they are refined or given up for this.
        suits=lambda n, p: n < p,
        reason="{rows} for {features}, few enough to hold",
        statistics=TriangularFactor,
    ),
    "dual": Solver(
        solve=solve_dual,
        numbers=lambda s: s.n**2 + 3 * s.n * s.m + 2 * s.p * s.e,
        worker_numbers=lambda _: 0,
        work=dual_work,
        suits=lambda _n, _p: True,
        reason="{rows} for {features}: a kernel of size N x N",
    ),
    "iterative": Solver(
        solve=solve_iterative,
        # The summaries are kept beside them only while they fit.
        numbers=lambda s: 8 * s.p * (s.e + 1) + 4 * s.m**2,
        worker_numbers=lambda s: 4 * s.p * (s.e + 1) + s.m**2,
        work=iterative_work,
        suits=lambda _n, _p: True,
        reason="neither {p} x {p} nor {N} x {N} numbers fit into {limit}",
    ),
}


def solver_of(statistics: Moments | TriangularFactor) -> str:
    """The solver that starts from such statistics."""
    return next(name for name, each in SOLVERS.items() if each.statistics is type(statistics))
