"""solve: the planned solver for a source, and another one where that does not arrive."""

from __future__ import annotations

from dataclasses import replace

from polyattn.quoting import counted
from polyattn.solve.costs import MULTIPLY_ADD, PASS, expected_passes
from polyattn.solve.exact import solve_exact
from polyattn.solve.iterative import kept_numbers, solve_iterative
from polyattn.solve.normal_equations import MAX_PASSES
from polyattn.solve.planning import NAMED, Plan, plan_of
from polyattn.solve.rereading import reread
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import SOLVERS, Source, solver_of
from polyattn.stats.rows import Rows

# After so many times the passes that are expected, the solver that would be taken else is.
PATIENCE = 4.0

INSTEAD = (
    " The iteration had been given up after {passes}, with the gradient reduced to {left:.1e} of "
    "its start: solver={solver!r} took its place."
)


def solve(
    source: Source,
    ridge: float,
    solver: str = "auto",
    try_exact: bool = False,
    keep_sums: bool = False,
) -> tuple[Solution, str]:
    """The solution, and the name of the solver that found it.

    try_exact : with ``auto`` and ridge 0, look first whether some layer computes all targets
    keep_sums : with ``auto``, take a solver that keeps its sums rather than a faster one

    An iteration that stalls is given up for another solver if one fits into memory, and the note
    says so; with ``auto`` also one that rounding keeps from the minimiser.
    """
    if not isinstance(source, Rows):
        name = solver_of(source)
        return SOLVERS[name].solve(source, ridge), name
    made, note = plan_of(source, solver, keep_sums), ""
    if made.solver == "iterative":
        # Summaries that were made stay for the solver that takes its place.
        source = source.keeping(kept_numbers())
        other = plan_of(source, keep_sums=True)
        most_passes = _affordable_passes(source, made, other)
        with reread(source, made) as rows:
            solution = solve_iterative(rows, ridge, most_passes)
        is_enough = solution.is_reached if solver == "auto" else solution.stall is None
        if is_enough or other.solver == "iterative":
            return solution, made.solver
        made = other
        if solution.stall is not None:
            passes, left = counted(solution.stall.passes, "pass"), solution.stall.gradient
            note = INSTEAD.format(passes=passes, left=left, solver=made.solver)
    # Where the sums would cost most, a layer without error saves them.
    wanted = try_exact and solver == "auto" and made.solver == "primal" and ridge == 0.0
    exact = solve_exact(source) if wanted else None
    if exact is not None:
        return exact, "exact"
    solution = SOLVERS[made.solver].solve(source, ridge)
    return replace(solution, note=solution.note + note), made.solver


def _affordable_passes(rows: Rows, made: Plan, other: Plan) -> int:
    """How many passes an iteration may take: as many as it likes where nothing else fits.

    Else some times as many as are expected, or as much time as the other solver would take.
    """
    if other.solver == "iterative":
        return MAX_PASSES
    n_rows, n_features = rows.n_rows, rows.n_features
    one = PASS * MULTIPLY_ADD * 2.0 * n_rows * n_features * (rows.n_outputs + 1)
    expected = expected_passes(n_rows, n_features)
    by_name = other.seconds / one if made.reason == NAMED else 0.0
    return int(min(PATIENCE * max(expected, by_name), MAX_PASSES))
