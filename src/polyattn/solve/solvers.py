"""The solvers: one table of how each is called, when ``auto`` takes it, and what it costs.

A new solver is a module with a function from rows and a ridge to a ``Solution``, and a row here:
``fit``, ``plan``, the estimators and the command line read the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from polyattn.errors import InvalidInput, require_choice, require_integer
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import counted, readable_bytes
from polyattn.solve.direct import solve_direct
from polyattn.solve.dual import solve_dual
from polyattn.solve.exact import solve_exact
from polyattn.solve.iterative import kept_numbers, solve_iterative
from polyattn.solve.primal import solve_primal
from polyattn.solve.solution import Solution
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# What a solver may start from.
Source: TypeAlias = Rows | Moments | TriangularFactor

# Wide problems up to this size are solved with their features in memory: the most accurate way.
DIRECT_ROWS, DIRECT_NUMBERS = 1024, 1 << 22

# The iteration knows neither rank nor sums.  It is taken from so many features on, and only if it
# is expected to take so many times less than the solver that would be taken else.
ITERATED_FEATURES, MUCH_FASTER = 4000, 4.0

# After so many times the passes that are expected, that other solver is taken after all.
PATIENCE = 4.0

QUICKER = "{rows} for {features}: {other} would take about {ratio:.0f} times as long"


@dataclass(frozen=True)
class Solver:
    """A row of the table, for n rows, p features of m sums, and e outputs.

    solve : the solution for a source and a ridge
    numbers : from (n, p, m, e) to how many are in memory, to within a factor of two
    flops : from (n, p, m, e) to how many it takes, in the least case
    suits : from (n, p) to whether ``auto`` takes it, if it fits into memory and none before it does
    reason : why then, in words
    statistics : the kind of statistics that it can start from, instead of the rows
    """

    solve: Callable[[Any, float], Solution]
    numbers: Callable[[int, int, int, int], int]
    flops: Callable[[int, int, int, int], float]
    suits: Callable[[int, int], bool]
    reason: str
    statistics: type[Moments | TriangularFactor] | None = None


# ``auto`` takes the first that suits and fits.
SOLVERS = {
    "primal": Solver(
        solve=solve_primal,
        numbers=lambda _n, p, _m, e: 3 * p**2 + p**2 // 4 + 2 * p * e,
        flops=lambda n, p, _m, _e: n * p**2 / 2 + p**3 / 3,
        suits=lambda n, p: n >= p,
        reason="{rows} for {features}: sums of size p x p",
        statistics=Moments,
    ),
    "direct": Solver(
        solve=solve_direct,
        numbers=lambda n, p, _m, e: p * (6 * p if n >= p else 3 * n) + 2 * p * e,
        flops=lambda n, p, _m, _e: 2.0 * n * p * min(n, p),
        suits=lambda n, p: n < p and n <= DIRECT_ROWS and n * p <= DIRECT_NUMBERS,
        reason="{rows} for {features}, few enough to hold",
        statistics=TriangularFactor,
    ),
    "dual": Solver(
        solve=solve_dual,
        numbers=lambda n, p, m, e: n**2 + 3 * n * m + 2 * p * e,
        flops=lambda n, _p, m, _e: n**2 * m + n**3 / 3,
        suits=lambda _n, _p: True,
        reason="{rows} for {features}: a kernel of size N x N",
    ),
    "iterative": Solver(
        solve=solve_iterative,
        # The summaries are kept beside them only while they fit.
        numbers=lambda _n, p, m, e: 8 * p * (e + 1) + 4 * m**2,
        flops=lambda n, p, m, e: expected_passes(n, p) * 4.0 * n * p * (e + 1) + n * m**2,
        suits=lambda _n, _p: True,
        reason="neither {p} x {p} nor {N} x {N} numbers fit into {limit}",
    ),
}


@dataclass(frozen=True)
class Plan:
    """A chosen solver and the reason in a sentence; ``bytes`` is the estimated peak memory."""

    solver: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.solver}: {self.reason} (about {readable_bytes(self.bytes)})"


def plan(
    n_rows: int,
    n_dims: int,
    n_outputs: int = 1,
    solver: str = "auto",
    bias: bool = False,
    *,
    form: Form | None = None,
    n_context_dims: int | None = None,
) -> Plan:
    """The solver that ``auto`` takes for ``n_rows`` predicted positions of ``n_dims`` coordinates.

    A named ``solver`` is kept.  ``form`` describes other layers than the papers'.
    """
    require_choice("solver", solver, ("auto", *SOLVERS))
    n_rows, n_dims = require_integer("n_rows", n_rows), require_integer("n_dims", n_dims)
    n_outputs = require_integer("n_outputs", n_outputs)
    layout = Layout.of(require_form(form, bias=bias), n_dims, n_context_dims)
    made = _plan(n_rows, layout, n_outputs, solver)
    return _quicker(made, n_rows, layout, n_outputs) if solver == "auto" else made


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
    """
    if not isinstance(source, Rows):
        name = solver_of(source)
        return SOLVERS[name].solve(source, ridge), name
    made = _plan(source.n_rows, source.layout, source.n_outputs, solver)
    if solver == "auto" and not keep_sums:
        quicker = _quicker(made, source.n_rows, source.layout, source.n_outputs)
        if quicker is not made:
            most = int(PATIENCE * expected_passes(source.n_rows, source.n_features))
            solution = solve_iterative(source, ridge, most)
            if solution.is_reached:
                return solution, quicker.solver
    # Where the sums would cost most, a layer without error saves them.
    wanted = try_exact and solver == "auto" and made.solver == "primal" and ridge == 0.0
    exact = solve_exact(source) if wanted else None
    if exact is not None:
        return exact, "exact"
    return SOLVERS[made.solver].solve(source, ridge), made.solver


def expected_passes(n_rows: int, n_features: int) -> float:
    """Passes of the iteration, for at least as many rows as features; infinite for no more.

    The spectrum of whitened independent features lies within (1 +- sqrt(p/N))^2 [Marchenko, Pastur
    1967].  Conjugate gradients then take 14 (1 + s)/(1 - s) passes to 1e-12; features that depend
    on each other take about twice as many.
    """
    root = (n_features / n_rows) ** 0.5
    return 30.0 * (1.0 + root) / (1.0 - root) if root < 1.0 else float("inf")


def _plan(n_rows: int, layout: Layout, n_outputs: int, solver: str) -> Plan:
    """The named solver, or the first of the table that suits and fits."""
    p, m = layout.n_features, layout.n_sums
    sizes = {name: 8 * each.numbers(n_rows, p, m, n_outputs) for name, each in SOLVERS.items()}
    if solver != "auto":
        return Plan(solver, "asked for by name", sizes[solver])
    limit = memory_limit()
    memory = readable_bytes(limit)
    rows, features = counted(n_rows, "row"), counted(p, "feature")
    for name, each in SOLVERS.items():
        if each.suits(n_rows, p) and sizes[name] <= limit:
            reason = each.reason.format(N=n_rows, p=p, rows=rows, features=features, limit=memory)
            beside = _kept_summaries(n_rows, layout, n_outputs) if name == "iterative" else 0
            return Plan(name, reason, min(sizes[name] + beside, limit))
    raise InvalidInput(
        f"the coefficients alone ({n_outputs} x {p}) do not fit into {memory}; reduce the width "
        "of the tokens or fit the outputs one by one."
    )


def _quicker(made: Plan, n_rows: int, layout: Layout, n_outputs: int) -> Plan:
    """The iteration, where it is expected to be much faster than what was planned."""
    p, mode = layout.n_features, layout.form.mode
    # In mode full, rows of one sequence share their sums: primal is faster than it counts.
    if p < ITERATED_FEATURES or n_rows <= p or mode == "full" or made.solver == "iterative":
        return made
    size = (n_rows, p, layout.n_sums, n_outputs)
    iteration = SOLVERS["iterative"]
    ratio = SOLVERS[made.solver].flops(*size) / iteration.flops(*size)
    if ratio < MUCH_FASTER:
        return made
    reason = QUICKER.format(
        rows=counted(n_rows, "row"), features=counted(p, "feature"), other=made.solver, ratio=ratio
    )
    kept = _kept_summaries(n_rows, layout, n_outputs)
    return Plan("iterative", reason, 8 * iteration.numbers(*size) + kept)


def _kept_summaries(n_rows: int, layout: Layout, n_outputs: int) -> int:
    """Bytes of the summaries that the iteration keeps: all, or none where they do not fit.

    A copy in single precision takes half as many again.
    """
    size = 8 * n_rows * (layout.n_sums + layout.n_queries + n_outputs)
    return 3 * size // 2 if size <= 8 * kept_numbers() else 0


def solver_of(statistics: Moments | TriangularFactor) -> str:
    """The solver that starts from such statistics."""
    return next(name for name, each in SOLVERS.items() if each.statistics is type(statistics))


def memory_limit() -> int:
    """Half of the physical memory, in bytes; 4 GiB where that cannot be asked."""
    available = physical_memory()
    return 4 << 30 if available is None else available // 2
