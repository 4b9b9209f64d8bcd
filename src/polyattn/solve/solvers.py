"""The solvers: one table of how each is called, when ``auto`` takes it, and what it costs.

A new solver is a module with a function from rows and a ridge to a ``Solution``, and a row here:
``fit``, ``plan``, the estimators and the command line read the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from polyattn.errors import InvalidInput, require_choice
from polyattn.features.pairs import n_features, n_pairs
from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import counted, readable_bytes
from polyattn.solve.direct import solve_direct
from polyattn.solve.dual import solve_dual
from polyattn.solve.exact import solve_exact
from polyattn.solve.iterative import solve_iterative
from polyattn.solve.primal import solve_primal
from polyattn.solve.solution import Solution
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# What a solver may start from.
Source: TypeAlias = Rows | Moments | TriangularFactor

# Wide problems up to this size are solved with their features in memory: the most accurate way.
DIRECT_ROWS, DIRECT_NUMBERS = 1024, 1 << 22


@dataclass(frozen=True)
class Solver:
    """A row of the table, for n rows, p features of q pairs, and e outputs.

    solve : the solution for a source and a ridge
    numbers : from (n, p, q, e) to how many are in memory, to within a factor of two
    suits : from (n, p) to whether ``auto`` takes it, if it fits into memory and none before it does
    reason : why then, in words
    statistics : the kind of statistics that it can start from, instead of the rows
    """

    solve: Callable[[Any, float], Solution]
    numbers: Callable[[int, int, int, int], int]
    suits: Callable[[int, int], bool]
    reason: str
    statistics: type[Moments | TriangularFactor] | None = None


# ``auto`` takes the first that suits and fits.
SOLVERS = {
    "primal": Solver(
        solve=solve_primal,
        numbers=lambda _n, p, q, e: 3 * p**2 + q**3 // 2 + 2 * p * e,
        suits=lambda n, p: n >= p,
        reason="{rows} for {features}: sums of size p x p",
        statistics=Moments,
    ),
    "direct": Solver(
        solve=solve_direct,
        numbers=lambda n, p, _q, e: p * (6 * p if n >= p else 3 * n) + 2 * p * e,
        suits=lambda n, p: n < p and n <= DIRECT_ROWS and n * p <= DIRECT_NUMBERS,
        reason="{rows} for {features}, few enough to hold",
        statistics=TriangularFactor,
    ),
    "dual": Solver(
        solve=solve_dual,
        numbers=lambda n, p, q, e: n**2 + 3 * n * q + 2 * p * e,
        suits=lambda _n, _p: True,
        reason="{rows} for {features}: a kernel of size N x N",
    ),
    "iterative": Solver(
        solve=solve_iterative,
        numbers=lambda _n, p, _q, e: 5 * p * e,
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
    n_rows: int, n_dims: int, n_outputs: int = 1, solver: str = "auto", bias: bool = False
) -> Plan:
    """The solver that ``auto`` takes for ``n_rows`` predicted positions of ``n_dims`` coordinates.

    A named ``solver`` is kept.
    """
    require_choice("solver", solver, ("auto", *SOLVERS))
    width = n_dims + bias
    p, q = n_features(width), n_pairs(width)
    sizes = {name: 8 * each.numbers(n_rows, p, q, n_outputs) for name, each in SOLVERS.items()}
    if solver != "auto":
        return Plan(solver, "asked for by name", sizes[solver])
    limit = memory_limit()
    memory = readable_bytes(limit)
    rows, features = counted(n_rows, "row"), counted(p, "feature")
    for name, each in SOLVERS.items():
        if each.suits(n_rows, p) and sizes[name] <= limit:
            reason = each.reason.format(N=n_rows, p=p, rows=rows, features=features, limit=memory)
            return Plan(name, reason, sizes[name])
    raise InvalidInput(
        f"the coefficients alone ({n_outputs} x {p}) do not fit into {memory}; reduce the width "
        "of the tokens or fit the outputs one by one."
    )


def solve(
    source: Source, ridge: float, solver: str = "auto", try_exact: bool = False
) -> tuple[Solution, str]:
    """The solution, and the name of the solver that found it.

    try_exact : with ``auto`` and ridge 0, look first whether some layer computes all targets
    """
    if not isinstance(source, Rows):
        name = solver_of(source)
        return SOLVERS[name].solve(source, ridge), name
    name = plan(source.n_rows, source.n_dims, source.n_outputs, solver, source.bias).solver
    # Where the sums would cost most, a layer without error saves them.
    wanted = try_exact and solver == "auto" and name == "primal" and ridge == 0.0
    exact = solve_exact(source) if wanted else None
    return (SOLVERS[name].solve(source, ridge), name) if exact is None else (exact, "exact")


def solver_of(statistics: Moments | TriangularFactor) -> str:
    """The solver that starts from such statistics."""
    return next(name for name, each in SOLVERS.items() if each.statistics is type(statistics))


def memory_limit() -> int:
    """Half of the physical memory, in bytes; 4 GiB where that cannot be asked."""
    available = physical_memory()
    return 4 << 30 if available is None else available // 2
