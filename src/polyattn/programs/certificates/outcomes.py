"""The outcomes of program certificates: what is known, how it is known, and what would decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from polyattn.outcome import Meaning, Outcome, OutcomeSet

if TYPE_CHECKING:
    from polyattn.programs.certificates.certificate import ProgramCertificate

Verdict = Literal["saturated", "not_saturated", "undecided"]
SATURATED: Verdict = "saturated"
NOT_SATURATED: Verdict = "not_saturated"
UNDECIDED: Verdict = "undecided"

# Ways to a verdict, from guessing least to knowing all.
TRAINING, FRESH, EXHAUSTIVE = "training", "fresh", "exhaustive"

PROGRAM_CERTIFICATE_OUTCOMES = OutcomeSet[Verdict](
    "ProgramCertificate",
    {
        "saturated": Meaning(
            True,
            "Every row that was looked at lies in the span of the training rows: there all layers "
            "that are right on the training rows agree.",
        ),
        "not_saturated": Meaning(
            False, "A row lies outside the span: there the traces do not determine the program."
        ),
        "undecided": Meaning(
            False, "Too little was looked at, or rows lie too near to the border of the span."
        ),
    },
)

_GUESSES = "There predictions are guesses; more training traces are needed."
_EXACT = "Of programs learned by coefficients exact arithmetic decides: certify(..., exact=True)."


def outcome_of(found: ProgramCertificate) -> Outcome[Verdict]:
    """What the figures of a certificate say, in words."""
    if found.method == TRAINING:
        words = _training(found)
    elif found.verdict == NOT_SATURATED:
        whose = "the fresh ones" if found.method == FRESH else "the domain"
        words = f"{_trained(found)}, and {found.leaving} of {whose} leaves it.", _GUESSES
    elif found.n_undecided:
        rows = f"{found.n_undecided} rows of the domain"
        if found.method == FRESH:
            rows = f"of {found.n_checked_traces} fresh traces {found.n_undecided} rows"
        near = "are too near to its border for floating point."
        words = f"{_trained(found)}; {rows} {near}", _EXACT
    else:
        words = _fresh(found) if found.method == FRESH else _exhaustive(found)
    return PROGRAM_CERTIFICATE_OUTCOMES(found.verdict, *words)


def _training(found: ProgramCertificate) -> tuple[str, str]:
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
    return f"{text}.", "Fresh traces or all traces of the domain would decide."


def _fresh(found: ProgramCertificate) -> tuple[str, str]:
    start = (
        f"{_trained(found)}, and {_checked(found, 'all fresh ones')} lie in it ({found.arithmetic})"
    )
    bound = (
        f"with confidence {found.confidence:.0%} at most {found.outside_mass:.2%} of traces do not"
    )
    if found.verdict == SATURATED:
        return f"{start}: {bound}.", ""
    return f"{start}, but they are few: {bound}.", "More fresh traces would decide."


def _exhaustive(found: ProgramCertificate) -> tuple[str, str]:
    if found.verdict == UNDECIDED:
        text = f"{_trained(found)}; whether all of the domain lies in it was not found out in time."
        return text, "Fresh traces would bound how often others leave it: certify(fresh=...)."
    how = "proved in integers" if found.proved else f"computed {found.arithmetic}, not proved"
    text = (
        f"{_trained(found)}, and {_checked(found, 'all of the domain')} lie in it, {how}: every "
        "layer that is right on the training rows agrees with every other on the whole domain."
    )
    return text, ""


def _trained(found: ProgramCertificate) -> str:
    return f"{found.n_traces} traces with {found.n_rows} rows span {found.rank} dimensions"


def _checked(found: ProgramCertificate, kind: str) -> str:
    return f"{kind} ({found.n_checked_traces} traces, {found.n_checked_rows} rows)"
