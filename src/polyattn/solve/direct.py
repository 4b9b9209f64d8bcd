"""The direct solver: orthogonal factorisation of the features, no condition number squared.

Accepts any data; for at least as many rows as features the rows are factored in a stream
(memory O(p^2)), for fewer the features are held in memory (rows x p numbers).
Equals ``numpy.linalg.lstsq`` on features of which folded ones are multiplied by sqrt(2).

The rank is judged after the columns are brought to equal size, since features of coordinates
with different units differ by powers of those units without being dependent.  The minimum norm
is then taken in the true coordinates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from polyattn.features.products import apply_coef, features
from polyattn.numerics.scaling import EPS
from polyattn.solve.solution import Solution
from polyattn.solve.structure import rank_tolerance
from polyattn.stats import TriangularFactor
from polyattn.stats.passes import factor_of, of_parts
from polyattn.stats.rows import Rows

NORM_NOT_REACHED = (
    " Its norm was reduced only as far as the errors stay the same: the features differ so much in "
    "size that the smallest norm would cost more than rounding."
)

NORM_LOST = (
    " But the features differ so much in size that rounding hides which minimiser that is: "
    "predictions, also on the data, may be wrong. Bring coordinates and sequences to a similar "
    "size, or set ridge > 0."
)

ROUNDED = (
    " The features depend on each other so nearly that rounding adds {:.0e} of the power of the "
    "targets to the least squared error: a ridge, or sequences and coordinates of similar size, "
    "would lower it."
)

# Where rounding is seen in the error, singular values count as zero up to so many times rounding.
BLURS = (1.0, 1e2, 1e4, 1e6)

# Rounding that changes a risk by less than this part of the power of the targets is not mentioned.
SEEN_ROUNDING = 1e-6

# Features of condition numbers up to this, rows brought to equal size, need no further care.
GRADED = 1e6

# Targets are met where no more than this part of them is left.
MET_ROUNDING = 1e-13

# Directions of rows no larger than so many roundings of the largest feature are lost.  All four
# random problems that are known to be wrong have some, at up to 300, and 21 others of 400 with
# missing rank; a tenth or ten times as much changes that by one.
CLEAR = 1e3

# Refinements of the minimum norm; they end sooner when the residual stops falling.
MAX_REFINEMENTS = 8

economic_qr = partial(qr, mode="economic", check_finite=False)


def solve_direct(source: Rows | TriangularFactor, ridge: float) -> Solution:
    """The minimiser by QR (tall) or by singular values (wide)."""
    if isinstance(source, TriangularFactor):
        return replace(solve_factor(source, ridge), statistics=source)
    if source.n_rows >= source.n_features:
        return solve_tall(source, ridge)
    matrix, targets = feature_matrix(source)
    found = solve_root(matrix, targets, ridge, source.n_rows, exact_rows=True)
    if ridge == 0 and found.rank != source.n_rows:
        return _independent_rows(matrix, targets) or found
    return found


def _independent_rows(matrix: NDArray, targets: NDArray) -> Solution | None:
    """The theta of least norm that meets the targets of rows of very different size exactly.

    Where rows do not depend on each other it does, whatever their weights, beside which small
    rows vanish.  None where they depend, are of similar size, or rounding of small rows would be
    seen in large ones.
    """
    sizes = np.abs(matrix).max(axis=1)
    some = sizes > 0
    if not np.any(some) or float(sizes[some].min()) * GRADED > float(sizes.max()):
        return None
    scale = column_scale(sizes[some])[:, None]
    found = solve_root(matrix[some] / scale, targets[some] / scale, 0.0, len(scale))
    power = float(np.sum((targets - matrix @ found.theta) ** 2))
    is_met = power <= MET_ROUNDING**2 * float(np.sum(targets**2))
    return replace(found, residual_power=power) if is_met and found.rank == len(scale) else None


def feature_matrix(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (rows, p) in the coordinates of the norm, and targets (rows, e), both weighted."""
    matrix = np.empty((rows.n_rows, rows.n_features))
    targets = np.empty((rows.n_rows, rows.n_outputs))
    for block in rows.blocks():
        matrix[block.first : block.stop] = features(rows.layout, block.sums, block.queries).T
        targets[block.first : block.stop] = block.targets.T
    matrix /= rows.layout.feature_weights
    return matrix, targets


def solve_tall(rows: Rows, ridge: float) -> Solution:
    """The minimiser from the triangular factor of rows, and the squared error that it really has.

    The factor knows the least error; coefficients that are large beside it round away from that.
    Then directions in which the features vary less are given up, if that lowers the error.
    """
    factor = factor_of(rows)
    whole = float(np.sum(factor.scaled_projection() ** 2)) + factor.scaled_residual_power()
    tried: list[Solution] = []
    least = whole  # that of zeros
    for blur in BLURS if ridge == 0 else BLURS[:1]:
        solution = solve_factor(factor, ridge, blur)
        least = min(least, solution.residual_power)
        power = _residual_power(solution.theta, rows)
        tried.append(replace(solution, residual_power=power))
        if power - least <= SEEN_ROUNDING * whole:
            return tried[-1]
    found = min(tried, key=lambda each: each.residual_power)
    excess = (found.residual_power - least) / whole
    return replace(found, note=found.note + ROUNDED.format(excess), is_reached=False)


def _residual_power(theta: NDArray, rows: Rows) -> float:
    """sum ||y - phi theta||^2."""
    coef = rows.layout.as_coef(theta)
    return float(sum(of_parts(rows, _power_of_part, coef)))


def _power_of_part(rows: Rows, coef: NDArray) -> float:
    power = 0.0
    for block in rows.blocks():
        residual = block.targets - apply_coef(coef, block.sums, block.queries)
        power += float(np.sum(residual**2))
    return power


def solve_factor(factor: TriangularFactor, ridge: float, blur: float = 1.0) -> Solution:
    """The minimiser from a triangular factor alone."""
    root = factor.scaled_factor() / factor.layout.feature_weights
    inside = solve_root(root, factor.scaled_projection(), ridge, factor.n_rows, blur=blur)
    return replace(inside, residual_power=inside.residual_power + factor.scaled_residual_power())


def solve_root(
    root: NDArray,
    rhs: NDArray,
    ridge: float,
    n_rows: int,
    exact_rows: bool = False,
    blur: float = 1.0,
) -> Solution:
    """Least squares from a root: root^T root = sum phi phi^T and root^T rhs = sum phi y^T.

    ``root`` (m, p) is a triangular factor or the features themselves; ``residual_power`` of
    the result counts only what is inside the root.  ``exact_rows``: each row is known relative
    to itself, as features are, and not only relative to the largest.  ``blur``: singular values
    count as zero up to so many times rounding.
    """
    m, p = root.shape
    if ridge > 0 and m < p:
        theta, condition = _wide_ridge(root, rhs, ridge, exact_rows)
        return Solution(theta, None, float(np.sum((rhs - root @ theta) ** 2)), condition, ridge)
    if ridge > 0:
        # Least squares with p more rows, sqrt(ridge) I: columns keep their own scale.
        basis, triangle = economic_qr(np.concatenate([root, np.sqrt(ridge) * np.eye(p)]))
        padded = np.concatenate([rhs, np.zeros((p, rhs.shape[1]))])
        solution = solve_root(triangle, basis.T @ padded, 0.0, n_rows)
        power = float(np.sum((rhs - root @ solution.theta) ** 2))
        return replace(solution, rank=None, residual_power=power, ridge=ridge)
    norms = np.sqrt(np.einsum("mp,mp->p", root, root))
    scale = column_scale(norms)
    tolerance = blur * rank_tolerance(p, n_rows)
    rank, note, rcond = p, "", triangular_rcond(root, scale)
    if rcond > tolerance:
        theta, condition = solve_triangular(root, rhs), 1.0 / rcond
    else:
        left, sigma, right = np.linalg.svd(root / scale, full_matrices=False)
        # Rounding in the place of a zero column would be magnified: no other scale is comparable.
        right[:, norms == 0] = 0.0
        rank = int(np.count_nonzero(sigma > tolerance * max(sigma[0], 1.0)))
        projected = left[:, :rank].T @ rhs
        condition = float(sigma[0] / sigma[rank - 1]) if rank else 1.0
        # Outputs are known up to rounding times the condition number.
        allowed = tolerance * condition * float(np.linalg.norm(rhs))
        theta, note = minimum_norm(right, sigma, projected, scale, allowed)
    power = float(np.sum((rhs - root @ theta) ** 2))
    reached = note != NORM_LOST
    return Solution(theta, rank, power, condition, 0.0, note, is_reached=reached)


def minimum_norm(
    right: NDArray, sigma: NDArray, projected: NDArray, scale: NDArray, allowed: float
) -> tuple[NDArray[np.float64], str]:
    """The theta of least ||theta|| with sigma right (scale * theta) = projected, and a note.

    right (m, p), sigma (m,) are singular vectors and values, of which the first ``rank`` =
    len(projected) count.  The row space in true coordinates is spanned by scale * right^T = Q R,
    so theta = Q w with R^T w = projected / sigma.  Scales of many orders magnify its rounding in
    small entries: the equations are refined, and what is left of their residual, if it is more
    than rounding, is removed entry by entry, at the cost of that much in the norm.

    Singular values that count as zero are not exactly zero.  Where the minimum norm lies so far
    along their vectors that residuals would grow by more than ``allowed``, only so much of the way
    is gone from the solution without any part along them.

    Singular vectors err by rounding in every entry: in true coordinates that may hide directions of
    small features beside the largest, and the note says so.
    """
    rank, column = len(projected), scale[:, None]
    kept, wanted = right[:rank].T, projected / sigma[:rank, None]
    theta, is_lost = np.zeros((len(scale), wanted.shape[1])), False
    if rank:
        # By size, and with columns exchanged, QR errs in each row relative to that row.
        # Rows of zeros have no size: they come last, whatever the units of the others.
        order = np.argsort(-np.where(kept.any(axis=1), scale, 0.0), kind="stable")
        basis, triangle, columns = economic_qr((column * kept)[order], pivoting=True)
        basis = basis[np.argsort(order)]
        missing = wanted
        for _ in range(MAX_REFINEMENTS):
            solved = solve_triangular(triangle, missing[columns], trans="T", check_finite=False)
            step = basis @ solved
            left = wanted - kept.T @ (column * (theta + step))
            if not np.linalg.norm(left) < 0.5 * np.linalg.norm(missing):
                break
            theta, missing = theta + step, left
        # What is left is removed entry by entry, unless outputs round by as much.
        if np.linalg.norm(sigma[:rank, None] * missing) > allowed * sigma[rank - 1] / sigma[0]:
            theta = theta + kept @ missing / column
        rounding = EPS * scale[kept.any(axis=1)].max()
        is_lost = rank < len(scale) and np.abs(triangle.diagonal()).min() <= CLEAR * rounding
    plain = kept @ wanted / column
    cost = float(np.linalg.norm(sigma[rank:, None] * (right[rank:] @ (column * (theta - plain)))))
    if cost > allowed:
        theta = plain + (allowed / cost) * (theta - plain)
    return theta, NORM_LOST if is_lost else NORM_NOT_REACHED if cost > allowed else ""


def column_scale(norms: NDArray) -> NDArray[np.float64]:
    """Powers of two near the column norms (1 for a zero column): dividing by them is exact."""
    # By frexp, not by a logarithm: powers of two in the data must not change how others round.
    exponents = np.frexp(norms * np.sqrt(2.0))[1] - 1
    return np.where(norms > 0, np.ldexp(1.0, exponents), 1.0)


def _wide_ridge(
    root: NDArray, rhs: NDArray, ridge: float, exact_rows: bool
) -> tuple[NDArray[np.float64], float]:
    """The least ||theta||^2 + ||z||^2 with root theta + sqrt(ridge) z = rhs, and a condition.

    The rows of (root, sqrt(ridge) I) are independent, so their QR factors solve it: backward
    stable for each row [Demmel, Higham 1993], and nothing has to be called zero.  Where features
    differ by many orders, rows and columns are taken by size: QR then errs in each feature
    relative to that feature [Cox, Higham 1998], and residuals stay those of the minimiser.
    """
    n_rows, p = root.shape
    augmented = np.concatenate([root.T, np.sqrt(ridge) * np.eye(n_rows)])
    basis, triangle = economic_qr(augmented)
    # Rows may differ in size by their weights: that is not a matter of condition, unless they are
    # those of a triangular factor, which err relative to the largest.
    norms = np.linalg.norm(triangle, axis=0)
    scale = column_scale(norms) if exact_rows else np.ones_like(norms)
    condition = 1.0 / triangular_rcond(triangle, scale)
    order: slice | NDArray = slice(None)
    if condition > GRADED:
        order = np.argsort(-np.abs(augmented).max(axis=1), kind="stable")
        basis, triangle, columns = economic_qr(augmented[order], pivoting=True)
        rhs = rhs[columns]
    inside = np.empty((len(augmented), rhs.shape[1]))
    inside[order] = basis @ solve_triangular(triangle, rhs, trans="T", check_finite=False)
    return inside[:p], condition


def triangular_rcond(root: NDArray, scale: NDArray) -> float:
    """Reciprocal condition number of a square triangular root; 0 for any other."""
    m, p = root.shape
    if m != p or np.any(np.tril(root, -1)):
        return 0.0
    rcond, _ = lapack.dtrcon(np.asfortranarray(root / scale), norm="1", uplo="U", diag="N")
    return float(rcond)
