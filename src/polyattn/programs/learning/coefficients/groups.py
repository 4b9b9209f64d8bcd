"""Groups of rows whose last tokens share no coordinate: least squares solves each apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, qr, solve_triangular

from polyattn.programs.learning.coefficients.basis import Basis, unit_rows
from polyattn.programs.learning.coefficients.features import RowFeatures, kernel
from polyattn.programs.learning.coefficients.layer import ActiveLayer, combine
from polyattn.programs.learning.coefficients.span import CoefficientSpan
from polyattn.programs.learning.coefficients.types import orthogonal_groups

# Added to the unit diagonal if rounding made a kernel indefinite; refinement takes it out.
JITTER = 1e-11


@dataclass(frozen=True, eq=False)
class Group:
    """The rows of some token types, and an orthonormal basis of the span of their features.

    The basis is triangle^-1 times the unit features of the chosen rows, where triangle
    triangle^T is their kernel; nobody forms it.

    rows : Features, all training rows of the group, with their numbers (n,)
    chosen : integer array (r,), the numbers of the independent ones among all training rows
    pairs (r, u), queries (r, d) : the chosen rows, scaled to unit features
    triangle : array (r, r), lower
    """

    rows: RowFeatures
    numbers: NDArray[np.int64]
    chosen: NDArray[np.int64]
    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]
    triangle: NDArray[np.float64]

    def coordinates(self) -> NDArray[np.float64]:
        """X (n, r), the features of all rows in the orthonormal basis: X X^T is their kernel.

        Cost: r^2 flops per row.
        """
        active = self.rows.active
        products = kernel(active, self.pairs, self.queries, self.rows.pairs, self.rows.queries)
        return solve_triangular(self.triangle, products, lower=True, check_finite=False).T

    def alpha(self, theta: NDArray) -> NDArray[np.float64]:
        """The weights (r, e) of the chosen rows for coefficients theta (r, e) in the basis."""
        return solve_triangular(self.triangle, theta, lower=True, trans="T", check_finite=False)


def groups_of(span: CoefficientSpan) -> list[Group]:
    """All groups; rows whose last token is zero are in none.

    Cost: r^3/3 flops and r^2 numbers for each group of several types.
    """
    features = span.features
    kinds = span.types.assign(features.queries)
    groups = []
    for members in _types_together(span.bases):
        bases = [span.bases[kind] for kind in members]
        numbers = np.flatnonzero(np.isin(kinds, members))
        chosen = np.concatenate([basis.numbers for basis in bases])
        independent = features.take(chosen)
        pairs, queries = unit_rows(features.active, independent.pairs, independent.queries)
        if len(bases) == 1:
            triangle = bases[0].triangle
        else:
            triangle = _triangle(kernel(features.active, pairs, queries, pairs, queries))
        groups.append(Group(features.take(numbers), numbers, chosen, pairs, queries, triangle))
    return groups


def _types_together(bases: Sequence[Basis]) -> list[list[int]]:
    """The numbers of types whose tokens share coordinates, together."""
    marks = np.array([basis.queries.any(axis=0) for basis in bases], dtype=float)
    labels = orthogonal_groups(marks) if len(bases) else np.empty(0, dtype=np.int64)
    return [np.flatnonzero(labels == label).tolist() for label in range(labels.max(initial=-1) + 1)]


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


# The layer of least norm that is right on every training row, from independent rows alone.
#
#     minimise ||T||  such that  T . phi_i = y_i for all i
#
# For consistent labels the independent rows say everything: T = sum_i alpha_i phi_i over them,
# with K alpha = y [yau2024: Algorithm 1, in its dual form].

# Rounds of refinement: each gains the digits that the factorisation has.
REFINEMENTS = 2

# Labels are consistent if the layer of the independent rows misses no other by more than this.
CONSISTENT = 1e-6


def interpolate(features: RowFeatures, groups: Sequence[Group]) -> ActiveLayer:
    """The layer of least norm that fits the independent rows of all groups.

    Guarantee: where the labels are consistent, the minimum of ||T|| among all layers that are
    right on every training row, up to rounding.
    Cost: 2 r^2 e flops for each group, and products with the chosen rows.
    """
    active = features.active
    shape = features.queries.shape[1], features.targets.shape[1], len(active)
    matrices = np.zeros(shape)
    for group in groups:
        rows = features.take(group.chosen)
        scale = row_norms(rows)[:, None]
        part = np.zeros(shape)
        for _ in range(1 + REFINEMENTS):
            missing = rows.targets - ActiveLayer(active, part).outputs(rows.pairs, rows.queries)
            alpha = cho_solve((group.triangle, True), missing / scale, check_finite=False)
            part += combine(active, group.pairs, group.queries, alpha)
        matrices += part
    return ActiveLayer(active, matrices)


def largest_miss(features: RowFeatures, layer: ActiveLayer) -> float:
    """The largest |y - T . phi| over all rows, relative to labels of size one or more."""
    missed = np.abs(features.targets - layer.outputs(features.pairs, features.queries))
    return float(missed.max(initial=0.0)) / max(1.0, float(np.abs(features.targets).max(initial=0)))


def row_norms(rows: RowFeatures) -> NDArray[np.float64]:
    """The norms (N,) of the features of rows; one for a row without features."""
    of_pairs = (rows.pairs**2) @ rows.active.multiplicity
    norms = np.sqrt(of_pairs * np.sum(rows.queries**2, axis=1))
    return np.where(norms > 0, norms, 1.0)
