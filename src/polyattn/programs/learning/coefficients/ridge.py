"""Ridge regression on all rows, with the prediction of each row by the others.

    minimise  sum_i ||y_i - T . phi_i||^2 + penalty c ||T||^2,   c the mean of ||phi_i||^2

In orthonormal coordinates X of the span, theta = S^-1 X^T Y with S = X^T X + penalty c; without
row i, row i is predicted as y_i - (y_i - x_i theta) / (1 - h_i), where h_i = x_i S^-1 x_i^T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from polyattn.programs.learning.coefficients.features import RowFeatures
from polyattn.programs.learning.coefficients.groups import Group
from polyattn.programs.learning.coefficients.layer import ActiveLayer, combine
from polyattn.progress import report

# Below this a leverage leaves nothing of a row to be predicted by others.
LEAST_REST = 1e-12


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The layer, and the prediction (N, e) of each row by all other rows that were used."""

    layer: ActiveLayer
    left_out: NDArray[np.float64]


class Ridge:
    """Ridge regression for many penalties, labels and choices of rows.

    Cost: r^2 flops per row once; then r^3/3 + 2 r^2 N per fit, r the rank of each group.
    """

    def __init__(self, features: RowFeatures, groups: Sequence[Group]) -> None:
        self.features, self.groups = features, groups
        self.coordinates = [group.coordinates() for group in groups]

    def fit(self, targets: NDArray, penalty: float, used: NDArray[np.bool_]) -> RidgeFit:
        """The fit to ``targets`` (N, e) on the rows ``used`` (N,); the others are predicted."""
        active = self.features.active
        shape = self.features.queries.shape[1], targets.shape[1], len(active)
        matrices, left_out = np.zeros(shape), np.zeros(targets.shape)
        for group, coordinates in zip(self.groups, self.coordinates, strict=True):
            mine = used[group.numbers]
            theta, predicted = _solve(coordinates, targets[group.numbers], penalty, mine)
            left_out[group.numbers] = predicted
            matrices += combine(active, group.pairs, group.queries, group.alpha(theta))
        return RidgeFit(ActiveLayer(active, matrices), left_out)


def _solve(
    X: NDArray, Y: NDArray, penalty: float, used: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """theta (r, e), and predictions (n, e) of every row without itself."""
    some = X[used]
    # The penalty must not vanish: without some rows the rest may not span everything.
    strength = max(penalty, 1e-10) * float(np.mean(np.einsum("nr,nr->n", X, X)))
    normal = some.T @ some
    normal[np.diag_indices_from(normal)] += strength
    factor, _ = cho_factor(normal, lower=True, overwrite_a=True, check_finite=False)
    theta = cho_solve((factor, True), some.T @ Y[used], check_finite=False)
    predicted = X @ theta
    halfway = solve_triangular(factor, some.T, lower=True, check_finite=False)
    rest = np.maximum(1.0 - np.einsum("rn,rn->n", halfway, halfway), LEAST_REST)
    predicted[used] = Y[used] - (Y[used] - predicted[used]) / rest[:, None]
    return theta, predicted


# Labels that contradict each other: which to believe.
#
# A row is believed if the other believed rows predict, after rounding to tokens, what its label
# says.  Wrong labels have nothing in common, so what agrees with the others is nearly always
# right; once no wrong row is believed, the believed ones are consistent and the layer is exact.
#
# Labels that are tokens can only be wrong as a whole.  Labels that are not (a measurement with
# noise in each coordinate) are first replaced by the tokens that the other rows predict.

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
