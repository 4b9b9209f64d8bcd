"""The ends of the spectrum of Lambda_D on a space: estimates to report, not to rest a proof on."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.gram import Definite, Gram

# Up to this size all eigenvalues are as cheap as two.
DENSE_SIZE = 600

# Vectors that Lanczos iterations keep for the largest eigenvalue, which usually stands alone.
KRYLOV = 8


def extremes(matrix: NDArray[np.float64], proof: Definite | None = None) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric matrix.

    Large ones by Lanczos iterations: with a Cholesky factor for the smallest eigenvalue, or the
    one that a proof made of (nearly) D ``matrix`` D.
    """
    if len(matrix) <= DENSE_SIZE:
        return _dense_extremes(matrix)
    if proof is None:
        factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=1)
        scale = np.ones(len(matrix))
    else:
        factor, scale, failed = proof.factor, proof.scale, 0

    def solve(vector: NDArray) -> NDArray:
        """By D (R^T R)^-1 D, nearly the inverse; the quotient corrects what is not."""
        half = solve_triangular(factor, scale * vector, trans=1, check_finite=False)
        return scale * solve_triangular(factor, half, check_finite=False)

    if not failed:
        inverse = LinearOperator(matrix.shape, matvec=solve, dtype=np.float64)
        with suppress(ArpackNoConvergence):
            return _lanczos(inverse, matrix), _lanczos(matrix, matrix, KRYLOV)
    return _dense_extremes(matrix)


def largest(matrix: NDArray[np.float64]) -> float:
    """The largest eigenvalue of a symmetric matrix alone."""
    if len(matrix) > DENSE_SIZE:
        with suppress(ArpackNoConvergence):
            return _lanczos(matrix, matrix, KRYLOV)
    return _dense_extremes(matrix)[1]


def second_moment(gram: Gram, space: FeatureSpace) -> NDArray[np.float64]:
    """L^T Lambda_phi L with L L^T = E^T E: its eigenvalues are those of Lambda_D = E Lambda E^T.

    In the units of scaled tokens.
    """
    matrix = gram.matrix / gram.total_weight
    if space.is_whole:
        return matrix
    shares = (space.expansion.T @ space.expansion).toarray()
    if np.count_nonzero(shares) == len(shares):
        roots = np.sqrt(shares.diagonal())
        return matrix * roots * roots[:, None]
    lower = np.linalg.cholesky(shares)
    return lower.T @ matrix @ lower


def _dense_extremes(matrix: NDArray) -> tuple[float, float]:
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])


def _lanczos(operator: NDArray | LinearOperator, matrix: NDArray, ncv: int | None = None) -> float:
    """The eigenvalue of ``matrix`` whose vector has the largest eigenvalue of ``operator``."""
    # Errors of eigenvalues are the squares of errors of their vectors.
    start = np.ones(len(matrix))
    _, vectors = eigsh(operator, k=1, which="LA", v0=start, ncv=ncv, tol=1e-4)
    vector = vectors[:, 0]
    return float(vector @ matrix @ vector / (vector @ vector))
