"""Which road?  Chosen from sizes alone, before any work, and able to say why."""

from __future__ import annotations

import os
from dataclasses import dataclass

from polyattn.errors import InvalidInput, require_choice
from polyattn.features.pairs import n_features, n_pairs

SOLVERS = ("primal", "dual", "direct", "iterative")

# Wide problems up to this size are solved with their features in memory: the most accurate way.
DIRECT_ROWS, DIRECT_NUMBERS = 1024, 1 << 22


@dataclass(frozen=True)
class Plan:
    """A chosen solver and the reason in a sentence; ``bytes`` is the estimated peak memory."""

    solver: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.solver}: {self.reason} (about {_readable(self.bytes)})"


def plan(n_rows: int, n_dims: int, n_outputs: int = 1, solver: str = "auto") -> Plan:
    """The solver that ``auto`` takes for ``n_rows`` predicted positions of width ``n_dims``.

    ``n_dims`` counts the constant coordinate of ``bias``.  A named ``solver`` is kept.
    """
    require_choice("solver", solver, ("auto", *SOLVERS))
    p = n_features(n_dims)
    memory = {name: _memory(name, n_rows, n_dims, n_outputs) for name in SOLVERS}
    limit = memory_limit()
    if solver != "auto":
        return Plan(solver, "asked for by name", memory[solver])
    if n_rows < p and n_rows <= DIRECT_ROWS and n_rows * p <= DIRECT_NUMBERS:
        return Plan(
            "direct", f"{n_rows} rows for {p} features, few enough to hold", memory["direct"]
        )
    if n_rows >= p and memory["primal"] <= limit:
        return Plan(
            "primal", f"{n_rows} rows for {p} features: sums of size p x p", memory["primal"]
        )
    if memory["dual"] <= limit:
        return Plan(
            "dual", f"{n_rows} rows for {p} features: a kernel of size N x N", memory["dual"]
        )
    if memory["iterative"] <= limit:
        return Plan(
            "iterative",
            f"neither {p} x {p} nor {n_rows} x {n_rows} numbers fit into {_readable(limit)}",
            memory["iterative"],
        )
    raise InvalidInput(
        f"the coefficients alone ({n_outputs} x {p}) do not fit into {_readable(limit)}; "
        "reduce the width of the tokens or fit the outputs one by one."
    )


def memory_limit() -> int:
    """Half of the physical memory, in bytes; 4 GiB where that cannot be asked."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 << 30


def _memory(solver: str, n_rows: int, n_dims: int, n_outputs: int) -> int:
    """Peak bytes, to within a factor of two."""
    p, q = n_features(n_dims), n_pairs(n_dims)
    numbers = {
        "primal": 3 * p * p + q * q * q // 2,
        "dual": n_rows * n_rows + 3 * n_rows * q,
        "direct": 6 * p * p if n_rows >= p else 3 * n_rows * p,
        "iterative": 3 * p * n_outputs,
    }[solver]
    return 8 * (numbers + 2 * p * n_outputs)


def _readable(count: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count //= 1000
    return f"{count:.0f} GB"
