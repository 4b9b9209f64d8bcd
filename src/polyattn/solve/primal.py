"""The primal solver: normal equations of the moments, refined with one more pass over the data.

Accepts any number of rows; memory and time are those of a p x p matrix.
Equals ``sklearn.linear_model.Ridge(solver="cholesky", fit_intercept=False)`` on features whose
off-diagonal columns are multiplied by sqrt(2).

Normal equations square the condition number.  While the (equilibrated) Gram is safely definite,
a pass for the residual, solved with the same factor, brings least-squares accuracy back.  When
it is not, the rows are factored again by QR, without squaring; with moments alone, by eigenvalues.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.features.cubic import add_correlation, apply_coef
from polyattn.features.pairs import feature_weights, n_pairs
from polyattn.numerics.blas import factor_lower
from polyattn.numerics.parallel import deal, map_pieces, single_threaded_blas
from polyattn.solve.direct import solve_factor
from polyattn.solve.minimum_norm import column_scale, solve_gram
from polyattn.solve.solution import Solution
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import RowBlock, Rows

# A Gram matrix better conditioned than this is solved by Cholesky and refined.
SAFE_RCOND = 1e-11

# Refinement stops once a correction is this small, after at most so many passes.
SMALL_CORRECTION, MAX_PASSES = 1e-7, 4


def solve_primal(source: Rows | Moments, ridge: float) -> Solution:
    """The minimiser from moments; of rows they are made first, and rows allow the refinement."""
    if isinstance(source, Moments):
        moments, rows = source, None
    else:
        moments, rows = Moments.of(source), source
    solution = solve_definite(moments, rows, ridge)
    if solution is None and rows is not None:
        solution = solve_factor(TriangularFactor.of(rows), ridge)
    if solution is None:
        solution = _by_eigenvalues(moments, ridge)
    return replace(solution, statistics=moments)


def _by_eigenvalues(moments: Moments, ridge: float) -> Solution:
    s = feature_weights(moments.width)
    gram, cross = moments.scaled_gram(1.0 / s), moments.scaled_cross() / s[:, None]
    scale = _scale(moments, ridge)
    return solve_gram(gram, cross, moments.scaled_target_power(), ridge, scale)


def solve_definite(moments: Moments, rows: Rows | None, ridge: float) -> Solution | None:
    """The minimiser by Cholesky and refinement; None unless the Gram is safely definite."""
    cross = moments.scaled_cross() / feature_weights(moments.width)[:, None]
    scale = _scale(moments, ridge)
    factor, rcond = _cholesky(moments, scale, ridge)
    if factor is None:
        return None
    theta = _solve(factor, cross, scale)
    rank = len(scale) if ridge == 0 else None
    condition = float(np.sqrt(1.0 / rcond))
    if rows is None:
        # sum ||y - phi theta||^2 with the normal equations (M + ridge) theta = b put in.
        residual = moments.scaled_target_power() - np.sum(theta * (cross + ridge * theta))
        return Solution(theta, rank, max(0.0, float(residual)), condition, ridge)
    theta, residual_power = _refine(theta, rows, factor, scale, ridge)
    return Solution(theta, rank, residual_power, condition, ridge)


# Even a norm waits for threads that sleep, longer than it takes.
@single_threaded_blas()
def _refine(
    theta: NDArray, rows: Rows, factor: NDArray, scale: NDArray, ridge: float
) -> tuple[NDArray[np.float64], float]:
    """Add the solution for the residual; also returns the sum of squared residuals."""
    for _ in range(MAX_PASSES):
        gradient, power = residual_pass(theta, rows)
        correction = _solve(factor, gradient - ridge * theta, scale)
        # The correction C solves (M + ridge) C = gradient - ridge theta, which gives M C.
        theta = theta + correction
        power -= float(np.sum(correction * (gradient + ridge * theta)))
        if np.linalg.norm(correction) <= SMALL_CORRECTION * np.linalg.norm(theta):
            break
    return theta, max(0.0, power)


@single_threaded_blas()
def residual_pass(theta: NDArray, rows: Rows) -> tuple[NDArray[np.float64], float]:
    """(sum phi r^T, sum ||r||^2) for the residuals r = y - phi theta, in one pass."""
    s = feature_weights(rows.width)[:, None]
    coef = as_coef(theta, rows.width)
    gradient, power = np.zeros((n_pairs(rows.width), rows.width, len(coef))), 0.0
    for blocks in rows.groups():
        for some_gradient, some_power in map_pieces(partial(_residual_part, coef), deal(blocks)):
            gradient += some_gradient
            power += some_power
    return gradient.reshape(theta.shape) / s, power


def _residual_part(coef: NDArray, blocks: list[RowBlock]) -> tuple[NDArray[np.float64], float]:
    gradient, power = np.zeros((*coef.shape[1:], len(coef))), 0.0
    for block in blocks:
        residual = block.targets - apply_coef(coef, block.pairs, block.queries)
        add_correlation(gradient, block.pairs, block.queries, residual)
        power += float(np.sum(residual**2))
    return gradient, power


def as_coef(theta: NDArray, width: int) -> NDArray[np.float64]:
    """Folded coefficients P (e, q, d) from theta (p, e)."""
    folded = theta / feature_weights(width)[:, None]
    return np.ascontiguousarray(folded.T).reshape(-1, n_pairs(width), width)


def _scale(moments: Moments, ridge: float) -> NDArray[np.float64]:
    """Powers of two that bring all features to a similar size."""
    s = feature_weights(moments.width)
    return column_scale(np.sqrt(moments.scaled_feature_powers() / s**2 + ridge))


def _cholesky(
    moments: Moments, scale: NDArray[np.float64], ridge: float
) -> tuple[NDArray[np.float64] | None, float]:
    """The factor of the equilibrated, penalised Gram (None if not safe) and its rcond."""
    matrix = moments.scaled_gram(1.0 / (feature_weights(moments.width) * scale))
    matrix[np.diag_indices_from(matrix)] += ridge / scale**2
    norm = lapack.dlange("1", matrix.T)
    # The matrix is symmetric, so its transpose is itself in the order that LAPACK wants.
    factor = matrix.T
    definite = factor_lower(factor)
    # This waits for memory: one thread is as fast, and leaves none spinning behind.
    with single_threaded_blas():
        rcond = float(lapack.dpocon(factor, norm, uplo="L")[0]) if definite else 0.0
    return (factor if rcond > SAFE_RCOND else None), rcond


@single_threaded_blas()
def _solve(factor: NDArray, rhs: NDArray, scale: NDArray) -> NDArray[np.float64]:
    solution, _ = lapack.dpotrs(factor, np.asfortranarray(rhs / scale[:, None]), lower=1)
    return np.ascontiguousarray(solution / scale[:, None])
