"""Minimum-norm least squares from singular values: the method when the rank is in doubt.

The rank is judged after the columns are brought to equal size, since features of coordinates
with different units differ by powers of those units without being dependent.  The minimum norm
is then taken in the true coordinates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from polyattn.solve.solution import Solution

EPS = float(np.finfo(np.float64).eps)

NORM_NOT_REACHED = (
    " Its norm was reduced only as far as the errors stay the same: the features differ so much in "
    "size that the smallest norm would cost more than rounding."
)

# Features of condition numbers up to this, rows brought to equal size, need no further care.
GRADED = 1e6

# Refinements of the minimum norm; they end sooner when the residual stops falling.
MAX_REFINEMENTS = 8


def rank_tolerance(n_features: int, n_rows: int) -> float:
    """Below this part of the largest, a singular value of equilibrated columns is rounding."""
    return 4.0 * EPS * max(float(n_features), float(np.sqrt(n_rows)))


def solve_root(
    root: NDArray, rhs: NDArray, ridge: float, n_rows: int, exact_rows: bool = False
) -> Solution:
    """Least squares from a root: root^T root = sum phi phi^T and root^T rhs = sum phi y^T.

    ``root`` (m, p) is a triangular factor or the features themselves; ``residual_power`` of
    the result counts only what is inside the root.  ``exact_rows``: each row is known relative
    to itself, as features are, and not only relative to the largest.
    """
    if ridge > 0 and len(root) < root.shape[1]:
        return _wide_ridge(root, rhs, ridge, exact_rows)
    if ridge > 0:
        return _tall_ridge(root, rhs, ridge, n_rows)
    norms = np.sqrt(np.einsum("mp,mp->p", root, root))
    scale = column_scale(norms)
    tolerance = rank_tolerance(root.shape[1], n_rows)
    rcond = _triangular_rcond(root, scale)
    if rcond > tolerance:
        theta = solve_triangular(root, rhs)
        return Solution(theta, root.shape[1], _power(rhs - root @ theta), 1.0 / rcond, 0.0)
    left, sigma, right = np.linalg.svd(root / scale, full_matrices=False)
    # Rounding in the place of a zero column would be magnified: no other scale is comparable.
    right[:, norms == 0] = 0.0
    rank = int(np.count_nonzero(sigma > tolerance * max(sigma[0], 1.0)))
    projected = left[:, :rank].T @ rhs
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
    least = minimum_norm(right[:rank].T, sigma[:rank], projected, scale)
    # Outputs are known up to rounding times the condition number.
    allowed = tolerance * condition * _length(rhs)
    theta = _at_no_cost(least, right, sigma, projected, scale, allowed)
    note = "" if theta is least else NORM_NOT_REACHED
    return Solution(theta, rank, _power(rhs - root @ theta), condition, 0.0, note)


def solve_gram(
    gram: NDArray, cross: NDArray, target_power: float, ridge: float, scale: NDArray
) -> Solution:
    """The same from a Gram matrix alone, by its eigenvalues.

    Squaring costs half the digits: what is below about 1e-7 of the largest singular value
    cannot be told from zero.
    """
    p = len(gram)
    equilibrated = gram / scale / scale[:, None]
    equilibrated[np.diag_indices_from(equilibrated)] += ridge / scale**2
    eigenvalues, vectors = (array[..., ::-1] for array in np.linalg.eigh(equilibrated))
    vectors[equilibrated.diagonal() == 0] = 0.0  # as in solve_root
    largest = max(float(eigenvalues[0]), 1.0)
    rank = int(np.count_nonzero(eigenvalues > EPS * 10.0 * p * largest))
    # What counts as zero is unknown up to rounding, and may have an effect of that size.
    sigma = np.sqrt(np.maximum(eigenvalues, EPS * largest))
    projected = vectors[:, :rank].T @ (cross / scale[:, None]) / sigma[:rank, None]
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
    least = minimum_norm(vectors[:, :rank], sigma[:rank], projected, scale)
    allowed = np.sqrt(EPS * 10.0 * p) * condition * np.sqrt(target_power)
    theta = _at_no_cost(least, vectors.T, sigma, projected, scale, allowed)
    residual = target_power - float(np.sum(theta * (2 * cross - gram @ theta)))
    note = (
        " The rank was judged from second moments, which cannot see singular values below 1e-7 "
        "of the largest; a TriangularFactor can."
    ) + ("" if theta is least else NORM_NOT_REACHED)
    return Solution(
        theta,
        rank if ridge == 0 else None,
        max(0.0, residual),
        condition,
        ridge,
        note if rank < p else "",
    )


def minimum_norm(
    right: NDArray, sigma: NDArray, projected: NDArray, scale: NDArray
) -> NDArray[np.float64]:
    """The theta of least ||theta|| with sigma right^T (scale * theta) = projected.

    The row space in true coordinates is spanned by scale * right = Q R, so theta = Q w with
    R^T w = projected / sigma.  Rounding is relative to the largest entries of theta, and scales
    of many orders then magnify it in the small ones; so the equations are refined, and what is
    left of their residual is removed entry by entry, at the cost of that much in the norm.
    """
    if len(sigma) == 0:
        return np.zeros((len(scale), projected.shape[1]))
    basis, triangle = qr(scale[:, None] * right, mode="economic", check_finite=False)
    wanted = projected / sigma[:, None]
    theta, missing = np.zeros((len(scale), wanted.shape[1])), wanted
    for _ in range(MAX_REFINEMENTS):
        step = basis @ solve_triangular(triangle, missing, trans="T", check_finite=False)
        left = wanted - right.T @ (scale[:, None] * (theta + step))
        if not np.linalg.norm(left) < 0.5 * np.linalg.norm(missing):
            break
        theta, missing = theta + step, left
    return theta + right @ missing / scale[:, None]


def column_scale(norms: NDArray) -> NDArray[np.float64]:
    """Powers of two near the column norms (1 for a zero column): dividing by them is exact."""
    # By frexp, not by a logarithm: powers of two in the data must not change how others round.
    exponents = np.frexp(norms * np.sqrt(2.0))[1] - 1
    return np.where(norms > 0, np.ldexp(1.0, exponents), 1.0)


def _tall_ridge(root: NDArray, rhs: NDArray, ridge: float, n_rows: int) -> Solution:
    """Ridge as least squares with p more rows, sqrt(ridge) I: columns keep their own scale."""
    p = root.shape[1]
    stacked = np.concatenate([root, np.sqrt(ridge) * np.eye(p)])
    padded = np.concatenate([rhs, np.zeros((p, rhs.shape[1]))])
    basis, triangle = qr(stacked, mode="economic", check_finite=False)
    solution = solve_root(triangle, basis.T @ padded, 0.0, n_rows)
    power = _power(rhs - root @ solution.theta)
    return replace(solution, rank=None, residual_power=power, ridge=ridge)


def _wide_ridge(root: NDArray, rhs: NDArray, ridge: float, exact_rows: bool) -> Solution:
    """Ridge as the least ||theta||^2 + ||z||^2 with root theta + sqrt(ridge) z = rhs.

    The rows of (root, sqrt(ridge) I) are independent, so their QR factors solve it: backward
    stable for each row [Demmel, Higham 1993], and nothing has to be called zero.
    """
    n_rows, p = root.shape
    augmented = np.concatenate([root.T, np.sqrt(ridge) * np.eye(n_rows)])
    basis, triangle = qr(augmented, mode="economic", check_finite=False)
    # Rows may differ in size by their weights: that is not a matter of condition, unless they are
    # those of a triangular factor, which err relative to the largest.
    norms = np.linalg.norm(triangle, axis=0)
    scale = column_scale(norms) if exact_rows else np.ones_like(norms)
    condition = 1.0 / _triangular_rcond(triangle, scale)
    if condition > GRADED:
        inside = _graded_ridge(augmented, rhs)
    else:
        inside = basis @ solve_triangular(triangle, rhs, trans="T", check_finite=False)
    theta = inside[:p]
    return Solution(theta, None, _power(rhs - root @ theta), condition, ridge)


def _graded_ridge(augmented: NDArray, rhs: NDArray) -> NDArray[np.float64]:
    """The same where features differ by many orders in size: (theta, z) stacked.

    With the largest features first and columns in the order of their size, QR errs in each
    feature relative to that feature [Cox, Higham 1998]: residuals stay those of the minimiser.
    """
    order = np.argsort(-np.abs(augmented).max(axis=1), kind="stable")
    basis, triangle, columns = qr(
        augmented[order], mode="economic", pivoting=True, check_finite=False
    )
    inside = np.empty((len(augmented), rhs.shape[1]))
    inside[order] = basis @ solve_triangular(triangle, rhs[columns], trans="T", check_finite=False)
    return inside


def _triangular_rcond(root: NDArray, scale: NDArray) -> float:
    """Reciprocal condition number of a square triangular root; 0 for any other."""
    m, p = root.shape
    if m != p or np.any(np.tril(root, -1)):
        return 0.0
    rcond, _ = lapack.dtrcon(np.asfortranarray(root / scale), norm="1", uplo="U", diag="N")
    return float(rcond)


def _at_no_cost(
    theta: NDArray, right: NDArray, sigma: NDArray, projected: NDArray, scale: NDArray,
    allowed: float,
) -> NDArray[np.float64]:  # fmt: skip
    """Go towards the minimum norm only as far as residuals stay the same, up to ``allowed``.

    Singular values that count as zero are not exactly zero.  Where columns differ by many orders
    the minimum norm may lie so far along their vectors that residuals would grow; then the
    solution without any part along them comes first.
    """
    rank = len(projected)
    plain = right[:rank].T @ (projected / sigma[:rank, None]) / scale[:, None]
    cost = _length(sigma[rank:, None] * (right[rank:] @ (scale[:, None] * (theta - plain))))
    return theta if cost <= allowed else plain + (allowed / cost) * (theta - plain)


def _length(matrix: NDArray) -> float:
    return float(np.linalg.norm(matrix))


def _power(residual: NDArray) -> float:
    return float(np.sum(residual**2))
