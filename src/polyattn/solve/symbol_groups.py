"""Least squares for counts of symbols: one small problem for each symbol that asks.

Accepts the groups of ``features/symbol_counts.py``, which share no feature.  Features have weight
one in the norm of T, and those that never occur have coefficient 0 at the minimum of the norm, so
that the minimisers of all groups, side by side, are the minimiser that every other solver finds.

Counts are integers, and so are their second moments: while the condition number allows it a group
is solved by a Cholesky factorisation of these, or of the kernel where positions are fewer than
symbols, with one refinement; otherwise by ``solve_root``, with its rank rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import lsmr

from polyattn.features.symbol_counts import equal_rows
from polyattn.solve.direct import economic_qr, solve_root
from polyattn.solve.solution import left_to_rounding

# Squares of condition numbers up to the inverse of this are left to Cholesky and a refinement.
LEAST_RCOND = 1e-8

# Larger groups, by the smaller of positions and symbols, are solved by iteration.
LARGEST_SIDE = 6144

# Below this share of numbers that are not zero, products of sparse matrices are faster.
DENSE_SHARE = 0.1

# Rows of a tall group that are factored together, beside as many as it has columns.
FACTORED_ROWS = 4096

# Passes of the iteration, and the relative gradient at which it ends.
MOST_PASSES, GRADIENT = 4000, 1e-14


@dataclass(frozen=True, eq=False)
class GroupSolution:
    """The minimiser of one group.

    theta : (k, e)
    rank : of the counts; None where a penalty made it irrelevant, or it was not examined
    condition : of the counts (equilibrated, with the ridge), estimated; NaN if it is unknown
    residual_power : sum of weighted squared residuals
    is_reached : False where an iteration had to stop before
    uncertain : the part of theta that a small ridge leaves to rounding
    """

    theta: NDArray[np.float64]
    rank: int | None
    condition: float
    residual_power: float
    note: str = ""
    is_reached: bool = True
    uncertain: float = 0.0


def solve_group(
    counts: csr_array, targets: NDArray, weights: NDArray | None, ridge: float
) -> GroupSolution:
    """The minimiser for counts (rows, k), targets (rows, e) and weights (rows,) > 0.

    Guarantee: least squared error + ridge ||theta||^2; without a ridge that of smallest norm.
    Cost: with s = min(rows, k) about s^2 max(rows, k) + s^3/3 flops, ten times as many where
    counts depend on each other; memory s^2 numbers.
    """
    root, rhs = _merged(counts, targets, weights)
    rows, k = root.shape
    if min(rows, k) == 0:
        theta = np.zeros((k, targets.shape[1]))
        found = GroupSolution(theta, 0 if ridge == 0 else None, 1.0, 0.0)
    elif min(rows, k) > LARGEST_SIDE:
        found = _by_iteration(root, rhs, ridge)
    else:
        found = _by_cholesky(root, rhs, ridge) or _by_root(root, rhs, ridge)
    residuals = targets - counts @ found.theta
    power = residuals**2 if weights is None else weights[:, None] * residuals**2
    # Of rows that were merged, only what their means leave is in the equations.
    inside = float(np.sum((rhs - root @ found.theta) ** 2))
    return replace(
        found, residual_power=float(power.sum()),
        uncertain=left_to_rounding(found.theta, inside, found.condition, ridge),
    )  # fmt: skip


def _merged(
    counts: csr_array, targets: NDArray, weights: NDArray | None
) -> tuple[csr_array, NDArray[np.float64]]:
    """Rows with square roots of weights; equal rows as one, with the mean of their targets.

    That changes the squared error by a constant, and takes out the most common dependence.  Rows
    that attend to nothing are left out: nothing changes their error.
    """
    seen = np.diff(counts.indptr) > 0
    if not seen.all():
        counts, targets = counts[seen], targets[seen]
        weights = None if weights is None else weights[seen]
    places, first = equal_rows(counts)
    mass = np.bincount(places, weights, minlength=len(first)).astype(np.float64)
    shares = (np.ones(len(places)) if weights is None else weights) / mass[places]
    means = csr_array(
        (shares, (places, np.arange(len(places)))), shape=(len(first), len(places))
    ) @ targets.astype(np.float64, copy=False)
    roots = np.sqrt(mass)
    return csr_array(diags_array(roots) @ counts[first]), roots[:, None] * means


def _by_cholesky(root: csr_array, rhs: NDArray, ridge: float) -> GroupSolution | None:
    """From second moments, or from the kernel; None where the condition number is too large."""
    rows, k = root.shape
    tall = rows >= k
    matrix = _gram(root if tall else csr_array(root.T))
    diagonal = np.einsum("ii->i", matrix)
    diagonal += ridge
    scale = 1.0 / np.sqrt(diagonal)
    size = float(np.abs(matrix * scale[:, None] * scale).sum(axis=0).max())
    factor, info = lapack.dpotrf(matrix * scale[:, None] * scale, lower=1, overwrite_a=1)
    if info:
        return None
    rcond, _ = lapack.dpocon(factor, size, uplo="L")
    if not rcond > LEAST_RCOND:
        return None

    def solved(right: NDArray) -> NDArray[np.float64]:
        inside = cho_solve((factor, True), scale[:, None] * right, check_finite=False)
        return np.asarray(scale[:, None] * inside)

    if tall:
        theta = solved(root.T @ rhs)
        theta += solved(root.T @ (rhs - root @ theta) - ridge * theta)
    else:
        alpha = solved(rhs)
        alpha += solved(rhs - root @ (root.T @ alpha) - ridge * alpha)
        theta = root.T @ alpha
    return GroupSolution(
        theta, None if ridge > 0 else min(rows, k), 1.0 / float(np.sqrt(rcond)), 0.0
    )


def _gram(root: csr_array) -> NDArray[np.float64]:
    """root^T root, dense."""
    rows, k = root.shape
    if root.nnz < DENSE_SHARE * rows * k:
        return np.asarray((root.T @ root).toarray(order="F"))
    result = np.zeros((k, k), order="F")
    step = max(FACTORED_ROWS, k)
    for first in range(0, rows, step):
        dense = root[first : first + step].toarray()
        result += dense.T @ dense
    return result


def _by_root(root: csr_array, rhs: NDArray, ridge: float) -> GroupSolution:
    """By orthogonal factors of the counts themselves, with the rank rule of the library."""
    rows, k = root.shape
    if rows > k:
        matrix, right = _triangle(root, rhs)
    else:
        matrix, right = root.toarray(), rhs
    found = solve_root(matrix, right, ridge, rows, exact_rows=rows <= k)
    return GroupSolution(found.theta, found.rank, found.condition, 0.0, found.note)


def _triangle(root: csr_array, rhs: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """R and Q^T rhs of a tall root, some rows at a time."""
    rows, k = root.shape
    triangle, right = np.empty((0, k)), np.empty((0, rhs.shape[1]))
    step = max(FACTORED_ROWS, k)
    for first in range(0, rows, step):
        some = slice(first, first + step)
        basis, triangle = economic_qr(np.concatenate([triangle, root[some].toarray()]))
        right = basis.T @ np.concatenate([right, rhs[some]])
    return triangle, right


def _by_iteration(root: csr_array, rhs: NDArray, ridge: float) -> GroupSolution:
    """LSMR, output by output: it starts from zero, and stays in the row space."""
    theta, reached = np.empty((root.shape[1], rhs.shape[1])), True
    for output in range(rhs.shape[1]):
        found, stop, *_ = lsmr(
            root, rhs[:, output], damp=float(np.sqrt(ridge)), atol=GRADIENT, btol=GRADIENT,
            conlim=0.0, maxiter=MOST_PASSES,
        )  # fmt: skip
        theta[:, output] = found
        # 7: passes ended before the gradient was small.
        reached = reached and stop != 7
    return GroupSolution(theta, None, float("nan"), 0.0, "", reached)
