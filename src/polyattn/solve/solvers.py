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
class ProblemSize:
    """What the choice of a solver depends on; ``width`` counts the constant of ``bias``."""

    n_rows: int
    width: int
    n_outputs: int

    @property
    def n_features(self) -> int:
        """p, the number of cubic features."""
        return n_features(self.width)


@dataclass(frozen=True)
class Solver:
    """A row of the table.

    solve : the solution for a source and a ridge
    numbers : how many numbers are in memory beside the coefficients, to within a factor of two
    suits : whether ``auto`` takes it, if it fits into memory and none before it does
    reason : why then, in words
    statistics : the kind of statistics that it can start from, instead of the rows
    """

    solve: Callable[[Any, float], Solution]
    numbers: Callable[[ProblemSize], int]
    suits: Callable[[ProblemSize], bool]
    reason: str
    statistics: type[Moments | TriangularFactor] | None = None

    def bytes(self, size: ProblemSize) -> int:
        """Peak memory, to within a factor of two."""
        return 8 * (self.numbers(size) + 2 * size.n_features * size.n_outputs)


def _few_rows(size: ProblemSize) -> bool:
    n_rows, p = size.n_rows, size.n_features
    return n_rows < p and n_rows <= DIRECT_ROWS and n_rows * p <= DIRECT_NUMBERS


# ``auto`` takes the first that suits and fits.
SOLVERS = {
    "primal": Solver(
        solve=solve_primal,
        numbers=lambda size: 3 * size.n_features**2 + n_pairs(size.width) ** 3 // 2,
        suits=lambda size: size.n_rows >= size.n_features,
        reason="{rows} for {features}: sums of size p x p",
        statistics=Moments,
    ),
    "direct": Solver(
        solve=solve_direct,
        numbers=lambda size: (
            size.n_features
            * (6 * size.n_features if size.n_rows >= size.n_features else 3 * size.n_rows)
        ),
        suits=_few_rows,
        reason="{rows} for {features}, few enough to hold",
        statistics=TriangularFactor,
    ),
    "dual": Solver(
        solve=solve_dual,
        numbers=lambda size: size.n_rows**2 + 3 * size.n_rows * n_pairs(size.width),
        suits=lambda _: True,
        reason="{rows} for {features}: a kernel of size N x N",
    ),
    "iterative": Solver(
        solve=solve_iterative,
        numbers=lambda size: 3 * size.n_features * size.n_outputs,
        suits=lambda _: True,
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
    size = ProblemSize(n_rows, n_dims + bias, n_outputs)
    if solver != "auto":
        return Plan(solver, "asked for by name", SOLVERS[solver].bytes(size))
    limit = memory_limit()
    words = {
        "N": n_rows,
        "p": size.n_features,
        "rows": counted(n_rows, "row"),
        "features": counted(size.n_features, "feature"),
        "limit": readable_bytes(limit),
    }
    for name, each in SOLVERS.items():
        if each.suits(size) and each.bytes(size) <= limit:
            return Plan(name, each.reason.format(**words), each.bytes(size))
    raise InvalidInput(
        f"the coefficients alone ({n_outputs} x {size.n_features}) do not fit into "
        f"{words['limit']}; reduce the width of the tokens or fit the outputs one by one."
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
