"""The outcomes of program certificates: what is known, how it is known, and what would decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from polyattn.outcome import Meaning, Outcome, OutcomeSet

if TYPE_CHECKING:
    from polyattn.programs.certificates.certificate import ProgramCertificate

Verdict = Literal["saturated", "not_saturated", "undecided"]

# Ways to a verdict, from guessing least to knowing all.
Method = Literal["training", "fresh", "exhaustive"]

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


def outcome_of(found: ProgramCertificate) -> Outcome[Verdict]:
    """What the figures of a certificate say, in words."""
    trained = f"{found.n_traces} traces with {found.n_rows} rows span {found.rank} dimensions"
    if found.method == "training":
        sentence = (
            f"{trained}. A fresh trace leaves their span with probability at most "
            f"{found.outside_mass:.2g} in expectation"
        )
        if found.n_innovative is not None:
            share = found.n_innovative / found.n_traces
            sentence += (
                f"; left out one at a time, {found.n_innovative} of {found.n_traces} traces leave "
                f"the span of the others ({share:.2g})"
            )
        sentence += "."
        next_step = "Fresh traces or all traces of the domain would decide."
    elif found.verdict == "not_saturated":
        whose = "the fresh ones" if found.method == "fresh" else "the domain"
        sentence = f"{trained}, and {found.leaving} of {whose} leaves it."
        next_step = "There predictions are guesses; more training traces are needed."
    elif found.n_undecided:
        rows = f"{found.n_undecided} rows of the domain"
        if found.method == "fresh":
            rows = f"of {found.n_checked_traces} fresh traces {found.n_undecided} rows"
        sentence = f"{trained}; {rows} are too near to its border for floating point."
        exact = "exact arithmetic decides: certify(..., exact=True)."
        next_step = f"Of programs learned by coefficients {exact}"
    else:
        sentence, next_step = _all_inside(found, trained)
    return PROGRAM_CERTIFICATE_OUTCOMES(found.verdict, sentence, next_step)


def _all_inside(found: ProgramCertificate, trained: str) -> tuple[str, str]:
    """The words for rows that are inside, as far as they were looked at."""
    checked = f"({found.n_checked_traces} traces, {found.n_checked_rows} rows)"
    if found.method == "fresh":
        start = f"{trained}, and all fresh ones {checked} lie in it ({found.arithmetic})"
        share = f"at most {found.outside_mass:.2%} of traces do not"
        bound = f"with confidence {found.confidence:.0%} {share}"
        if found.verdict == "saturated":
            return f"{start}: {bound}.", ""
        return f"{start}, but they are few: {bound}.", "More fresh traces would decide."
    if found.verdict == "undecided":
        text = f"{trained}; whether all of the domain lies in it was not found out in time."
        return text, "Fresh traces would bound how often others leave it: certify(fresh=...)."
    how = "proved in integers" if found.proved else f"computed {found.arithmetic}, not proved"
    text = (
        f"{trained}, and all of the domain {checked} lie in it, {how}: every layer that is right "
        "on the training rows agrees with every other on the whole domain."
    )
    return text, ""
