"""ProgramCertificate: whether traces determine a program on a domain, as figures and sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyattn.display import Carded

SATURATED, NOT_SATURATED, UNDECIDED = "saturated", "not_saturated", "undecided"

# Ways to a verdict, from guessing least to knowing all.
TRAINING, FRESH, EXHAUSTIVE = "training", "fresh", "exhaustive"


@dataclass(frozen=True)
class Leaving:
    """A row found outside the span: of which trace, and before which of its tokens."""

    trace: int
    row: int

    def __str__(self) -> str:
        return f"token {self.row} of trace {self.trace}"


@dataclass(frozen=True)
class ProgramCertificate(Carded):
    """Whether every row of the domain lies in the span of the training rows.

    Inside the span all layers (of the learned kind) that are right on the training rows agree.

    Attributes
    ----------
    verdict : "saturated" | "not_saturated" | "undecided"
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

    verdict: str
    method: str
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
    def sentence(self) -> str:
        """The verdict for a person to read: what is known, how, and what to do."""
        return _SENTENCES[self.method](self)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain data."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["leaving"] = self.leaving and {"trace": self.leaving.trace, "row": self.leaving.row}
        return {**found, "sentence": self.sentence}

    def __str__(self) -> str:
        return f"{self.verdict}: {self.sentence}"


def _training(found: ProgramCertificate) -> str:
    text = (
        f"{_trained(found)}. A fresh trace leaves their span with probability at most "
        f"{found.outside_mass:.2g} in expectation"
    )
    if found.n_innovative is not None:
        share = found.n_innovative / found.n_traces
        text += (
            f"; left out one at a time, {found.n_innovative} of {found.n_traces} traces leave the "
            f"span of the others ({share:.2g})"
        )
    return text + ". Fresh traces or all traces of the domain would decide."


def _fresh(found: ProgramCertificate) -> str:
    if found.verdict == NOT_SATURATED:
        return f"{_trained(found)}, and {found.leaving} of the fresh ones leaves it. {_MORE}"
    start = (
        f"{_trained(found)}, and {_checked(found, 'all fresh ones')} lie in it ({found.arithmetic})"
    )
    if found.n_undecided:
        return (
            f"{_trained(found)}; of {found.n_checked_traces} fresh traces {found.n_undecided} rows "
            "are too near to its border for floating point. Of untied programs exact arithmetic "
            "decides: certify(..., exact=True)."
        )
    bound = (
        f"with confidence {found.confidence:.0%} at most {found.outside_mass:.2%} of traces do not"
    )
    if found.verdict == SATURATED:
        return f"{start}: {bound}."
    return f"{start}, but they are few: {bound}. More fresh traces would decide."


def _exhaustive(found: ProgramCertificate) -> str:
    if found.verdict == NOT_SATURATED:
        return f"{_trained(found)}, and {found.leaving} of the domain leaves it. {_MORE}"
    if found.n_undecided:
        return (
            f"{_trained(found)}; {found.n_undecided} rows of the domain are too near to its "
            "border for floating point. Of untied programs exact arithmetic decides: "
            "certify(..., exact=True)."
        )
    how = "proved in integers" if found.proved else f"computed {found.arithmetic}, not proved"
    return (
        f"{_trained(found)}, and {_checked(found, 'all of the domain')} lie in it, {how}: every "
        "layer that is right on the training rows agrees with every other on the whole domain."
    )


def _trained(found: ProgramCertificate) -> str:
    return f"{found.n_traces} traces with {found.n_rows} rows span {found.rank} dimensions"


def _checked(found: ProgramCertificate, kind: str) -> str:
    return f"{kind} ({found.n_checked_traces} traces, {found.n_checked_rows} rows)"


_MORE = "There predictions are guesses; more training traces are needed."

_SENTENCES = {TRAINING: _training, FRESH: _fresh, EXHAUSTIVE: _exhaustive}
