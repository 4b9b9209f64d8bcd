"""Weights in spite of wrong labels: fit, set contradicting rows aside, fit again.

A wrong label pulls all weights of the rules of its row towards zero, so that with a fifth of the
labels wrong a weight of 1 looks like 0.8.  Rows that are right are explained without any rest, so
the rows with a rest are set aside and the weights are fitted to the others, until nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.tied.dictionary import Dictionary
from polyattn.programs.learning.tied.pursuit import Choice

MAX_ROUNDS = 8

# A row contradicts if its rest exceeds this many medians, and this much in any case.
MEDIANS, LEAST = 9.0, 0.1


def settle(choice: Choice, dictionary: Dictionary, own: NDArray[np.bool_], step: float) -> Choice:
    """The choice with weights from the rows that do not contradict it, multiples of ``step``.

    Parameters
    ----------
    own : array (n_rows,), the rows to look at

    Cost: O(rounds * equations * k^2) for k columns.
    """
    if not choice.support:
        return choice
    of_equation = np.repeat(own, dictionary.n_places)
    columns = dictionary.columns[:, list(choice.support)].toarray()[of_equation]
    wanted = dictionary.wanted[of_equation]
    weights, seen = choice.weights, {choice.weights.tobytes()}
    for _ in range(MAX_ROUNDS):
        agree = np.repeat(
            _agreeing(wanted, columns @ weights, dictionary.n_places), dictionary.n_places
        )
        kept = columns[agree]
        fitted = np.linalg.lstsq(kept.T @ kept, kept.T @ wanted[agree], rcond=1e-11)[0]
        weights = np.round(fitted / step) * step
        if weights.tobytes() in seen:
            break
        seen.add(weights.tobytes())
    chosen = np.flatnonzero(weights)
    rest = wanted - columns @ weights
    return Choice(tuple(choice.support[at] for at in chosen), weights[chosen], float(rest @ rest))


def _agreeing(
    wanted: NDArray[np.float64], predicted: NDArray[np.float64], n_places: int
) -> NDArray[np.bool_]:
    """The rows that are explained as well as most of those of which something is said."""
    rest = ((wanted - predicted) ** 2).reshape(-1, n_places).sum(axis=1)
    said = (np.abs(wanted) + np.abs(predicted)).reshape(-1, n_places).any(axis=1)
    usual = float(np.median(rest[said])) if said.any() else 0.0
    return rest <= max(MEDIANS * usual, LEAST)
