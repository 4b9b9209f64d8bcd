"""ProgramCertificate: whether traces determine a program on a domain, as figures and sentence."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, get_args

from polyattn.display import Description, Result
from polyattn.files.fields import entries, flag, integer, nullable, number, one_of, require, text
from polyattn.files.records import Record
from polyattn.outcome import Outcome
from polyattn.programs.certificates.outcomes import (
    PROGRAM_CERTIFICATE_OUTCOMES,
    Method,
    Verdict,
    outcome_of,
)
from polyattn.quoting import counted

FIELDS = entries({
    "verdict": one_of(PROGRAM_CERTIFICATE_OUTCOMES.names),
    "method": one_of(get_args(Method)), "arithmetic": text(100), "proved": flag,
    "rank": integer(0), "n_rows": integer(0), "n_traces": integer(1),
    "n_checked_traces": integer(0), "n_checked_rows": integer(0),
    "outside_mass": nullable(number(0, 1)), "confidence": nullable(number(0, 1)),
    "n_innovative": nullable(integer(0)),
    "leaving": nullable(entries({"trace": integer(0), "row": integer(0)})),
    "n_undecided": integer(0),
})  # fmt: skip


@dataclass(frozen=True)
class Leaving:
    """A row found outside the span: of which trace, and before which of its tokens."""

    trace: int
    row: int

    def __str__(self) -> str:
        return f"token {self.row} of trace {self.trace}"


@dataclass(frozen=True)
class ProgramCertificate(Result):
    """Whether every row of the domain lies in the span of the training rows.

    Inside the span all layers (of the learned kind) that are right on the training rows agree.

    Attributes
    ----------
    verdict : "saturated" | "not_saturated" | "undecided"
        The name of the outcome; ``outcome`` says it in words.
    method : "training" | "fresh" | "exhaustive"
        From the training traces alone, from fresh traces, from all traces there are.
    arithmetic : str
        How membership was decided: "floating point", "modulo <prime>" or "integers".
    proved : bool
        Whether the verdict is a theorem: all traces were looked at, in integers.
    rank, n_rows, n_traces : int
        Of the training rows.
    n_checked_traces, n_checked_rows : int
        What was looked at beside them.
    outside_mass : float | None
        Bound or estimate of the probability that a fresh trace leaves the span.
    confidence : float | None
        Of ``outside_mass``; None if it holds in expectation.
    n_innovative : int | None
        How many training traces are not in the span of the others.
    leaving : Leaving | None
        A trace and row found outside; in floating point and modulo a prime the first.
    n_undecided : int
        Rows too near to the span to be called outside, and too far to be called inside.
    """

    kind = "program_certificate"

    verdict: Verdict
    method: Method
    arithmetic: str
    proved: bool
    rank: int
    n_rows: int
    n_traces: int
    n_checked_traces: int = 0
    n_checked_rows: int = 0
    outside_mass: float | None = None
    confidence: float | None = None
    n_innovative: int | None = None
    leaving: Leaving | None = None
    n_undecided: int = 0

    @property
    def outcome(self) -> Outcome[Verdict]:
        """The verdict for a person to read: what is known, how, and what to do."""
        return outcome_of(self)

    def describe(self) -> Description:
        figures = asdict(self) | {"leaving": self.leaving and str(self.leaving)}
        facts = {name: figure for name, figure in figures.items() if figure is not None}
        about = f"{counted(self.n_traces, 'training trace')}, {self.n_rows} tokens to predict"
        return self._described("A certificate of a learned program", about, facts)

    def to_dict(self) -> dict[str, Any]:
        """The outcome and all figures as plain JSON types."""
        outcome = self.outcome
        plain = {"kind": self.kind, "outcome": outcome.to_dict(), **asdict(self)}
        return plain | {"sentence": str(outcome)}

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained HTML page that shows this certificate."""
        import_module("polyattn.report").write_report(self, path)

    def to_record(self) -> Record:
        """The figures as plain metadata; there are no arrays."""
        return Record(self.kind, {}, asdict(self))

    @classmethod
    def from_record(cls, record: Record) -> ProgramCertificate:
        """The inverse of ``to_record``; figures that contradict each other are refused."""
        entries({})(record.arrays, "arrays")
        given = record.metadata
        FIELDS(given, "metadata")
        verdict, method = given["verdict"], given["method"]
        if method == "training":
            require(verdict == "undecided", "metadata.verdict", "undecided by this method", verdict)
        outside = given["leaving"] is not None
        require(outside == (verdict == "not_saturated"), "metadata.leaving",
                "a row exactly if the verdict is not_saturated", given["leaving"])  # fmt: skip
        if verdict == "saturated":
            require(not given["n_undecided"], "metadata.n_undecided", "0", given["n_undecided"])
        decided = not outside and not given["n_undecided"]
        bounded = method == "training" or (method == "fresh" and decided)
        for name in ("outside_mass", "confidence")[: 1 if method == "training" else 2]:
            require(not bounded or given[name] is not None, f"metadata.{name}", "a number", None)
        in_integers = method == "exhaustive" and given["arithmetic"] == "integers"
        theorem = in_integers and verdict != "undecided"
        require(theorem or not given["proved"], "metadata.proved", "false", given["proved"])
        return cls(**(given | {"leaving": given["leaving"] and Leaving(**given["leaving"])}))
