"""LearnedRules: a program of a few terms that hold at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np

from polyattn.display import plain
from polyattn.files.fields import any_object, entries, integer, listed, require, text
from polyattn.files.records import Record
from polyattn.model import LinearAttention
from polyattn.programs.compile import Compiled
from polyattn.programs.language.attributes import Pattern
from polyattn.programs.language.schema import Atom, Schema
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.rules.facts import SchemaLayout
from polyattn.programs.learning.rules.outcomes import Mismatch, RuleFindings, outcome_of
from polyattn.programs.learning.rules.relation_span import RelationSpan
from polyattn.programs.learning.training_traces import plain_traces, traces_from
from polyattn.programs.plain import plain_schema, plain_term, require_size, schema_from, terms_from
from polyattn.programs.running.engine import BatchEngine, Engine
from polyattn.programs.traces import Trace, TraceRows

# Outputs that differ less from a token are that token: weights are halves, or fitted to 1e-9.
NEGLIGIBLE = 1e-6

# What is in the schemas and terms is checked where they are read.
FIELDS = entries({
    "schema": any_object, "terms": listed(any_object), "traces": any_object,
    "n_candidates": integer(0), "max_offset": integer(0, 1 << 18),
    "findings": entries({
        "n_traces": integer(1), "n_folds": integer(0), "n_agreeing": integer(0),
        "n_tokens": integer(1), "gaps": listed(text()), "rivals": listed(text()),
        "mismatches": listed(entries({
            "trace": integer(0), "token": integer(0), "attribute": text(1000),
        })),
    }),
})  # fmt: skip


class LearnedRules(Learned):
    """A program of terms, at the sizes of ``schema``.

    findings : what was checked; ``outcome`` says it in a sentence
    n_candidates : how many rules the data could tell apart
    max_offset : the most steps that a rule may go on a line or circle
    """

    kind = "learned_rules"
    method = "rules"
    about = "rules that hold for all states, letters and places"

    def __init__(
        self,
        schema: Schema,
        terms: Sequence[Term],
        traces: Sequence[Trace],
        findings: RuleFindings,
        n_candidates: int,
        max_offset: int,
    ) -> None:
        super().__init__(schema, outcome_of(findings), traces)
        self.findings, self.n_candidates, self.max_offset = findings, n_candidates, max_offset
        self._terms = tuple(terms)
        # Programs of other sizes share its span, which takes long to compute.
        self._origin = self

    @property
    def terms(self) -> list[Term]:
        return list(self._terms)

    @cached_property
    def compiled(self) -> Compiled:
        """The terms as the compiler takes them."""
        return Compiled(self.schema, self._terms, "learned program")

    @property
    def layer(self) -> LinearAttention:
        return self.compiled.layer

    @cached_property
    def span(self) -> RelationSpan:
        """Where every layer of rules that fits the traces agrees; computed on first use."""
        if self._origin is not self:
            return self._origin.span.at(self.schema)
        return RelationSpan(self.schema, self.traces, max_offset=self.max_offset)

    def predictor(self) -> Engine:
        return self.compiled.predictor()

    def resize(self, **sizes: int) -> LearnedRules:
        schema = self.schema.resize(**sizes)
        resized = LearnedRules(
            schema, terms_at(self._terms, schema), self.traces, self.findings, self.n_candidates,
            self.max_offset,
        )  # fmt: skip
        resized._origin = self._origin
        return resized

    @cached_property
    def _doubt(self) -> str:
        """Which token of which trace is not given, as a sentence; empty if all are.

        A row in the span of training rows has the same combination of their outputs, so these
        must be right before rounding.
        """
        engines: dict[tuple[Atom, ...], BatchEngine] = {}
        for number, trace in enumerate(self.traces):
            schema = trace.schema
            if schema.atoms not in engines:
                heads = Compiled(schema, terms_at(self._terms, schema)).heads
                engines[schema.atoms] = BatchEngine(schema, heads)
            wanted = trace.completion if trace.labels is None else schema.round(trace.labels)
            engine, rows = engines[schema.atoms], TraceRows.of(trace)
            outputs = engine.outputs(rows.grams[:, engine.match, engine.read], rows.queries)
            wrong = np.any(np.abs(outputs - wanted) > NEGLIGIBLE, axis=1)
            if wrong.any():
                return (
                    f"token {np.flatnonzero(wrong)[0]} of training trace {number} is not what was "
                    "learned, so that the traces do not determine what comes here."
                )
        return ""

    def _figures(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        facts = {"n_terms": len(self._terms), "n_candidates": self.n_candidates}
        return facts, tuple(map(str, self._terms))

    def to_record(self) -> Record:
        """The terms, the findings and the traces; sources of traces are left out."""
        require_size(self.schema, self._terms)
        arrays, traces = plain_traces(self.traces)
        content = {
            "schema": plain_schema(self.schema),
            "terms": [plain_term(term) for term in self._terms],
            "traces": traces,
            "findings": plain(asdict(self.findings)),
            "n_candidates": self.n_candidates,
            "max_offset": self.max_offset,
        }
        return Record(self.kind, arrays, content)

    @classmethod
    def from_record(cls, record: Record) -> LearnedRules:
        """The inverse of ``to_record``."""
        content = record.metadata
        FIELDS(content, "metadata")
        schema = schema_from(content["schema"])
        terms = terms_from(content["terms"], schema)
        traces, others = traces_from(record.arrays, content["traces"], schema, any_size=True)
        entries({})(others, "arrays")
        given = content["findings"]
        mismatches = tuple(Mismatch(**each) for each in given["mismatches"])
        texts = {name: tuple(given[name]) for name in ("gaps", "rivals")}
        findings = RuleFindings(**(given | texts | {"mismatches": mismatches}))
        SchemaLayout((schema, *(trace.schema for trace in traces)))  # refuses other attributes
        # Findings that are not about these traces are refused.
        sizes = {"n_traces": len(traces), "n_tokens": sum(trace.n_rows for trace in traces)}
        for name, size in sizes.items():
            where = f"metadata.findings.{name}"
            require(given[name] == size, where, f"that of the traces, {size}", given[name])
        folds = findings.n_agreeing <= findings.n_folds <= len(traces)
        require(folds, "metadata.findings.n_folds", f"at most {len(traces)}", findings.n_folds)
        return cls(schema, terms, traces, findings, content["n_candidates"], content["max_offset"])


def terms_at(terms: Sequence[Term], schema: Schema) -> tuple[Term, ...]:
    """The same terms for a schema of other sizes: variables range over all its values."""

    def sized(pattern: Pattern) -> Pattern:
        attribute = getattr(schema, pattern.attribute.name)
        return Pattern(attribute, pattern.arguments, pattern.whole)

    found = []
    for term in terms:
        write, read, match, query = map(sized, term.patterns)
        found.append(replace(term, write=write, read=read, match=match, query=query))
    return tuple(found)
