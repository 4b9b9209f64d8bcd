"""The plan: what every solver would cost in seconds and bytes, and which ``auto`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from polyattn.errors import InvalidInput, require_choice, require_integer
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import counted, readable_bytes, readable_seconds
from polyattn.solve.costs import Size, steps
from polyattn.solve.iterative import kept_numbers
from polyattn.solve.solvers import SOLVERS
from polyattn.sources.stretches import MOST_STRETCHES
from polyattn.stats.rows import Rows

# Where features held in memory take no longer, they are: the most accurate way.
UNNOTICED_SECONDS = 0.05

# The iteration knows neither rank nor sums.  It is taken from so many features on, and only if it
# is expected to take so many times less than the solver that would be taken else.
ITERATED_FEATURES, MUCH_FASTER = 4000, 4.0

NAMED = "asked for by name"
QUICKER = "{rows} for {features}: {other} would take about {ratio:.0f} times as long"


class Estimate(NamedTuple):
    """What one solver would take, all steps of the fit included.

    bytes : the peak memory of the process that solves
    worker_bytes : that of each other worker; 0 where there is none
    is_fit : whether ``bytes`` are within half of the memory of this machine
    """

    solver: str
    seconds: float
    bytes: int
    worker_bytes: int
    is_fit: bool
    steps: Mapping[str, float]

    def __str__(self) -> str:
        return f"about {readable_bytes(self.bytes)} and {readable_seconds(self.seconds)}"


@dataclass(frozen=True)
class Plan:
    """A chosen solver, the reason in a sentence, and what it is estimated to take.

    Attributes
    ----------
    bytes : int
        The peak memory of the process that solves.
    seconds : float
        Of one core (per worker), to within a factor of about three.  Reading and summaries count
        only where ``n_tokens`` was given.
    steps : mapping of str to float
        The seconds of "reading", "summaries", "rereading" them in each pass of the iteration where
        they do not fit into memory, "sums" (or passes), "exchange" between workers, "solution".
    n_workers, worker_bytes : int
        How many share the work, and the peak memory of each but the one that solves.
    others : tuple of Estimate
        What every solver would take, the chosen one included.
    """

    solver: str
    reason: str
    bytes: int
    seconds: float
    steps: Mapping[str, float]
    n_workers: int
    worker_bytes: int
    others: tuple[Estimate, ...]

    @classmethod
    def of(cls, chosen: Estimate, reason: str, n_workers: int, others: list[Estimate]) -> Plan:
        """That of one of some estimates."""
        return cls(
            chosen.solver, reason, chosen.bytes, chosen.seconds, chosen.steps, n_workers,
            chosen.worker_bytes, tuple(others),
        )  # fmt: skip

    def __str__(self) -> str:
        cost = f"about {readable_bytes(self.bytes)} and {readable_seconds(self.seconds)}"
        if self.n_workers > 1:
            cost += f" on {self.n_workers} workers of {readable_bytes(self.worker_bytes)} each"
        return f"{self.solver}: {self.reason} ({cost})"


def plan(
    n_rows: int,
    n_dims: int,
    n_outputs: int = 1,
    solver: str = "auto",
    bias: bool = False,
    *,
    form: Form | None = None,
    n_context_dims: int | None = None,
    n_tokens: int | None = None,
    n_workers: int = 1,
) -> Plan:
    """The solver that ``auto`` takes for ``n_rows`` predicted positions of ``n_dims`` coordinates.

    Parameters
    ----------
    n_rows, n_dims, n_outputs : int
    solver : "auto" | "primal" | "dual" | "direct" | "iterative"
        A named solver is kept.
    form, bias, n_context_dims
        Describe other layers than the papers'.
    n_tokens : int, optional
        Tokens of a sequence, on average: reading and summarising them then counts too.
    n_workers : int
        Over how many processes of one core the data are spread: they share reading, summaries and
        sums (or passes), and one of them solves.  More than 64 do not help.

    Cost: none but arithmetic; no data are touched.
    """
    require_choice("solver", solver, ("auto", *SOLVERS))
    n_rows, n_dims = require_integer("n_rows", n_rows), require_integer("n_dims", n_dims)
    n_outputs = require_integer("n_outputs", n_outputs)
    layout = Layout.of(require_form(form, bias=bias), n_dims, n_context_dims)
    size = size_of(layout, n_rows, n_outputs)
    if n_tokens is not None:
        length = require_integer("n_tokens", n_tokens)
        size = _with_tokens(size, layout, n_rows * length if layout.form.mode == "last" else n_rows)
    return planned(layout, size, solver, n_workers=require_integer("n_workers", n_workers))


def plan_of(rows: Rows, solver: str = "auto", keep_sums: bool = False, n_workers: int = 1) -> Plan:
    """The plan for rows, whose tokens are known."""
    size = size_of(rows.layout, rows.n_rows, rows.n_outputs)
    n_tokens = int(rows.batch.offsets[-1])
    if rows.context is not None:
        n_tokens += int(rows.context.offsets[-1])
    size = _with_tokens(size, rows.layout, n_tokens)
    return planned(rows.layout, size, solver, keep_sums, n_workers)


def size_of(layout: Layout, n_rows: int, n_outputs: int) -> Size:
    """The size of a problem whose tokens are not counted."""
    return Size(n_rows, layout.n_features, layout.n_sums, layout.n_queries, n_outputs)


def planned(
    layout: Layout, size: Size, solver: str, keep_sums: bool = False, n_workers: int = 1
) -> Plan:
    """The named solver, or the cheapest that suits and fits.

    keep_sums : the iteration, which has none, only where nothing else fits
    """
    limit = memory_limit()
    every = {name: _estimate(name, size, n_workers, limit) for name in SOLVERS}
    others = list(every.values())
    if solver != "auto":
        return Plan.of(every[solver], NAMED, n_workers, others)
    suitable = [
        each for name, each in every.items()
        if name != "iterative" and each.is_fit and SOLVERS[name].suits(size.n, size.p)
    ]  # fmt: skip
    iteration, words = every["iterative"], _words(size, limit)
    if not suitable:
        if not iteration.is_fit:
            raise InvalidInput(
                f"the coefficients alone ({size.e} x {size.p}) do not fit into "
                f"{readable_bytes(limit)}; reduce the width of the tokens or fit the outputs one "
                "by one."
            )
        reason = SOLVERS["iterative"].reason.format(**words)
        return Plan.of(iteration, reason, n_workers, others)
    chosen = min(suitable, key=_preference)
    ratio = chosen.seconds / iteration.seconds
    is_wide = size.p >= ITERATED_FEATURES or (chosen.solver == "dual" and size.n >= size.p)
    # In mode full, rows of one sequence share their sums: primal is faster than it counts.
    may_iterate = is_wide and layout.form.mode != "full" and not keep_sums
    if may_iterate and iteration.is_fit and ratio >= MUCH_FASTER:
        reason = QUICKER.format(**words, other=chosen.solver, ratio=ratio)
        return Plan.of(iteration, reason, n_workers, others)
    return Plan.of(chosen, SOLVERS[chosen.solver].reason.format(**words), n_workers, others)


def memory_limit() -> int:
    """Half of the physical memory, in bytes; 4 GiB where that cannot be asked."""
    available = physical_memory()
    return 4 << 30 if available is None else available // 2


def _preference(each: Estimate) -> float:
    """By seconds; features in memory that take no time come first."""
    is_unnoticed = each.solver == "direct" and each.seconds <= UNNOTICED_SECONDS
    return -1.0 if is_unnoticed else each.seconds


def _estimate(solver: str, size: Size, n_workers: int, limit: int) -> Estimate:
    row, rereads_summaries = SOLVERS[solver], False
    n_bytes = 8 * row.numbers(size)
    is_fit, beside = n_bytes <= limit, 0
    if solver == "iterative":
        beside = _kept_summaries(replace(size, n=-(-size.n // min(n_workers, MOST_STRETCHES))))
        rereads_summaries = beside == 0
        n_bytes = min(n_bytes + (beside if n_workers == 1 else 0), max(limit, n_bytes))
    seconds = steps(size, row.work(size), n_workers, rereads_summaries)
    worker_bytes = 0 if n_workers == 1 else 8 * row.worker_numbers(size) + beside
    return Estimate(solver, sum(seconds.values()), n_bytes, worker_bytes, is_fit, seconds)


def _kept_summaries(size: Size) -> int:
    """Bytes of the summaries that the iteration keeps: all, or none where they do not fit.

    A copy in single precision takes half as many again.
    """
    n_bytes = 8 * size.n_summaries
    return 3 * n_bytes // 2 if n_bytes <= 8 * kept_numbers() else 0


def _with_tokens(size: Size, layout: Layout, n_tokens: int) -> Size:
    return replace(
        size, n_tokens=n_tokens, n_dims=layout.n_dims, n_token_products=layout.n_products
    )


def _words(size: Size, limit: int) -> dict[str, object]:
    return {
        "N": size.n, "p": size.p, "rows": counted(size.n, "row"),
        "features": counted(size.p, "feature"), "limit": readable_bytes(limit),
    }  # fmt: skip
