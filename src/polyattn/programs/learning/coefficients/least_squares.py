"""Least squares on rows: the layer of least norm, or ridge regression if labels contradict.

Rows fall into groups whose last tokens share no coordinate, and each group is solved apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack, qr, solve_triangular

from polyattn.programs.learning.coefficients.active_pairs import ActiveLayer
from polyattn.programs.learning.coefficients.coefficient_span import Basis, CoefficientSpan
from polyattn.programs.learning.coefficients.token_types import orthogonal_groups
from polyattn.progress import report

# Added to the unit diagonal if rounding made a kernel indefinite; refinement takes it out.
JITTER = 1e-11

# Rounds of refinement: each gains the digits that the factorisation has.
REFINEMENTS = 2

# Labels are consistent if the layer of the independent rows misses no other by more than this.
CONSISTENT = 1e-6

# Below this a leverage leaves nothing of a row to be predicted by others.
LEAST_REST = 1e-12

# Penalties that are tried on contradicting labels, and those of the rounds of repair.
PENALTIES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
FIRST_PENALTY, LATER_PENALTY, FIRST_ROUNDS, ROUNDS = 1e-2, 1e-3, 3, 10

# A layer, and the prediction (N, e) of each row by all other rows that were used.
RidgeFit: TypeAlias = tuple[ActiveLayer, NDArray[np.float64]]

Rounding: TypeAlias = Callable[[NDArray], NDArray]


def interpolate(span: CoefficientSpan) -> ActiveLayer:
    """The layer of least norm that is right on every training row, from independent rows alone.

        minimise ||T||  such that  T . phi_i = y_i for all i

    For consistent labels the independent rows say everything: T = sum_i alpha_i phi_i over them,
    with K alpha = y [yau2024: Algorithm 1, in its dual form].

    Guarantee: where the labels are consistent, the minimum of ||T|| among all layers that are
    right on every training row, up to rounding.
    Cost: 2 r^2 e flops for each group, and products with the chosen rows.
    """
    layer = ActiveLayer.zero(span.features)
    for _, basis in groups_of(span):
        rows = span.features.take(basis.numbers)
        norms = np.sqrt(rows.pairs**2 @ span.active.multiplicity * np.sum(rows.queries**2, axis=1))
        for _ in range(1 + REFINEMENTS):
            missing = (rows.targets - layer.outputs(rows)) / norms[:, None]
            alpha = cho_solve((basis.triangle, True), missing, check_finite=False)
            layer.add(basis.rows, alpha)
    return layer


class Ridge:
    """Ridge regression for many penalties, labels and choices of rows.

        minimise  sum_i ||y_i - T . phi_i||^2 + penalty c ||T||^2,   c the mean of ||phi_i||^2

    In orthonormal coordinates X of the span, theta = S^-1 X^T Y with S = X^T X + penalty c; without
    row i, row i is predicted as y_i - (y_i - x_i theta) / (1 - h_i), where h_i = x_i S^-1 x_i^T.

    coordinates : for each group X (n, r), the features of all its rows in the orthonormal basis:
        X X^T is their kernel

    Cost: r^2 flops per row once; then r^3/3 + 2 r^2 N per fit, r the rank of each group.
    """

    def __init__(self, span: CoefficientSpan) -> None:
        self.features, self.groups = span.features, groups_of(span)
        self.coordinates = [
            basis.halfway(self.features.take(rows)).T for rows, basis in self.groups
        ]

    def fit(self, targets: NDArray, penalty: float, used: NDArray[np.bool_]) -> RidgeFit:
        """The fit to ``targets`` (N, e) on the rows ``used`` (N,); the others are predicted."""
        layer, left_out = ActiveLayer.zero(self.features), np.zeros(targets.shape)
        for (rows, basis), X in zip(self.groups, self.coordinates, strict=True):
            own, Y = used[rows], targets[rows]
            some = X[own]
            # The penalty must not vanish: without some rows the rest may not span everything.
            strength = max(penalty, 1e-10) * float(np.mean(np.einsum("nr,nr->n", X, X)))
            normal = some.T @ some
            normal[np.diag_indices_from(normal)] += strength
            factor, _ = cho_factor(normal, lower=True, overwrite_a=True, check_finite=False)
            theta = cho_solve((factor, True), some.T @ Y[own], check_finite=False)
            layer.add(basis.rows, basis.combination(theta))
            predicted = X @ theta
            halfway = solve_triangular(factor, some.T, lower=True, check_finite=False)
            rest = np.maximum(1.0 - np.einsum("rn,rn->n", halfway, halfway), LEAST_REST)
            predicted[own] = Y[own] - (Y[own] - predicted[own]) / rest[:, None]
            left_out[rows] = predicted
        return layer, left_out

    def choose_penalty(self, rounding: Rounding) -> tuple[RidgeFit, float, float]:
        """The fit whose predictions, each without its own row, round to the labels most often.

        With it come its penalty, and how often they do.
        Cost: one fit per penalty.
        """
        labels = self.features.targets
        everything, rounded = np.ones(len(labels), dtype=bool), rounding(labels)
        best: tuple[RidgeFit, float, float] | None = None
        for number, penalty in enumerate(PENALTIES):
            fit = self.fit(labels, penalty, everything)
            agreement = float(np.mean((rounding(fit[1]) == rounded).all(axis=1)))
            if best is None or agreement >= best[2]:
                best = fit, penalty, agreement
            report(number + 1, len(PENALTIES))
        assert best is not None  # noqa: S101 - there are penalties
        return best

    def repair(
        self, rounding: Rounding, left_out: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Labels (N, e) that are tokens, and the numbers of the rows to believe.

        A row is believed if the other believed rows predict, after rounding to tokens, what its
        label says.  Wrong labels have nothing in common, so what agrees with the others is nearly
        always right; once no wrong row is believed, the believed ones are consistent and the
        layer is exact.  Labels that are tokens can only be wrong as a whole.  Labels that are not
        (a measurement with noise in each coordinate) are first replaced by the tokens that the
        other rows predict.

        left_out : array (N, e), predictions of rows by the others to start with

        Cost: at most ROUNDS fits.
        """
        given = self.features.targets
        labels = rounding(given).astype(np.float64)
        predicted = rounding(left_out).astype(np.float64)
        if np.array_equal(labels, given):
            believed = (predicted == labels).all(axis=1)
        else:
            labels, believed = predicted, np.ones(len(given), dtype=bool)
        for number in range(ROUNDS):
            penalty = FIRST_PENALTY if number < FIRST_ROUNDS else LATER_PENALTY
            _, left_out = self.fit(labels, penalty, believed)
            confirmed = (rounding(left_out) == labels).all(axis=1)
            if np.array_equal(confirmed, believed):
                break
            believed = confirmed
            report(number + 1, ROUNDS)
        return labels, np.flatnonzero(believed)


def groups_of(span: CoefficientSpan) -> list[tuple[NDArray[np.int64], Basis]]:
    """The numbers of the rows of each group, and a basis; zero last tokens are in none.

    Cost: r^3/3 flops and r^2 numbers for each group of several types.
    """
    groups = []
    # Types whose tokens share coordinates go together.
    marks = np.array([basis.rows.queries.any(axis=0) for basis in span.bases], dtype=float)
    labels = orthogonal_groups(marks.reshape(-1, span.active.n_dims))
    for label in range(labels.max(initial=-1) + 1):
        members = np.flatnonzero(labels == label)
        basis = span.bases[members[0]]
        if len(members) > 1:
            chosen = np.concatenate([span.bases[kind].numbers for kind in members])
            unit = span.features.take(chosen).unit()
            basis = Basis(unit, chosen, _triangle(unit.kernel(unit)))
        groups.append((np.flatnonzero(np.isin(span.kinds, members)), basis))
    return groups


def _triangle(matrix: NDArray) -> NDArray[np.float64]:
    """The Cholesky factor of a kernel with unit diagonal."""
    # A symmetric matrix in C order is the same one in Fortran order, and needs no copy.
    triangle, info = lapack.dpotrf(matrix.T, lower=1)
    if info:
        matrix[np.diag_indices_from(matrix)] += JITTER
        triangle, info = lapack.dpotrf(matrix.T, lower=1)
    if info:
        # Types are independent, so this is rounding: the spectrum is cut where it begins.
        values, vectors = np.linalg.eigh(matrix)
        roots = np.sqrt(np.maximum(values, JITTER))
        triangle = qr((vectors * roots).T, mode="r")[0].T
    return triangle
