"""QueryResult: the layer that was read out of a black box, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result, head_matrices
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.fields import (
    any_object,
    entries,
    flag,
    integer,
    nullable,
    number,
    one_of,
    text,
)  # fmt: skip
from polyattn.files.records import Record
from polyattn.model.layer import shaped_outputs
from polyattn.model.softmax import SoftmaxAttention
from polyattn.outcome import Outcome
from polyattn.quoting import counted, printable, shortened
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.sizes_in_words import sizes_in_words
from polyattn.softmax.queries.normalised import NORMALISATIONS, Normalisation
from polyattn.softmax.queries.outcomes import QUERY_OUTCOMES, QueryName
from polyattn.softmax.recorder import Phase, check_phases

INFINITE = "infinite"


def _doubt(value: Any, where: str) -> None:
    """Null, a number, or a word, since JSON has no infinity."""
    if value != INFINITE:
        nullable(number(0))(value, where)


def _check_errors(errors: dict[str, NDArray], layer: SoftmaxAttention | None) -> None:
    """Refuse the standard errors of a file unless they are those of its layer."""
    for name, array in errors.items():
        of = None if layer is None else getattr(layer, name.removesuffix("_error"))
        if of is None or len(errors) < len(ERRORS) or array.shape != of.shape:
            raise FileFormatError(f"{name} has shape {array.shape}, which the heads do not have.")
        if array.dtype != np.float64 or np.any(np.isnan(array)) or np.any(array < 0):
            raise FileFormatError(f"{name} must hold standard errors in float64, none below zero.")


LABELS = {
    "deviation": "largest deviation held out",
    "doubt": "relative error of heads, likely",
    "noise": "errors of the outputs",
    "validation_error": "relative error held out",
}

ERRORS = ("attn_error", "value_error")

PLAIN = ("n_queries", "validation_error", "deviation", "noise")

# What lies around the layer; files of earlier versions have none of these.
AROUND = ("residual", "normalisation", "eps")

FIELDS = entries({
    "layer": nullable(any_object), "n_queries": integer(0), "outcome": QUERY_OUTCOMES.check,
    "validation_error": nullable(number(0)), "deviation": nullable(number(0)), "doubt": _doubt,
    "noise": nullable(number(0)), "error": nullable(text()), "phases": check_phases,
}, {
    "residual": flag, "normalisation": nullable(one_of(NORMALISATIONS)),
    "eps": nullable(number(0)),
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class QueryResult(Reported, Result):
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
        of the outputs that a layer without attention would also have does not count.
    doubt : float or None
        The norm of attn_error or value_error of the worst head, relative to that of the head; with
        rotary positions what residuals suggest of it; infinite where held-out sequences deviate by
        more than it explains.
    noise : float or None
        Standard deviation of the errors of outputs, rounding or noise, in the units of the
        outputs; None before it was measured.
    attn_error, value_error : array like attn and value of the layer, or None
        One standard error of every entry, from the noise of the answers, scaled up where held-out
        sequences deviate by more than these explain; zero for what conventions fix; infinite
        where nothing is known; None without a complete layer, and with rotary positions.
    phases : tuple of Phase
        What each phase measured, in order.
    residual : bool
        Whether the oracle adds its input: F(X) = X + layer(...).
    normalisation : "layer_norm", "rms_norm" or None
        What happens to tokens before the layer, which then acts on normalised ones: z = x /
        sqrt(mean(x^2) + eps), of layer_norm with x less its mean coordinate.  A scale and a shift
        that follow are part of the layer.
    eps : float or None
        The number in the normalisation, as it was measured.
    error : exception, str or None
        The exception of the oracle, or the interrupt, that ended the run.  A file keeps its text:
        of a loaded result ``error`` is a str, or None where there was none.
    """

    kind: ClassVar[str] = "query_result"

    layer: SoftmaxAttention | None
    n_queries: int
    outcome: Outcome[QueryName]
    validation_error: float | None = None
    deviation: float | None = None
    doubt: float | None = None
    noise: float | None = None
    residual: bool = False
    normalisation: str | None = None
    eps: float | None = None
    attn_error: NDArray[np.float64] | None = field(default=None, repr=False)
    value_error: NDArray[np.float64] | None = field(default=None, repr=False)
    phases: tuple[Phase, ...] = field(default=(), repr=False)
    error: BaseException | str | None = field(default=None, repr=False)

    @property
    def recovered(self) -> bool:
        """Whether the layer passed the held-out check, with as many heads as were required.

        It is then the one of the oracle within its error bars, which are small for the outcome
        "recovered" (at most 1.5e-4 of every head) and stated for "recovered_to_precision".
        """
        return self.outcome.ok

    @property
    def n_heads(self) -> int:
        """Heads of the layer; 0 without one."""
        return 0 if self.layer is None else self.layer.n_heads

    @property
    def mode(self) -> str:
        """Which positions ``predict`` predicts: those of the layer."""
        return "last" if self.layer is None else self.layer.mode

    def predict(self, X: Sequences) -> Any:
        """What the oracle answers to sequences X, the whole function: [X +] layer([norm](X)).

        Shapes are those of a call of the layer; in mode ``last`` it is the last token.
        """
        layer = self.layer
        if layer is None:
            raise InvalidInput("there is no layer that predicts: the outcome says why.")
        return shaped_outputs(X, layer.n_dims, layer.mode, partial(self._rows, layer))

    def _rows(self, layer: SoftmaxAttention, batch: SequenceBatch) -> NDArray[np.float64]:
        tokens = np.asarray(batch.values, dtype=np.float64)
        seen = tokens
        if self.normalisation is not None:
            seen = Normalisation(self.normalisation, self.eps or 0.0, layer.n_dims)(tokens)
        outputs = layer(SequenceBatch(seen, batch.offsets))
        outputs = outputs if layer.mode == "last" else np.concatenate(outputs)
        if self.residual:
            outputs = outputs + (tokens[batch.offsets[1:] - 1] if layer.mode == "last" else tokens)
        return np.asarray(outputs)

    @property
    def error_text(self) -> str | None:
        """What ended the run, as text: "RuntimeError: the line is dead"."""
        if isinstance(self.error, BaseException):
            words = f"{type(self.error).__name__}: {self.error}".removesuffix(": ")
            return shortened(printable(words))
        return self.error

    def _around(self) -> str:
        """What lies around the layer, in words."""
        norm = self.normalisation
        words = "" if norm is None else f", of tokens normalised by {norm}"
        return words + (", added to its input" if self.residual else "")

    def describe(self) -> Description:
        """What was found, by how many queries, and how far it can be trusted."""
        layer, about = self.layer, "No layer"
        if layer is not None:
            sizes = sizes_in_words(layer.n_dims, layer.n_outputs, layer.mode, layer.bias)
            about = f"{counted(layer.n_heads, 'head')}, {sizes}{self._around()}"
        names = ("recovered", "n_heads", *PLAIN, "doubt", *(AROUND if self._around() else ()))
        facts = {name: getattr(self, name) for name in names}
        if self.error is not None:
            facts["error"] = self.error_text
        about = f"{about}, from {self.n_queries:,} queries"
        return self._described(
            "A softmax attention layer learned from queries", about, facts, labels=LABELS,
            matrices={} if layer is None else head_matrices(layer.attn, layer.value),
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The heads, if there are any, and their standard errors."""
        errors = {name: getattr(self, name) for name in ERRORS}
        known = {name: array for name, array in errors.items() if array is not None}
        return known | ({} if self.layer is None else self.layer.arrays())

    def to_full_dict(self) -> dict[str, Any]:
        """``to_dict`` with arrays as lists, and phases."""
        return super().to_full_dict() | {"phases": [phase.to_dict() for phase in self.phases]}

    def __repr__(self) -> str:
        return f"QueryResult({self.layer!r}, {self.outcome.name}, {self.n_queries} queries)"

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        metadata = {name: getattr(self, name) for name in PLAIN + AROUND} | {
            "layer": None if self.layer is None else self.layer.to_record().metadata,
            "doubt": INFINITE if self.doubt == inf else self.doubt,
            "outcome": self.outcome.to_dict(),
            "error": self.error_text,
            "phases": [phase.to_dict() for phase in self.phases],
        }
        return Record(self.kind, self.arrays(), metadata)

    @classmethod
    def from_record(cls, record: Record) -> QueryResult:
        """The inverse of ``to_record``; ``error`` comes back as text."""
        held = record.metadata
        FIELDS(held, "metadata")
        layer, arrays = None, dict(record.arrays)
        errors = {name: arrays.pop(name) for name in ERRORS if name in arrays}
        if held["layer"] is None:
            entries({})(arrays, "arrays")
        else:
            parts = Record(SoftmaxAttention.kind, arrays, held["layer"])
            layer = SoftmaxAttention.from_record(parts)
        _check_errors(errors, layer)
        return cls(
            layer=layer,
            attn_error=errors.get("attn_error"),
            value_error=errors.get("value_error"),
            outcome=QUERY_OUTCOMES.from_dict(held["outcome"]),
            doubt=inf if held["doubt"] == INFINITE else held["doubt"],
            phases=tuple(Phase(**phase) for phase in held["phases"]),
            error=held["error"],
            **{name: held[name] for name in PLAIN + AROUND if name in held},
        )
