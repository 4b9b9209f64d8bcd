"""LearnedCoefficients: a layer that predicts, and the span in which it is determined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files.fields import any_object, array, entries, number, require
from polyattn.files.records import Record
from polyattn.form.pairs import n_pairs, pair_position
from polyattn.heads.compress import factor
from polyattn.model import LinearAttention
from polyattn.outcome import Outcome
from polyattn.programs.certificates import ProgramCertificate, prove_domain
from polyattn.programs.certificates.certify_traces import BLOCK_ROWS, blocks
from polyattn.programs.language.attributes import Pattern
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.coefficients.active_pairs import (
    ActiveLayer,
    ActivePairs,
    PairRows,
    RowFeatures,
)
from polyattn.programs.learning.coefficients.coefficient_span import CoefficientSpan
from polyattn.programs.learning.coefficients.exact_span import ExactSpan
from polyattn.programs.learning.coefficients.outcomes import COEFFICIENTS_OUTCOMES, CoefficientsName
from polyattn.programs.learning.learned import History, Learned
from polyattn.programs.learning.training_traces import plain_traces, traces_from
from polyattn.programs.plain import plain_schema, schema_from
from polyattn.programs.traces import Trace, TraceRows

# Coefficients below this are rounding.
NEGLIGIBLE = 1e-9

FIELDS = entries({
    "schema": any_object, "traces": any_object, "outcome": COEFFICIENTS_OUTCOMES.check,
    "ridge": number(0), "largest_error": number(0),
})  # fmt: skip


class LearnedCoefficients(Learned):
    """A program as one layer, learned coefficient by coefficient.

    Attributes
    ----------
    active_layer : ActiveLayer
        The coefficients on the pairs that occurred; one step at a time by ``step``.
    ridge : float
        The penalty; 0 if the rows are fitted exactly.
    largest_error : float
        Over the rows that were fitted, before rounding.
    fitted : integer array (n_rows,)
        The numbers of the rows that were fitted: of contradicting labels those that are believed.
    """

    kind = "learned_coefficients"
    method = "coefficients"
    about = "a layer whose coefficients were learned one by one"
    outcome: Outcome[CoefficientsName]

    def __init__(
        self,
        schema: Schema,
        traces: Sequence[Trace],
        outcome: Outcome[CoefficientsName],
        active_layer: ActiveLayer,
        ridge: float,
        largest_error: float,
        fitted: NDArray[np.int64],
        span: CoefficientSpan | None = None,
    ) -> None:
        super().__init__(schema, outcome, traces)
        self.active_layer, self.ridge, self.largest_error = active_layer, ridge, largest_error
        self.fitted = fitted
        if span is not None:
            self.span = span

    @property
    def n_rows(self) -> int:
        """How many rows were fitted: of contradicting labels only those that are believed."""
        return len(self.fitted)

    @cached_property
    def span(self) -> CoefficientSpan:
        """Of the rows that were fitted: it determines predictions if the fit is exact."""
        return CoefficientSpan.of(RowFeatures.of(self.traces).take(self.fitted))

    @cached_property
    def exact_span(self) -> ExactSpan:
        """The span modulo a prime, for proofs."""
        return ExactSpan.of(self.span)

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients (e, q, d), as ``LinearAttention.coef``."""
        matrices, active = self.active_layer.matrices, self.active_layer.active
        n_dims, n_outputs, _ = matrices.shape
        coef = np.zeros((n_outputs, n_pairs(n_dims), n_dims))
        coef[:, pair_position(n_dims)[active.first, active.second]] = matrices.transpose(1, 2, 0)
        return coef

    @cached_property
    def layer(self) -> LinearAttention:
        """The same function with heads.  Cost: O(d^6) time."""
        heads = factor(self.coef)
        return LinearAttention(heads.attn, heads.value)

    @cached_property
    def terms(self) -> list[Term]:
        """One term for each coefficient, the largest first: there can be very many."""
        matrices, active = self.active_layer.matrices, self.active_layer.active
        query, write, pair = np.nonzero(np.abs(matrices) > NEGLIGIBLE)
        places = np.stack([write, active.first[pair], active.second[pair], query])
        values = matrices[query, write, pair]
        order = np.argsort(-np.abs(values), kind="stable")
        atoms = [(getattr(self.schema, name), value) for name, value in self.schema.atoms]
        patterns = [
            Pattern(attribute, whole=value) if isinstance(value, str) else attribute(*value)
            for attribute, value in atoms
        ]
        return [
            Term(patterns[a], patterns[j], patterns[k], patterns[last], value)
            for (a, j, k, last), value in zip(
                places[:, order].T.tolist(), values[order].tolist(), strict=True
            )
        ]

    def predictor(self) -> DensePredictor:
        return DensePredictor(self)

    def predict(self, grams: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """Outputs (m, d) for Gram matrices (m, d, d) and last tokens (m, d)."""
        active = self.active_layer.active
        return self.active_layer.outputs(PairRows(active, active.of_grams(grams), queries))

    def step(self, gram: NDArray, query: NDArray) -> NDArray[np.float64]:
        """One output (d,) for a Gram matrix (d, d) and the last token (d,).

        Cost: 2 d u flops for u active pairs and each coordinate that the last token holds.
        """
        return self.active_layer.step(gram, query)

    def right(self, traces: Iterable[Trace]) -> list[NDArray[np.bool_]]:
        """For each trace, which of its tokens follow from those before; teacher-forced.

        A history is reproduced when the program runs freely iff all its tokens are right here.
        """
        result: list[NDArray[np.bool_]] = []
        for _, some in blocks(traces, lambda trace: trace.n_rows, BLOCK_ROWS):
            rows = TraceRows.joined([TraceRows.of(trace) for trace in some])
            rounded = self.schema.round(self.predict(rows.grams, rows.queries))
            right = np.all(rounded == rows.targets, axis=1)
            result += np.split(right, np.cumsum([trace.n_rows for trace in some])[:-1])
        return result

    def resize(self, **sizes: int) -> Learned:
        raise InvalidInput(
            "a layer learned coefficient by coefficient knows nothing of other sizes; learn with "
            f"method='rules' to resize (asked for {sizes})."
        )

    def _exact_span(self) -> ExactSpan:
        return self.exact_span

    def _prove_domain(self, domain: Iterable[Trace]) -> ProgramCertificate:
        if self.outcome.name not in ("fitted", "unchecked"):
            raise InvalidInput(
                "a proof needs a layer that gives every token of its traces; this one does not: "
                f"{self.outcome.sentence}"
            )
        return prove_domain(self.traces, domain)

    @property
    def _doubt(self) -> str:
        return self.outcome.sentence if self.outcome.name == "penalised" else ""

    def _n_innovative(self) -> int:
        return self.span.n_innovative

    def _figures(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        return {"ridge": self.ridge, "largest_error": self.largest_error}, ()

    def to_record(self) -> Record:
        """The coefficients, the outcome and the traces; sources of traces are left out."""
        arrays, plain = plain_traces(self.traces)
        active = self.active_layer.active
        arrays |= {
            "matrices": self.active_layer.matrices, "fitted": self.fitted.astype(np.int64),
            "pairs": np.stack([active.first, active.second]).astype(np.int64),
        }  # fmt: skip
        content = {
            "schema": plain_schema(self.schema), "traces": plain, "ridge": self.ridge,
            "outcome": self.outcome.to_dict(), "largest_error": self.largest_error,
        }  # fmt: skip
        return Record(self.kind, arrays, content)

    @classmethod
    def from_record(cls, record: Record) -> LearnedCoefficients:
        """The inverse of ``to_record``; pairs that are not those of the traces are refused."""
        content = record.metadata
        FIELDS(content, "metadata")
        schema = schema_from(content["schema"])
        traces, arrays = traces_from(record.arrays, content["traces"], schema, any_size=False)
        d = schema.n_dims
        checks = {
            "matrices": array((d, d, None)), "fitted": array((None,), dtype="int64"),
            "pairs": array((2, None), dtype="int64"),
        }  # fmt: skip
        entries(checks)(arrays, "arrays")
        first, second = arrays["pairs"]
        u = arrays["matrices"].shape[2]
        active = ActivePairs(d, first, second)
        pairs = len(first) == u and bool(np.all((first >= 0) & (first <= second) & (second < d)))
        pairs = pairs and bool(np.all(np.diff(active.flat) > 0))
        wanted = f"{u} pairs of coordinates below {d}, in increasing order"
        require(pairs, "arrays.pairs", wanted, arrays["pairs"])
        fitted, n_rows = arrays["fitted"], sum(trace.n_rows for trace in traces)
        rows = bool(len(fitted) and fitted[0] >= 0 and fitted[-1] < n_rows)
        rows = rows and bool(np.all(np.diff(fitted) > 0))
        require(rows, "arrays.fitted", f"increasing numbers of rows below {n_rows}", fitted)
        outcome = COEFFICIENTS_OUTCOMES.from_dict(content["outcome"])
        whole = len(fitted) == n_rows or outcome.name == "repaired"
        require(whole, "arrays.fitted", f"all {n_rows} rows, unless some are not believed", fitted)
        layer = ActiveLayer(active, arrays["matrices"])
        return cls(schema, traces, outcome, layer, content["ridge"], content["largest_error"],
                   fitted)  # fmt: skip


class DensePredictor(History):
    """Predicts tokens by a layer with any coefficients: each costs d^2, and one ``step``."""

    def __init__(self, program: LearnedCoefficients) -> None:
        self.schema, self._layer = program.schema, program.active_layer

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        return self._layer.step(self.gram, self.last)

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        rounded = self.schema.round(self.output())
        self.append(rounded)
        return self.schema.decode(rounded)
