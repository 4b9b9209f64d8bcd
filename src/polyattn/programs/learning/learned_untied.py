"""Programs learned coefficient by coefficient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.model import LinearAttention
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
from polyattn.solve.outcome import Outcome

# Coefficients below this are rounding.
NEGLIGIBLE = 1e-9


class LearnedUntied(Learned):
    """A layer whose coefficients were learned one by one; ``program`` has the details."""

    def __init__(self, schema: Schema, program: UntiedProgram, traces: Sequence[Trace]) -> None:
        super().__init__(schema, _outcome(program), traces)
        self.program = program

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
        if self.program.n_rows != self.n_rows:
            raise InvalidInput(
                "some labels contradict the others and were not believed; a proof needs traces "
                "without contradictions."
            )
        return prove_domain(self.traces, domain)

    def _n_innovative(self) -> int:
        return len(innovative(self.program.span))


def _outcome(program: UntiedProgram) -> Outcome:
    if program.ridge == 0.0:
        return Outcome(
            "fitted",
            program.outcome,
            "What it does in the span of these rows is determined by them; the certificate says "
            "how likely other traces are to leave it, and run(..., abstain=True) stops there.",
        )
    return Outcome(
        "penalised",
        program.outcome,
        "Nothing outside the training rows is determined; test it on traces you trust.",
    )
