"""Labels of a classifier, held against always naming the most frequent class."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from polyattn.fitting.outcomes import FIT_OUTCOMES
from polyattn.fitting.result import FitResult
from polyattn.quoting import shown
from polyattn.stats import Moments, TriangularFactor

# Shares that differ by less are the same: they are sums of as many roundings as there are labels.
SAME_SHARE = 1e-12


def held_against_majority(
    result: FitResult,
    truth: NDArray,
    guess: NDArray,
    weights: NDArray | None,
    classes: NDArray,
) -> FitResult:
    """The result, which knows the accuracy of its labels and the share of the largest class.

    truth, guess : positions among the classes (n_rows,), with weights (n_rows,)
    A classifier whose labels are no better than that one class is not ok.
    """
    counts = np.ones(len(truth)) if weights is None else weights
    shares = np.bincount(truth.astype(np.intp), counts, len(classes)) / counts.sum()
    largest, accuracy = float(shares.max()), float(counts[truth == guess].sum() / counts.sum())
    outcome = result.outcome
    if accuracy <= largest + SAME_SHARE:
        label = shown(classes[int(shares.argmax())].item())
        words = (
            f" But of the training data it labels a share of {accuracy:.3g} rightly, and saying "
            f"{label} of all would be right for {largest:.3g}."
        )
        advice = "The tokens, or this form, tell the classes apart no better: choose others"
        advice += ", or a smaller ridge." if result.ridge > 0 else "."
        if result.loss == "logistic":
            advice += " Probabilities may still say more than these labels."
        steps = f"{advice} {outcome.next_step}".strip()
        sentence = outcome.sentence + words
        outcome = FIT_OUTCOMES(outcome.name, sentence, steps, doubtful=True)
    # A fit of token ids is made in its own way, and cannot be replaced field by field.
    judged = copy(result)
    vars(judged).update(outcome=outcome, accuracy=accuracy, majority_share=largest)
    return judged


def majority_of_sums(sums: Moments | TriangularFactor | None) -> float | None:
    """The share of the largest class from sums of indicators; None where these lack the means.

    One column per class, or of two classes a single column of -1 and 1: means are shares.
    """
    spread = None if sums is None else sums.target_spread
    if spread is None:
        return None
    means = spread.means
    return float((1.0 + abs(means[0])) / 2.0 if len(means) == 1 else means.max())
