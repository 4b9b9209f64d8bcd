"""Ridge regression on all rows, with what each row would have been told by the others.

    minimise  sum_i ||y_i - T . phi_i||^2 + penalty c ||T||^2,   c the mean of ||phi_i||^2

In orthonormal coordinates X of the span, theta = S^-1 X^T Y with S = X^T X + penalty c; without
row i, row i is predicted as y_i - (y_i - x_i theta) / (1 - h_i), where h_i = x_i S^-1 x_i^T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from polyattn.programs.learning.untied.features import Features
from polyattn.programs.learning.untied.groups import Group
from polyattn.programs.learning.untied.layer import ActiveLayer, combine

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

    def __init__(self, features: Features, groups: Sequence[Group]) -> None:
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
