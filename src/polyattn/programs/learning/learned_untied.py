"""Programs learned coefficient by coefficient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.model import LinearAttention
from polyattn.outcome import Outcome
from polyattn.programs.certificates import ProgramCertificate, prove_domain
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.coefficients import constant_terms
from polyattn.programs.learning.dense import DensePredictor
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.untied.exact_span import ExactSpan
from polyattn.programs.learning.untied.leave_out import innovative
from polyattn.programs.learning.untied.program import UntiedProgram
from polyattn.programs.learning.untied.span import Span
from polyattn.programs.traces import Trace

# Coefficients below this are rounding.
NEGLIGIBLE = 1e-9

# All labels are fitted; or they are, but none is confirmed by others; or some are not believed;
# or none is fitted exactly.
FITTED, UNCHECKED, REPAIRED, PENALISED = "fitted", "unchecked", "repaired", "penalised"


class LearnedUntied(Learned):
    """A layer whose coefficients were learned one by one; ``program`` has the details."""

    def __init__(self, schema: Schema, program: UntiedProgram, traces: Sequence[Trace]) -> None:
        super().__init__(schema, _outcome(program, schema, traces), traces)
        self.program = program

    @property
    def n_rows(self) -> int:
        """How many rows were fitted: of contradicting labels only those that are believed."""
        return self.program.n_rows

    @property
    def layer(self) -> LinearAttention:
        return self.program.layer

    @property
    def span(self) -> Span:
        return self.program.span

    @cached_property
    def terms(self) -> list[Term]:
        """One term for each coefficient, the largest first: there can be very many."""
        matrices, active = self.program.active_layer.matrices, self.program.active_layer.active
        query, write, pair = np.nonzero(np.abs(matrices) > NEGLIGIBLE)
        places = np.stack([write, active.first[pair], active.second[pair], query])
        return constant_terms(self.schema, places, matrices[query, write, pair])

    def predictor(self) -> DensePredictor:
        return DensePredictor(self.schema, self.program.active_layer)

    def resize(self, **sizes: int) -> Learned:
        raise InvalidInput(
            "a layer learned coefficient by coefficient knows nothing of other sizes; learn with "
            f"tied=True to resize (asked for {sizes})."
        )

    def _exact_span(self) -> ExactSpan:
        return self.program.exact_span

    def _certify_domain(self, domain: Iterable[Trace], exact: bool) -> ProgramCertificate:
        if not exact:
            return super()._certify_domain(domain, exact)
        if self.outcome.name not in (FITTED, UNCHECKED):
            raise InvalidInput(
                "a proof needs a layer that gives every token of its traces; this one does not: "
                f"{self.outcome.sentence}"
            )
        return prove_domain(self.traces, domain)

    @property
    def _doubt(self) -> str:
        return self.outcome.sentence if self.outcome.name == PENALISED else ""

    def _n_innovative(self) -> int:
        return len(innovative(self.program.span))


def _outcome(program: UntiedProgram, schema: Schema, traces: Sequence[Trace]) -> Outcome:
    if program.ridge != 0.0:
        return Outcome(
            PENALISED,
            program.outcome,
            "Nothing outside the training rows is determined; test it on traces you trust.",
        )
    given, fitted = np.concatenate([each.targets for each in traces]), program.span.features.targets
    if len(given) != len(fitted) or np.any(schema.round(given) != schema.round(fitted)):
        return Outcome(
            REPAIRED,
            program.outcome,
            "It stands or falls with the labels that are believed; test it on traces you trust.",
        )
    if program.n_rows == program.span.rank:
        return Outcome(
            UNCHECKED,
            f"{program.outcome} They are independent: any labels would have been fitted.",
            "Give more traces, until some rows are determined by others.",
        )
    return Outcome(
        FITTED,
        program.outcome,
        "What it does in the span of these rows is determined by them; the certificate says "
        "how likely other traces are to leave it, and run(..., abstain=True) stops there.",
    )
