"""The primal road: normal equations of the moments, refined with one more pass over the data.

Accepts any number of rows; memory and time are those of a p x p matrix.
Equals ``sklearn.linear_model.Ridge(solver="cholesky", fit_intercept=False)`` on features whose
off-diagonal columns are multiplied by sqrt(2).

Normal equations square the condition number.  While the (equilibrated) Gram is safely definite,
a pass for the residual, solved with the same factor, brings least-squares accuracy back.  When
it is not, the rows are factored again by QR, without squaring; with moments alone, by eigenvalues.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.features.cubic import apply_coef, correlate
from polyattn.features.pairs import feature_weights, n_pairs
from polyattn.solve.direct import solve_factor
from polyattn.solve.outcome import Solution
from polyattn.solve.spectral import column_scale, solve_gram
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# A Gram matrix better conditioned than this is solved by Cholesky and refined.
SAFE_RCOND = 1e-11

# Refinement stops once a correction is this small, after at most so many passes.
SMALL_CORRECTION, MAX_PASSES = 1e-7, 4


def solve_primal(moments: Moments, rows: Rows | None, ridge: float) -> Solution:
    """The minimiser from moments; ``rows`` (the data behind them) allow the refinement."""
    s = feature_weights(moments.width)
    gram = moments.scaled_gram()
    gram /= s
    gram /= s[:, None]
    cross = moments.scaled_cross() / s[:, None]
    scale = column_scale(np.sqrt(gram.diagonal() + ridge))
    factor, rcond = _cholesky(gram, ridge, scale)
    if factor is None and rows is not None:
        return solve_factor(TriangularFactor.of(rows), ridge)
    if factor is None:
        return solve_gram(gram, cross, moments.scaled_target_power(), ridge, scale)
    theta = _solve(factor, cross, scale)
    rank = len(gram) if ridge == 0 else None
    condition = float(np.sqrt(1.0 / rcond))
    if rows is None:
        # sum ||y - phi theta||^2 expanded around the exact minimiser.
        residual = moments.scaled_target_power() - np.sum(theta * (2 * cross - gram @ theta))
        return Solution(theta, rank, max(0.0, float(residual)), condition, ridge)
    theta, residual_power = _refine(theta, rows, factor, scale, ridge, gram)
    return Solution(theta, rank, residual_power, condition, ridge)


def _refine(
    theta: NDArray, rows: Rows, factor: NDArray, scale: NDArray, ridge: float, gram: NDArray
) -> tuple[NDArray[np.float64], float]:
    """Add the solution for the residual; also returns the sum of squared residuals."""
    for _ in range(MAX_PASSES):
        gradient, power = residual_pass(theta, rows)
        correction = _solve(factor, gradient - ridge * theta, scale)
        theta = theta + correction
        power -= float(np.sum(correction * (2 * gradient - gram @ correction)))
        if np.linalg.norm(correction) <= SMALL_CORRECTION * np.linalg.norm(theta):
            break
    return theta, max(0.0, power)


def residual_pass(theta: NDArray, rows: Rows) -> tuple[NDArray[np.float64], float]:
    """(sum phi r^T, sum ||r||^2) for the residuals r = y - phi theta, in one pass."""
    s = feature_weights(rows.width)[:, None]
    coef = as_coef(theta, rows.width)
    gradient, power = np.zeros((n_pairs(rows.width), rows.width, len(coef))), 0.0
    for block in rows.blocks():
        residual = block.targets - apply_coef(coef, block.pairs, block.queries)
        gradient += correlate(block.pairs, block.queries, residual)
        power += float(np.sum(residual**2))
    return gradient.reshape(theta.shape) / s, power


def as_coef(theta: NDArray, n_dims: int) -> NDArray[np.float64]:
    """Folded coefficients P (e, q, d) from theta (p, e)."""
    folded = theta / feature_weights(n_dims)[:, None]
    return np.ascontiguousarray(folded.T).reshape(-1, n_pairs(n_dims), n_dims)


def _cholesky(
    gram: NDArray, ridge: float, scale: NDArray
) -> tuple[NDArray[np.float64] | None, float]:
    """The factor of the equilibrated, penalised Gram and its rcond; None if it is not safe."""
    matrix = np.asfortranarray(gram / scale / scale[:, None])
    matrix[np.diag_indices_from(matrix)] += ridge / scale**2
    norm = float(np.abs(matrix).sum(axis=0).max())
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        return None, 0.0
    rcond, _ = lapack.dpocon(factor, norm, uplo="L")
    return (factor, float(rcond)) if rcond > SAFE_RCOND else (None, float(rcond))


def _solve(factor: NDArray, rhs: NDArray, scale: NDArray) -> NDArray[np.float64]:
    solution, _ = lapack.dpotrs(factor, np.asfortranarray(rhs / scale[:, None]), lower=1)
    return np.ascontiguousarray(solution / scale[:, None])
