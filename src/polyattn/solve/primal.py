"""The primal solver: normal equations of the moments, refined with one more pass over the data.

Accepts any number of rows; memory and time are those of a p x p matrix.
Equals ``sklearn.linear_model.Ridge(solver="cholesky", fit_intercept=False)`` on features of which
folded ones are multiplied by sqrt(2).

Normal equations square the condition number.  While the (equilibrated) Gram is safely definite,
a pass for the residual, solved with the same factor, brings least-squares accuracy back.  When
it is not, features that are zero or multiples of others are taken out (``structure.py``).  When
that does not help, the rows are factored by QR, without squaring; with moments alone, by
eigenvalues.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.features.products import add_correlation, apply_coef
from polyattn.numerics.blas import factor_lower
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import NORM_LOST, column_scale, minimum_norm, solve_tall
from polyattn.solve.solution import Solution
from polyattn.solve.structure import FeatureGroups, find_structure
from polyattn.stats import Moments
from polyattn.stats.of_source import moments_of
from polyattn.stats.passes import summed
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

# A Gram matrix better conditioned than this is solved by Cholesky and refined.
SAFE_RCOND = 1e-11

# Refinement stops once a correction is this small, after at most so many passes.
SMALL_CORRECTION, MAX_PASSES = 1e-7, 4


def solve_primal(source: Rows | Moments, ridge: float, known: Moments | None = None) -> Solution:
    """The minimiser from moments; of rows they are made first, and rows allow the refinement.

    known : the moments of these rows, if they were made before
    """
    rows = None if isinstance(source, Moments) else source
    moments = source if isinstance(source, Moments) else known or moments_of(source)
    structure = None
    solution = solve_definite(moments, rows, ridge)
    if solution is None:
        structure = find_structure(moments.scaled_gram(1.0 / moments.layout.feature_weights), rows)
    if structure is not None and len(structure.kept):
        solution = solve_definite(moments, rows, ridge, structure)
    if solution is None and rows is not None:
        solution = solve_tall(rows, ridge)
    if solution is None:
        s = moments.layout.feature_weights
        gram, cross = moments.scaled_gram(1.0 / s), moments.scaled_cross() / s[:, None]
        power = moments.scaled_target_power()
        unit = EPS * moments.cancellation
        solution = solve_gram(gram, cross, power, ridge, _scale(moments, ridge), unit)
    return replace(solution, statistics=moments, structure=structure)


def solve_definite(
    moments: Moments, rows: Rows | None, ridge: float, structure: FeatureGroups | None = None
) -> Solution | None:
    """The minimiser by Cholesky and refinement; None unless the Gram is safely definite.

    structure : which features are solved for, and stand for the others
    """
    s, scale = moments.layout.feature_weights, _scale(moments, ridge)
    cross = moments.scaled_cross() / s[:, None]
    if structure is None:
        if not np.all(moments.scaled_feature_powers() > 0) and ridge == 0:
            return None
        matrix = moments.scaled_gram(1.0 / (s * scale))
    else:
        matrix = structure.reduced(moments.scaled_gram(1.0 / s))
        scale = column_scale(np.sqrt(matrix.diagonal() + ridge))
        matrix = matrix / scale / scale[:, None]
    matrix[np.diag_indices_from(matrix)] += ridge / scale**2
    # The matrix is symmetric, so its transpose is itself in the order that LAPACK wants.
    factor = matrix.T
    rcond = factor_definite(factor)
    if not rcond > SAFE_RCOND * moments.cancellation:
        return None

    def solved(rhs: NDArray) -> NDArray[np.float64]:
        rhs = rhs if structure is None else structure.gathered(rhs)
        solution, _ = lapack.dpotrs(factor, np.asfortranarray(rhs / scale[:, None]), lower=1)
        found = np.ascontiguousarray(solution / scale[:, None])
        return found if structure is None else structure.expanded(found)

    theta = solved(cross)
    if rows is None:
        # sum ||y - phi theta||^2 with the normal equations (M + ridge) theta = b put in.
        power = float(moments.scaled_target_power() - np.sum(theta * (cross + ridge * theta)))
    else:
        for _ in range(MAX_PASSES):
            gradient, power = residual_pass(theta, rows)
            # The correction C solves (M + ridge) C = gradient - ridge theta, which gives M C.
            correction = solved(gradient - ridge * theta)
            theta = theta + correction
            power -= float(np.sum(correction * (gradient + ridge * theta)))
            if np.linalg.norm(correction) <= SMALL_CORRECTION * np.linalg.norm(theta):
                break
    rank = len(scale) if ridge == 0 else None
    return Solution(theta, rank, max(0.0, power), float(np.sqrt(1.0 / rcond)), ridge)


def factor_definite(matrix: NDArray) -> float:
    """The reciprocal condition number of a symmetric matrix, which becomes its lower factor.

    0 where it is not definite.  The matrix is in the order that LAPACK wants.
    """
    norm = lapack.dlange("1", matrix)
    return float(lapack.dpocon(matrix, norm, uplo="L")[0]) if factor_lower(matrix) else 0.0


def solve_gram(
    gram: NDArray,
    cross: NDArray,
    target_power: float,
    ridge: float,
    scale: NDArray,
    unit: float = EPS,
) -> Solution:
    """The minimiser of smallest norm from a Gram matrix alone, by its eigenvalues.

    unit : by how much one rounding changes an entry, relative to its row and column
    Squaring costs half the digits: what is below about 1e-7 of the largest singular value
    cannot be told from zero.
    """
    p = len(gram)
    equilibrated = gram / scale / scale[:, None]
    equilibrated[np.diag_indices_from(equilibrated)] += ridge / scale**2
    eigenvalues, vectors = (array[..., ::-1] for array in np.linalg.eigh(equilibrated))
    vectors[equilibrated.diagonal() == 0] = 0.0  # as in solve_root
    largest = max(float(eigenvalues[0]), 1.0)
    rank = int(np.count_nonzero(eigenvalues > unit * 10.0 * p * largest))
    # What counts as zero is unknown up to rounding, and may have an effect of that size.
    sigma = np.sqrt(np.maximum(eigenvalues, unit * largest))
    projected = vectors[:, :rank].T @ (cross / scale[:, None]) / sigma[:rank, None]
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
    allowed = float(np.sqrt(unit * 10.0 * p) * condition * np.sqrt(target_power))
    theta, note = minimum_norm(vectors.T, sigma, projected, scale, allowed)
    residual = target_power - float(np.sum(theta * (2 * cross - gram @ theta)))
    seen = (
        " The rank was judged from second moments, which cannot see singular values below 1e-7 "
        f"of the largest; a TriangularFactor can.{note}"
    )
    known_rank, note = rank if ridge == 0 else None, seen if rank < p else ""
    reached = NORM_LOST not in note
    return Solution(
        theta, known_rank, max(0.0, residual), condition, ridge, note, is_reached=reached
    )


def residual_pass(
    theta: NDArray, rows: Rows, with_targets: bool = True
) -> tuple[NDArray[np.float64], float]:
    """(sum phi r^T, sum ||r||^2) for the residuals r = y - phi theta, in one pass.

    ``with_targets=False``: for y = 0, and theta of any number of columns.
    """
    layout = rows.layout
    coef = layout.as_coef(theta)
    gradient, power = summed(rows, _residuals, coef, with_targets)
    kept = layout.select(gradient.reshape(-1, len(coef)))
    return kept / layout.feature_weights[:, None], power


def _residuals(
    _: Rows, blocks: list[RowBlock], coef: NDArray, with_targets: bool
) -> tuple[NDArray[np.float64], float]:
    """The two sums of ``residual_pass`` over some blocks, the first one (m, r, e)."""
    gradient, power = np.zeros((*coef.shape[1:], len(coef))), 0.0
    for block in blocks:
        outputs = apply_coef(coef, block.sums, block.queries)
        residual = block.targets - outputs if with_targets else -outputs
        add_correlation(gradient, block.sums, block.queries, residual)
        power += float(np.sum(residual**2))
    return gradient, power


def _scale(moments: Moments, ridge: float) -> NDArray[np.float64]:
    """Powers of two that bring all features to a similar size."""
    s = moments.layout.feature_weights
    return column_scale(np.sqrt(moments.scaled_feature_powers() / s**2 + ridge))
