"""Labels that contradict each other: which to believe.

A row is believed if the other believed rows predict, after rounding to tokens, what its label
says.  Wrong labels have nothing in common, so what agrees with the others is nearly always
right; once no wrong row is believed, the believed ones are consistent and the layer is exact.

Labels that are tokens can only be wrong as a whole.  Labels that are not (a measurement with
noise in each coordinate) are first replaced by the tokens that the other rows predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.untied.ridge import Ridge, RidgeFit
from polyattn.progress import report

# Penalties that are tried on contradicting labels, and those of the rounds of repair.
PENALTIES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
FIRST_PENALTY, LATER_PENALTY, FIRST_ROUNDS, ROUNDS = 1e-2, 1e-3, 3, 10

Rounding = Callable[[NDArray], NDArray]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The ridge fit whose predictions, each without its own row, agree most with the labels."""

    fit: RidgeFit
    penalty: float
    agreement: float


@dataclass(frozen=True, eq=False)
class Repaired:
    """Labels (N, e) that are tokens, and which rows (N,) to believe."""

    labels: NDArray[np.float64]
    believed: NDArray[np.bool_]


def choose_penalty(ridge: Ridge, rounding: Rounding) -> Chosen:
    """The penalty whose predictions round to the labels most often, each row left out.

    Cost: one fit per penalty.
    """
    labels = ridge.features.targets
    everything, rounded = np.ones(len(labels), dtype=bool), rounding(labels)
    best: Chosen | None = None
    for number, penalty in enumerate(PENALTIES):
        fit = ridge.fit(labels, penalty, everything)
        agreement = float(np.mean(_agree(rounding(fit.left_out), rounded)))
        if best is None or agreement >= best.agreement:
            best = Chosen(fit, penalty, agreement)
        report(number + 1, len(PENALTIES))
    assert best is not None  # noqa: S101 - there are penalties
    return best


def repair(ridge: Ridge, rounding: Rounding, start: Chosen) -> Repaired:
    """Believe what the others confirm, fit to that, and again, until nothing changes.

    Cost: at most ROUNDS fits.
    """
    given = ridge.features.targets
    labels = rounding(given).astype(np.float64)
    predicted = rounding(start.fit.left_out).astype(np.float64)
    if np.array_equal(labels, given):
        believed = _agree(predicted, labels)
    else:
        labels, believed = predicted, np.ones(len(given), dtype=bool)
    for number in range(ROUNDS):
        penalty = FIRST_PENALTY if number < FIRST_ROUNDS else LATER_PENALTY
        fit = ridge.fit(labels, penalty, believed)
        confirmed = _agree(rounding(fit.left_out), labels)
        if np.array_equal(confirmed, believed):
            break
        believed = confirmed
        report(number + 1, ROUNDS)
    return Repaired(labels, believed)


def _agree(first: NDArray, second: NDArray) -> NDArray[np.bool_]:
    """Which rows are equal."""
    return np.all(first == second, axis=1)
