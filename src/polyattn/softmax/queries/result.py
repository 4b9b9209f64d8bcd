"""QueryResult: the layer that was read out of a black box, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isinf
from typing import Any

from polyattn.display import Description, Reported, Result
from polyattn.files.fields import (
    any_object,
    entries,
    integer,
    listed,
    nullable,
    number,
    plain_value,
    text,
)
from polyattn.files.records import Record
from polyattn.model.softmax import SoftmaxAttention
from polyattn.outcome import Outcome
from polyattn.quoting import counted, printable, shortened
from polyattn.softmax.queries.outcomes import QUERY_OUTCOMES, QueryName
from polyattn.softmax.recorder import Phase

INFINITE = "infinite"


def _doubt(value: Any, where: str) -> None:
    """Null, a number, or a word, since JSON has no infinity."""
    if value != INFINITE:
        nullable(number(0))(value, where)


PLAIN = ("n_queries", "validation_error", "deviation", "noise")

FIELDS = entries({
    "layer": nullable(any_object), "n_queries": integer(0), "outcome": QUERY_OUTCOMES.check,
    "validation_error": nullable(number(0)), "deviation": nullable(number(0)),
    "doubt": _doubt, "noise": nullable(number(0)), "error": nullable(text()),
    "phases": listed(entries({
        "name": text(1000), "sentence": text(), "figures": any_object, "seconds": number(0),
    })),
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class QueryResult(Result, Reported):
    """What ``learn_from_queries`` returns.

    Attributes
    ----------
    layer : SoftmaxAttention or None
        The layer, or the best guess so far; None before one-token sequences were answered.
    n_queries : int
        Sequences that the oracle answered, those of the held-out check included.
    outcome : Outcome
        What happened, in words.  Its name is "recovered" only after the held-out check.
    validation_error : float or None
        ||Y - F(X)|| / ||Y|| on held-out sequences; None when the run ended before them.
    deviation : float or None
        The largest deviation on held-out sequences, relative to the effect of attention: the part
        of the outputs that a layer without attention would also have does not flatter.
    doubt : float or None
        Relative error of attn and value that residuals suggest, of the worst head; infinite where
        held-out sequences deviate by more than it explains.
    noise : float or None
        Standard deviation of the errors of outputs, rounding or noise, in the units of the
        outputs; None before it was measured.
    phases : tuple of Phase
        What each phase measured, in order.
    error : exception, str or None
        The exception of the oracle, or the interrupt, that ended the run.  A file keeps its text:
        of a loaded result ``error`` is a str, or None where there was none.
    """

    layer: SoftmaxAttention | None
    n_queries: int
    outcome: Outcome[QueryName]
    validation_error: float | None = None
    deviation: float | None = None
    doubt: float | None = None
    noise: float | None = None
    phases: tuple[Phase, ...] = field(default=(), repr=False)
    error: BaseException | str | None = field(default=None, repr=False)

    @property
    def recovered(self) -> bool:
        """Whether the layer passed the held-out check, with as many heads as were required."""
        return self.outcome.name == "recovered"

    @property
    def n_heads(self) -> int:
        """Heads of the layer; 0 without one."""
        return 0 if self.layer is None else self.layer.n_heads

    @property
    def error_text(self) -> str | None:
        """What ended the run, as text: "RuntimeError: the line is dead"."""
        if isinstance(self.error, BaseException):
            words = f"{type(self.error).__name__}: {self.error}".removesuffix(": ")
            return shortened(printable(words))
        return self.error

    def describe(self) -> Description:
        """The outcome and the figures."""
        about = f"no layer, {self.n_queries:,} queries"
        if self.layer is not None:
            sizes = f"{self.layer.n_dims} coordinates to {self.layer.n_outputs} outputs"
            about = f"{counted(self.n_heads, 'head')}, {sizes}, {self.n_queries:,} queries"
        known = self.doubt is not None and not isinf(self.doubt)
        facts: dict[str, Any] = {
            "n_heads": self.n_heads,
            "n_queries": self.n_queries,
            "validation_error": self.validation_error,
            "deviation": self.deviation,
            "doubt": self.doubt if known else None,
            "noise": self.noise,
        }
        if self.error is not None:
            facts["error"] = self.error_text
        doubts = () if self.outcome.ok else (self.outcome.next_step,)
        title = "A layer learned from queries"
        return Description(title, about, self.outcome.sentence, doubts, facts)

    def __repr__(self) -> str:
        return f"QueryResult({self.layer!r}, {self.outcome.name}, {self.n_queries} queries)"

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        layer = None if self.layer is None else self.layer.to_record()
        metadata: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        metadata["layer"] = None if layer is None else layer.metadata
        metadata["doubt"] = INFINITE if self.doubt == inf else self.doubt
        metadata["outcome"] = self.outcome.to_dict()
        metadata["error"] = self.error_text
        metadata["phases"] = [phase.to_dict() for phase in self.phases]
        return Record("query_result", {} if layer is None else layer.arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> QueryResult:
        """The inverse of ``to_record``; ``error`` comes back as text."""
        held = record.metadata
        FIELDS(held, "metadata")
        for at, phase in enumerate(held["phases"]):
            plain_value(phase["figures"], f"metadata.phases[{at}].figures")
        layer = None
        if held["layer"] is None:
            entries({})(record.arrays, "arrays")
        else:
            parts = Record(SoftmaxAttention.kind, record.arrays, held["layer"])
            layer = SoftmaxAttention.from_record(parts)
        fields: dict[str, Any] = {name: held[name] for name in PLAIN}
        return cls(
            layer=layer,
            outcome=QUERY_OUTCOMES.from_dict(held["outcome"]),
            doubt=inf if held["doubt"] == INFINITE else held["doubt"],
            phases=tuple(Phase(**phase) for phase in held["phases"]),
            error=held["error"],
            **fields,
        )
