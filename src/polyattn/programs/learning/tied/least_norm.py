"""The tied layer of least norm: all relations at once, nothing chosen.

    minimise sum over rows and a of (y[a] - sum_c w[c] phi[c])^2 + ridge ||w||^2

Its coefficients are many and not to be read; it is right wherever the traces determine the output
(``span``), and a baseline for rules elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.outcome import Outcome
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rows import rows_of
from polyattn.programs.learning.tied.report import Findings, Mismatch
from polyattn.programs.learning.tied.span import RelationSpan, SizedSpan
from polyattn.programs.traces import Trace


@dataclass(frozen=True, eq=False)
class LeastNormFit:
    """Coefficients of least norm over relations, and how they did on held-out traces.

    relations : the span of the training equations with its coefficients
    """

    schema: Schema
    relations: RelationSpan
    findings: Findings
    traces: tuple[Trace, ...] = field(repr=False)

    @property
    def outcome(self) -> Outcome:
        """``fitted``, or what failed and what to try."""
        found = self.findings
        if found.n_folds < 2:
            return found.outcome
        if found.mismatches:
            return Outcome(
                "unexplained",
                f"{found.n_wrong} of {found.n_tokens} held-out tokens were predicted wrongly, "
                f"first {found.mismatches[0]}.",
                "Give more traces, of more machines and of mixed lengths.",
            )
        return Outcome(
            "fitted",
            f"Every token of all {found.n_traces} traces was predicted exactly by coefficients "
            "learned without that trace.",
            "It knows nothing of relations that did not occur, and larger machines have others: "
            "run(..., abstain=True) stops there.",
        )

    @property
    def span(self) -> SizedSpan:
        """The span, which also gives ``outputs`` and ``coefficients``."""
        return self.span_at(self.schema)

    def span_at(self, schema: Schema) -> SizedSpan:
        """The same at other sizes."""
        return self.relations.at(schema)


def learn_least_norm(
    schema: Schema,
    traces: Sequence[Trace],
    *,
    labels: Sequence[NDArray] | None = None,
    ridge: float = 0.0,
    max_offset: int = 3,
    n_folds: int = 5,
) -> LeastNormFit:
    """Fit one coefficient to each relation that occurs, with least norm.

    Guarantee: rows inside the span of clean traces are predicted exactly.
    Cost: n_folds + 1 times that of ``RelationSpan``.
    """
    n_folds = min(n_folds, len(traces))
    found: list[Mismatch] = []
    for fold in range(n_folds if n_folds > 1 else 0):
        kept = [number for number in range(len(traces)) if number % n_folds != fold]
        learned = _fit(schema, traces, labels, kept, ridge, max_offset)
        for number in set(range(len(traces))) - set(kept):
            found += _mismatches(learned, traces[number], number, labels)
    findings = Findings(
        n_traces=len(traces),
        n_folds=n_folds,
        n_agreeing=n_folds,
        n_tokens=sum(trace.n_rows for trace in traces),
        mismatches=tuple(sorted(found, key=lambda each: (each.trace, each.token))),
        gaps=(),
    )
    everything = _fit(schema, traces, labels, list(range(len(traces))), ridge, max_offset)
    return LeastNormFit(schema, everything, findings, tuple(traces))


def _fit(
    schema: Schema,
    traces: Sequence[Trace],
    labels: Sequence[NDArray] | None,
    kept: list[int],
    ridge: float,
    max_offset: int,
) -> RelationSpan:
    chosen = None if labels is None else [labels[number] for number in kept]
    return RelationSpan.of(
        schema, [traces[number] for number in kept], chosen, max_offset=max_offset, ridge=ridge
    )


def _mismatches(
    learned: RelationSpan, trace: Trace, number: int, labels: Sequence[NDArray] | None
) -> list[Mismatch]:
    wanted = trace.completion if labels is None else np.asarray(labels[number], dtype=float)
    outputs = learned.at(trace.schema).outputs(rows_of(trace))
    wrong = trace.schema.round(outputs) != trace.schema.round(wanted)
    return [
        Mismatch(number, int(token), name)
        for name, block in trace.schema.blocks.items()
        for token in np.flatnonzero(wrong[:, block].any(axis=1))
    ]
