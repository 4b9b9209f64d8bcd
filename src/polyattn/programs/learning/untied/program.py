"""What ``learn_untied`` returns: a layer that predicts, and the span in which it is determined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.compress import factor
from polyattn.model import LinearAttention
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rows import rows_of
from polyattn.programs.learning.untied.exact_span import ExactSpan
from polyattn.programs.learning.untied.features import joined
from polyattn.programs.learning.untied.layer import ActiveLayer
from polyattn.programs.learning.untied.span import Span
from polyattn.programs.traces import Trace

# Rows of traces that are judged together.
BLOCK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class UntiedProgram:
    """A program as one layer, learned coefficient by coefficient.

    Attributes
    ----------
    active_layer : ActiveLayer
        The coefficients on the pairs that occurred; one step at a time by ``step``.
    span : Span
        Of the rows that were fitted: inside it predictions are determined by them if they are
        fitted exactly, ``ridge`` = 0.
    ridge : float
        The penalty; 0 if the rows are fitted exactly.
    largest_error : float
        Over the rows that were fitted, before rounding.
    n_rows : int
        How many rows were fitted.
    outcome : str
        What happened, as a sentence.
    """

    active_layer: ActiveLayer
    span: Span
    ridge: float
    largest_error: float
    n_rows: int
    outcome: str

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return self.active_layer.active.n_dims

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients (e, q, d), as ``LinearAttention.coef``."""
        return self.active_layer.coef

    @cached_property
    def layer(self) -> LinearAttention:
        """The same function with heads.  Cost: O(d^6) time."""
        heads = factor(self.coef)
        return LinearAttention(heads.attn, heads.value)

    @cached_property
    def exact_span(self) -> ExactSpan:
        """The span modulo a prime, for proofs."""
        return ExactSpan.of(self.span)

    def predict(self, grams: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """Outputs (m, d) for Gram matrices (m, d, d) and last tokens (m, d)."""
        return self.active_layer.predict(grams, queries)

    def step(self, gram: NDArray, query: NDArray) -> NDArray[np.float64]:
        """One output (d,) for a Gram matrix (d, d) and the last token (d,).

        Cost: 2 d u flops for u active pairs and each coordinate that the last token holds.
        """
        return self.active_layer.step(gram.ravel()[self.active_layer.active.flat], query)

    def right(self, traces: Iterable[Trace]) -> list[NDArray[np.bool_]]:
        """For each trace, which of its tokens follow from those before; teacher-forced.

        A history is reproduced when the program runs freely iff all its tokens are right here.
        """
        result: list[NDArray[np.bool_]] = []
        waiting: list[Trace] = []
        for trace in traces:
            waiting.append(trace)
            if sum(each.n_rows for each in waiting) >= BLOCK_ROWS:
                result += self._right(waiting)
                waiting = []
        return result + self._right(waiting)

    def _right(self, traces: list[Trace]) -> list[NDArray[np.bool_]]:
        if not traces:
            return []
        rows = joined([rows_of(trace) for trace in traces])
        schema: Schema = traces[0].schema
        rounded = schema.round(self.predict(rows.grams, rows.queries))
        right = np.all(rounded == rows.targets, axis=1)
        return np.split(right, np.cumsum([trace.n_rows for trace in traces])[:-1])
