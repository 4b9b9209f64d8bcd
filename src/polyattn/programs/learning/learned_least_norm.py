"""Programs learned by relation without choosing among relations: least squares of least norm."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.coefficients import constant_terms, layer_of
from polyattn.programs.learning.doubt import doubt_of
from polyattn.programs.learning.history import History
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.rows import rows_of
from polyattn.programs.learning.tied.least_norm import LeastNormFit
from polyattn.programs.learning.tied.span import SizedSpan


class LearnedLeastNorm(Learned):
    """A layer with one coefficient for each relation, at the sizes of ``schema``."""

    def __init__(self, schema: Schema, fit: LeastNormFit) -> None:
        super().__init__(schema, fit.outcome, fit.traces)
        self.fit = fit

    @cached_property
    def span(self) -> SizedSpan:
        return self.fit.span_at(self.schema)

    @cached_property
    def layer(self) -> LinearAttention:
        return layer_of(self.n_dims, *self._coefficients)

    @cached_property
    def terms(self) -> list[Term]:
        """One term for each coefficient, the largest first: there can be very many."""
        return constant_terms(self.schema, *self._coefficients)

    def predictor(self) -> RelationPredictor:
        return RelationPredictor(self.schema, self.span)

    def resize(self, **sizes: int) -> LearnedLeastNorm:
        return LearnedLeastNorm(self.schema.resize(**sizes), self.fit)

    @cached_property
    def _doubt(self) -> str:
        return doubt_of(
            self.traces, lambda trace: self.fit.span_at(trace.schema).outputs(rows_of(trace))
        )

    @cached_property
    def _coefficients(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return self.span.coefficients()


class RelationPredictor:
    """Predicts the next token by looking up the relation of every product that occurs."""

    def __init__(self, schema: Schema, span: SizedSpan) -> None:
        self._history, self._span = History(schema), span

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        self._history.start(prompt)

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        return self._span.outputs(self._history.row)[0]

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        return self._history.append(self.output())
