"""Where the minimiser of log-loss is looked for, and approximate inverses of the curvature there.

Up to ``GRAM_FEATURES`` features their Gram matrix is factored; beyond, whitening (``whitening.py``)
stands for it.  Without a ridge theta is looked for in the span of the features.  Where that is
less than everything, or not safely so, it has a basis of its own: the features that are kept of
groups of multiples (``structure.py``), or else singular vectors of the features themselves, since
a Gram matrix squares what is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.numerics.blas import factor_lower
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import column_scale, minimum_norm
from polyattn.solve.feature_passes import FeaturePasses, WeightedGram
from polyattn.solve.primal import SAFE_RCOND, factor_definite
from polyattn.solve.structure import FeatureGroups, find_structure, rank_tolerance
from polyattn.solve.whitening import Whitening
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]
Inverse = Callable[[Array], Array]

# Gram matrices of up to so many features (134 MB) are factored.
GRAM_FEATURES = 4096

# Up to so many features that are not safely independent are factored row by row.
FACTORED_FEATURES = 2048


@dataclass(frozen=True)
class SearchSpace:
    """Where theta is looked for: everywhere, theta = z / scale, or theta = basis z.

    scale : (p,) powers of two that bring the features to similar size
    gram : (k, k), sum w (basis^T phi) (basis^T phi)^T of the weights that it was made for
    rank, condition : of the features, where they were examined
    basis : (p, k), or None
    singular : right singular vectors and values of features / scale, where the basis is made of
        the first ``rank`` of them
    tolerance : the part of the largest singular value below which others counted as zero; 0: none
    """

    scale: Array
    gram: Array
    rank: int | None = None
    condition: float = float("nan")
    basis: Array | None = None
    singular: tuple[Array, Array] | None = None
    tolerance: float = 0.0

    def restricted(self, gradient: Array) -> Array:
        """The derivative by z, of that by theta (p, e)."""
        if self.basis is None:
            return gradient / self.scale[:, None]
        return np.asarray(self.basis.T @ gradient)

    def theta(self, z: Array) -> Array:
        """theta (p, e) of z (k, e)."""
        return z / self.scale[:, None] if self.basis is None else np.asarray(self.basis @ z)

    def curvature(self, passes: FeaturePasses, weights: Array, penalty: float) -> Array:
        """sum w phi phi^T + penalty by z, (k, k); with a basis the penalty is zero."""
        if self.basis is not None:
            return passes.projected_gram(weights, self.basis)[0]
        return self.penalised(passes.weighted_gram(weights).matrix(1.0 / self.scale), penalty)

    def penalised(self, matrix: Array, penalty: float) -> Array:
        """A matrix (k, k) with the penalty added."""
        if penalty > 0.0:
            matrix = matrix + np.diag(penalty / self.scale**2)
        return matrix

    def inverse(self, curvature: Array) -> Inverse:
        """The inverse of a curvature by z, made definite where rounding spoils that."""
        if self.rank == 0:
            return np.zeros_like
        lift, failed = 0.0, True
        while failed:
            # The matrix is symmetric, so its transpose is itself in the order that LAPACK wants.
            factor = np.array(curvature).T
            factor[np.diag_indices_from(factor)] += lift * curvature.diagonal().max()
            failed = not factor_lower(factor)
            lift = 100.0 * (lift or EPS * len(curvature))

        def inverse(rhs: Array) -> Array:
            solved, _ = lapack.dpotrs(factor, np.asfortranarray(self.restricted(rhs)), lower=1)
            return np.ascontiguousarray(self.theta(solved))

        return inverse

    def smallest(self, theta: Array) -> tuple[Array, str]:
        """The theta of smallest norm with the same outputs, and a note for the outcome."""
        if self.singular is None:
            return theta, ""
        right, sigma = self.singular
        projected = sigma[: self.rank, None] * (right[: self.rank] @ (self.scale[:, None] * theta))
        # Outputs are known up to rounding times the condition number.
        allowed = self.tolerance * self.condition * float(np.linalg.norm(projected))
        return minimum_norm(right, sigma, projected, self.scale, allowed)


def search_space(
    passes: FeaturePasses,
    weights: Array,
    gram: WeightedGram,
    penalty: float,
    rows: Rows | None = None,
) -> SearchSpace:
    """The whole space with a penalty; without, the span of the features of positive weight.

    gram : sum w phi phi^T of these weights (rows,)
    rows : where multiples of features are looked for, if their weights are the same
    Cost: of safely independent features one factor; otherwise a factorisation of all rows, unless
    features are too many.
    """
    scale = column_scale(np.sqrt(gram.diagonal + penalty))
    matrix = gram.matrix(1.0 / scale)
    if penalty > 0.0:
        return SearchSpace(scale, matrix)
    rcond = factor_definite(np.asfortranarray(matrix))
    if rcond > SAFE_RCOND:
        return SearchSpace(scale, matrix, len(scale), float(np.sqrt(1.0 / rcond)))
    if len(scale) > FACTORED_FEATURES:
        return SearchSpace(scale, matrix)
    whole = gram.matrix(np.ones_like(scale))
    structure = find_structure(whole, rows)
    found = None if structure is None else _of_kept(structure, scale, whole, passes.rows.n_rows)
    return found or _of_rows(passes, weights, scale)


def whitened_inverse(rows: Rows, curvature: float, penalty: float) -> Inverse:
    """About the inverse of the curvature for weighted rows of many features, by whitening."""
    whitening = Whitening.of(rows, penalty / curvature)
    return lambda rhs: whitening.theta(whitening.gradient(rhs)) / curvature


def _of_kept(
    structure: FeatureGroups, scale: Array, gram: Array, n_rows: int
) -> SearchSpace | None:
    """The span of the features that are kept, if these are safely independent."""
    if not len(structure.kept):
        return None
    matrix = structure.reduced(gram)
    own = column_scale(np.sqrt(matrix.diagonal()))
    matrix = matrix / own / own[:, None]
    rcond = factor_definite(np.asfortranarray(matrix))
    if not rcond > SAFE_RCOND:
        return None
    basis = structure.expanded(np.eye(len(own))) / own
    # Zeros are exact, and multiples to rounding.
    tolerance = rank_tolerance(len(scale), n_rows) if structure.n_repeated else 0.0
    condition = float(np.sqrt(1.0 / rcond))
    return SearchSpace(scale, matrix, len(own), condition, basis, tolerance=tolerance)


def _of_rows(passes: FeaturePasses, weights: Array, scale: Array) -> SearchSpace:
    """The span of the rows, by singular values; in its coordinates their Gram is the identity."""
    root = passes.triangular_factor(weights, 1.0 / scale)
    _, sigma, right = np.linalg.svd(root, full_matrices=False)
    # Rounding in the place of a zero column would be magnified: no other scale is comparable.
    right[:, ~np.any(root, axis=0)] = 0.0
    tolerance = rank_tolerance(len(scale), passes.rows.n_rows)
    rank = int(np.count_nonzero(sigma > tolerance * max(sigma[0], 1.0)))
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
    basis = right[:rank].T / sigma[:rank] / scale[:, None]
    tolerance = tolerance if rank < len(scale) else 0.0
    return SearchSpace(scale, np.eye(rank), rank, condition, basis, (right, sigma), tolerance)
