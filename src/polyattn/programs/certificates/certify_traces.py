"""Certificates from training traces alone, from fresh traces, from all traces of a domain.

A row (G, x) is *inside* a span if its features are a linear combination of those of training rows.
Every layer (of the kind that was learned) that is right on the training rows then gives the same
output on it: the prediction is determined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import log
from numbers import Real
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.certificates.certificate import Leaving, ProgramCertificate
from polyattn.programs.certificates.outcomes import Verdict
from polyattn.programs.traces import Trace, TraceRows
from polyattn.progress import report

# What is said of a row, or else "undecided".
INSIDE, OUTSIDE = "inside", "outside"

# Squared distance from the span, relative to the row itself: below, above; undecided between.
INSIDE_BELOW, OUTSIDE_ABOVE = 1e-10, 1e-6

# Fresh traces that "saturated" needs: then at most 5 % of traces are outside, 95 times in 100.
FEWEST_FRESH = 59

# Rows that are tested together.
BLOCK_ROWS = 2048


class RowSpan(Protocol):
    """The span of the features of training rows, whatever the features are.

    A span that does not compute in floating point says so in an attribute ``arithmetic``.
    """

    @property
    def rank(self) -> int:
        """The dimension of the span."""

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided"; targets are not looked at."""


def arithmetic_of(span: RowSpan) -> str:
    """How membership is decided, such as "floating point" or "modulo 4194287"."""
    return str(getattr(span, "arithmetic", "floating point"))


def statuses(distances: NDArray) -> NDArray[np.str_]:
    """The statuses that belong to relative squared distances from the span."""
    far = np.where(distances > OUTSIDE_ABOVE, OUTSIDE, "undecided")
    return np.where(distances < INSIDE_BELOW, INSIDE, far)


def certify_training(
    span: RowSpan, n_rows: int, n_traces: int, n_innovative: int | None = None
) -> ProgramCertificate:
    """What the training traces say by themselves.

    Guarantee: M training traces are exchangeable, and at most r of them are not in the span of
    the others, r the rank of all; so the last one left the span of those before it with
    probability at most E[r]/M, and a fresh one leaves the larger span of all M no more often.
    (Where r is the rank of all traces there are, the same argument for M + 1 traces gives
    r/(M + 1).)  Rows of one trace are not exchangeable.  ``n_innovative`` / M, the share of
    traces that leave the span of the others, estimates the same without bias for M - 1 traces.
    """
    bound = min(1.0, span.rank / n_traces)
    return ProgramCertificate(
        "undecided", "training", arithmetic_of(span), False, span.rank, n_rows, n_traces,
        outside_mass=bound, n_innovative=n_innovative,
    )  # fmt: skip


def certify_fresh(
    span: RowSpan, n_rows: int, n_traces: int, fresh: Iterable[Trace], delta: float = 0.05
) -> ProgramCertificate:
    """What fresh traces say; their labels are not used.

    Guarantee: if a share eps of traces left the span, m independent ones would all stay inside
    with probability (1 - eps)^m; so if all do, eps <= ln(1/delta)/m with confidence 1 - delta.
    "saturated" needs all inside and at least FEWEST_FRESH of them.
    Cost: that of ``span.inside``; stops at the first row outside.
    """
    if not isinstance(delta, Real) or not 0 < delta < 1:
        raise InvalidInput(f"delta must be between 0 and 1; got {delta!r}.")
    found = replace(certify_domain(span, n_rows, n_traces, fresh), method="fresh")
    if found.verdict != "saturated":
        return found
    n_fresh = found.n_checked_traces
    verdict = "saturated" if n_fresh >= FEWEST_FRESH else "undecided"
    mass = min(1.0, log(1 / delta) / n_fresh)
    return replace(found, verdict=verdict, outside_mass=mass, confidence=1 - delta)


def certify_domain(
    span: RowSpan, n_rows: int, n_traces: int, domain: Iterable[Trace]
) -> ProgramCertificate:
    """What ALL traces of a domain say, with whatever arithmetic the span has.

    Guarantee: "saturated" if every row of every trace is inside.  That is as sure as the span's
    arithmetic; for a proof see ``prove_domain``.
    Cost: that of ``span.inside``; stops at the first row outside.
    """
    leaving, n_checked, n_checked_rows, n_undecided = None, 0, 0, 0
    for first, some in blocks(domain, lambda trace: trace.n_rows, BLOCK_ROWS):
        status = span.inside(TraceRows.joined([TraceRows.of(trace) for trace in some]))
        n_checked += len(some)
        n_checked_rows += len(status)
        n_undecided += int(np.count_nonzero((status != INSIDE) & (status != OUTSIDE)))
        outside = np.flatnonzero(status == OUTSIDE)
        if len(outside):
            ends = np.cumsum([trace.n_rows for trace in some])
            trace = int(np.searchsorted(ends, outside[0], side="right"))
            row = int(outside[0] - ends[trace] + some[trace].n_rows)
            leaving = Leaving(first + trace, row)
            break
        # How many are to come is not known.
        report(n_checked, n_checked)
    if not n_checked:
        raise InvalidInput("a certificate needs at least one trace to look at; got none.")
    verdict: Verdict = "undecided" if n_undecided else "saturated"
    return ProgramCertificate(
        verdict if leaving is None else "not_saturated", "exhaustive", arithmetic_of(span), False,
        span.rank, n_rows, n_traces, n_checked, n_checked_rows, leaving=leaving,
        n_undecided=n_undecided,
    )  # fmt: skip


def blocks(
    traces: Iterable[Trace], weight: Callable[[Trace], int], most: int
) -> Iterator[tuple[int, list[Trace]]]:
    """Traces in blocks, each with the number of its first; full when they weigh ``most``."""
    first, block, total = 0, list[Trace](), 0
    for trace in traces:
        block.append(trace)
        total += weight(trace)
        if total >= most:
            yield first, block
            first, block, total = first + len(block), [], 0
    if block:
        yield first, block
