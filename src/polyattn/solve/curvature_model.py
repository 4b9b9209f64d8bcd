"""Approximate inverses of the curvature of log-loss, for conjugate gradients.

Up to ``GRAM_FEATURES`` features the Gram matrix of the features is factored; beyond, whitening
(``whitening.py``) stands for it.
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
from polyattn.solve.primal import SAFE_RCOND
from polyattn.solve.whitening import Whitening
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]
Inverse = Callable[[Array], Array]

# Gram matrices of up to so many features (134 MB) are factored.
GRAM_FEATURES = 4096

# Of so many features that are not safely independent, all eigenvectors are computed.
EIGEN_FEATURES = 2048


@dataclass(frozen=True)
class WeightedGram:
    """sum v phi phi^T: its diagonal (p,), and a function that gives it with factors (p,) put in."""

    diagonal: Array
    matrix: Callable[[Array], Array]


@dataclass(frozen=True)
class SearchSpace:
    """Where theta is looked for: everywhere, or where features span less, in their span alone.

    gram : that of the weights of the data
    scale : (p,) powers of two that bring the features to similar size
    rank, condition : of the features, where they were examined
    vectors, sigma : singular vectors (p, p) and values of features / scale, where rank < p
    """

    gram: WeightedGram
    scale: Array
    rank: int | None = None
    condition: float = float("nan")
    vectors: Array | None = None
    sigma: Array | None = None

    def matrix(self, gram: WeightedGram, curvature: float, penalty: float) -> Array:
        """curvature * gram + penalty, of features / scale, restricted to the space."""
        matrix = gram.matrix(np.sqrt(curvature) / self.scale)
        matrix[np.diag_indices_from(matrix)] += penalty / self.scale**2
        basis = self.basis
        return matrix if basis is None else basis.T @ matrix @ basis

    def restricted(self, gradient: Array) -> Array:
        """The derivative by the coordinates of the space, of that by theta (p, e)."""
        scaled = gradient / self.scale[:, None]
        return scaled if self.basis is None else self.basis.T @ scaled

    def inverse(self, gram: WeightedGram, curvature: float, penalty: float) -> Inverse:
        """The inverse of curvature * gram + penalty, made definite where rounding spoils that."""
        if self.rank == 0:
            return np.zeros_like
        lift, failed = 0.0, True
        while failed:
            matrix = self.matrix(gram, curvature, penalty)
            matrix[np.diag_indices_from(matrix)] += lift
            # The matrix is symmetric, so its transpose is itself in the order that LAPACK wants.
            factor = matrix.T
            failed = not factor_lower(factor)
            lift = 100.0 * (lift or EPS * len(matrix))

        def inverse(rhs: Array) -> Array:
            solved, _ = lapack.dpotrs(factor, np.asfortranarray(self.restricted(rhs)), lower=1)
            if self.basis is not None:
                solved = self.basis @ solved
            return np.ascontiguousarray(solved / self.scale[:, None])

        return inverse

    def smallest(self, theta: Array) -> tuple[Array, str]:
        """The theta of smallest norm with the same outputs, and a note for the outcome."""
        if self.vectors is None or self.sigma is None:
            return theta, ""
        inside = self.vectors[:, : self.rank].T @ (self.scale[:, None] * theta)
        projected = self.sigma[: self.rank, None] * inside
        return minimum_norm(self.vectors.T, self.sigma, projected, self.scale, np.inf)

    @property
    def basis(self) -> Array | None:
        """The vectors (p, rank) that span features / scale; None: they span everything."""
        return None if self.vectors is None else self.vectors[:, : self.rank]


def search_space(gram: WeightedGram, penalty: float) -> SearchSpace:
    """The whole space with a penalty; without, the span of the features.

    Cost: of safely independent features one factor; otherwise all eigenvectors, unless they are
    too many.
    """
    scale = column_scale(np.sqrt(gram.diagonal + penalty))
    if penalty > 0.0:
        return SearchSpace(gram, scale)
    p, matrix = len(scale), gram.matrix(1.0 / scale)
    factor = np.asfortranarray(matrix)
    norm = lapack.dlange("1", factor)
    rcond = float(lapack.dpocon(factor, norm, uplo="L")[0]) if factor_lower(factor) else 0.0
    if rcond > SAFE_RCOND:
        return SearchSpace(gram, scale, p, float(np.sqrt(1.0 / rcond)))
    if p > EIGEN_FEATURES:
        return SearchSpace(gram, scale)
    eigenvalues, vectors = (array[..., ::-1] for array in np.linalg.eigh(matrix))
    vectors[gram.diagonal == 0.0] = 0.0  # rounding in the place of a feature that never occurs
    largest = max(float(eigenvalues[0]), 1.0)
    rank = int(np.count_nonzero(eigenvalues > EPS * 10.0 * p * largest))
    sigma = np.sqrt(np.maximum(eigenvalues, EPS * largest))
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
    return SearchSpace(gram, scale, rank, condition, vectors, sigma)


def whitened_inverse(rows: Rows, curvature: float, penalty: float) -> Inverse:
    """About the same for weighted rows of many features, by their whitening."""
    whitening = Whitening.of(rows, penalty / curvature)
    return lambda rhs: whitening.theta(whitening.gradient(rhs)) / curvature
