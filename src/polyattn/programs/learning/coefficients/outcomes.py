"""The outcomes of learning by coefficients, in words that claim no more than was checked."""

from __future__ import annotations

from typing import Literal

from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.programs.learning.coefficients.coefficient_span import CoefficientSpan
from polyattn.quoting import counted

CoefficientsName = Literal["fitted", "unchecked", "repaired", "penalised"]

COEFFICIENTS_OUTCOMES = OutcomeSet[CoefficientsName](
    "LearnedCoefficients",
    {
        "fitted": Meaning(
            True,
            "The traces are reproduced, each in the span of the others; what else is determined, "
            "the certificate says.",
        ),
        "unchecked": Meaning(
            False, "The same, but where no other trace says so any labels would have been fitted."
        ),
        "repaired": Meaning(
            False, "Labels contradict each other; those that the others confirm are reproduced."
        ),
        "penalised": Meaning(
            False, "Labels contradict each other, or a penalty was asked for: met only roughly."
        ),
    },
)

# Fewer traces may lie in the span of each other by accident, such as two that are equal.  Chosen on
# 2000 sets of small programs: fresh traces were wrong by 0.2 % from 20 traces on, by 10 % at 12.
FEWEST_TRACES = 20


def exact_outcome(
    span: CoefficientSpan, miss: float, n_given: int | None = None, repaired: bool = False
) -> Outcome[CoefficientsName]:
    """The words for rows of a span that are fitted exactly.

    Only where every trace lies in the span of the others have these confirmed all labels: a wrong
    one that stands alone is fitted like a right one.

    n_given : how many labels there were, if they contradict each other; else None
    repaired : whether some of them are not believed, or are read as other tokens
    """
    n_rows, n_traces, rank, note = span.n_rows, span.n_traces, span.rank, ""
    if n_given is not None:
        note = f"Labels contradict each other; {n_rows} of {n_given} are believed. "
    sentence = (
        f"{note}All {n_rows} rows of {n_traces} traces are fitted exactly (rank {rank}, largest "
        f"error {miss:.1e})."
    )
    if repaired:
        return COEFFICIENTS_OUTCOMES(
            "repaired",
            sentence,
            "It stands or falls with the labels that are believed; test it on traces you trust.",
        )
    if n_rows == rank:
        return COEFFICIENTS_OUTCOMES(
            "unchecked",
            f"{sentence} They are independent: any labels would have been fitted.",
            "Give more traces, until some rows are determined by others.",
        )
    if span.n_innovative or n_traces < FEWEST_TRACES:
        alone = (
            f"Outside the span of the others, {counted(span.n_innovative, 'trace')} would have "
            "been fitted with any labels."
            if span.n_innovative
            else f"Fewer than {FEWEST_TRACES} traces say little about others."
        )
        return COEFFICIENTS_OUTCOMES(
            "unchecked",
            f"{sentence} {alone}",
            "Give more traces, until none leaves the span of the others; or certify what these "
            "determine, where all labels are right.",
        )
    return COEFFICIENTS_OUTCOMES(
        "fitted",
        sentence,
        "What it does in the span of these rows is determined by them; the certificate says "
        "how likely other traces are to leave it, and run(..., abstain=True) stops there.",
    )


def penalised_outcome(
    n_rows: int, penalty: float, agreement: float | None
) -> Outcome[CoefficientsName]:
    """The words for a penalty: one that was asked for, or the one that agrees most with labels."""
    sentence = f"Ridge regression on {n_rows} rows with penalty {penalty:g}."
    if agreement is not None:
        sentence = (
            f"The labels of {n_rows} rows contradict each other, and no consistent part of them "
            f"was found: ridge regression with penalty {penalty:g}, which predicts {agreement:.1%} "
            "of the labels without seeing them. More traces would help."
        )
    return COEFFICIENTS_OUTCOMES(
        "penalised",
        sentence,
        "Nothing outside the training rows is determined; test it on traces you trust.",
    )
