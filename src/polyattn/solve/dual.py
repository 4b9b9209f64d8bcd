"""The dual solver: one N x N kernel matrix, whatever the width of the tokens.

Accepts any data; meant for fewer rows than features (wide tokens).  Equals
``sklearn.kernel_ridge.KernelRidge(kernel="precomputed")`` with the kernel <S,S'> <u,u'>.

Rows are first brought to size one by powers of two: neither tokens nor weights of any size change
a digit.  The kernel squares the condition number; residuals of the features themselves, solved for
with the same factor, bring the lost digits back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.features.products import (
    COLUMN_BLOCK,
    apply_coef,
    correlate,
    feature_norms,
    kernel_lower,
)
from polyattn.form.layout import Layout
from polyattn.numerics.blas import factor_lower
from polyattn.numerics.parallel import map_pieces
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import column_scale, solve_direct
from polyattn.solve.solution import Solution
from polyattn.stats.rows import Rows

# A kernel matrix better conditioned than this is solved by Cholesky and refined.
SAFE_RCOND = 1e-12

# Refinement stops once a correction is this small, or after so many.
SMALL_CORRECTION, MAX_REFINEMENTS = 1e-7, 3

# Equations that miss the targets by more than this part were lost in rounding.
UNSEEN_RESIDUAL = 1e-6

# Up to so many features (268 MB), a kernel that is singular to rounding is given up for them.
FEATURE_NUMBERS = 1 << 25

SINGULAR = (
    " The kernel matrix is singular to working precision: what is below 1e-7 of its largest "
    "features was taken as zero."
)
HIDDEN = (
    " It is not zero: coefficients may be off by {:.0e} of their norm, and the squared error by "
    "{:.0e} of the power of the targets. solver='direct' takes longer and finds them."
)


def solve_dual(rows: Rows, ridge: float) -> Solution:
    """The minimiser theta = sum_i alpha_i phi_i with (K + ridge) alpha = y."""
    gathered = Gathered(rows.layout, *gather(rows))
    solution = _by_cholesky(gathered, ridge)
    if solution is not None:
        return solution
    if rows.n_rows * rows.n_features <= FEATURE_NUMBERS:
        # What the kernel lost by squaring is still in the features.
        return solve_direct(rows, ridge)
    return _by_eigenvalues(gathered, ridge)


def gather(rows: Rows) -> tuple[NDArray, NDArray, NDArray]:
    """All summaries at once: sums (m, N), queries (r, N) and targets (N, e)."""
    # Rows of weight zero would make the kernel singular: they are left out.
    weights = rows.row_weights
    sums = np.empty((rows.layout.n_sums, rows.n_positive))
    queries = np.empty((rows.layout.n_queries, rows.n_positive))
    targets = np.empty((rows.n_positive, rows.n_outputs))
    at = 0
    for block in rows.blocks():
        # A slice of all rows copies several times faster than their indices.
        inside: slice | NDArray = slice(None)
        if weights is not None:
            inside = np.flatnonzero(weights[block.first : block.stop])
        some = block.queries[:, inside]
        to = slice(at, at := at + some.shape[1])
        queries[:, to] = some
        sums[:, to] = block.sums[:, inside]
        targets[to] = block.targets[:, inside].T
    return sums, queries, targets


@dataclass(frozen=True)
class Gathered:
    """All summaries and targets in memory."""

    layout: Layout
    sums: NDArray[np.float64]  # (m, N)
    queries: NDArray[np.float64]  # (r, N)
    targets: NDArray[np.float64]  # (N, e)

    def combine(self, alpha: NDArray) -> NDArray[np.float64]:
        """theta (p, e) = sum_i phi_i alpha_i, without forming the features of any row."""
        m, r, n_outputs = len(self.sums), len(self.queries), alpha.shape[1]
        theta = np.empty((m, r, n_outputs))
        # Outputs in groups, so that the products of queries and alpha stay small beside the kernel.
        step = max(1, (1 << 25) // (r * self.sums.shape[1]))
        for first in range(0, n_outputs, step):
            some = np.ascontiguousarray(alpha[:, first : first + step].T)
            theta[:, :, first : first + step] = correlate(self.sums, self.queries, some)
        kept = self.layout.select(theta.reshape(m * r, n_outputs))
        return kept / self.layout.feature_weights[:, None]

    def residual(self, theta: NDArray) -> NDArray[np.float64]:
        """y - Phi theta, shape (N, e)."""
        return self.targets - apply_coef(self.layout.as_coef(theta), self.sums, self.queries).T


def _by_cholesky(given: Gathered, ridge: float) -> Solution | None:
    """The minimiser with rows of size one; None unless the kernel is safely definite."""
    # Powers of two u (N,) with u^2 (||phi||^2 + ridge) about one; 1 for a row of zeros.
    norms = feature_norms(given.layout, given.sums, given.queries)
    units = 1.0 / column_scale(np.hypot(norms, np.sqrt(ridge)))
    scaled = replace(given, queries=given.queries * units, targets=given.targets * units[:, None])
    matrix = kernel_lower(scaled.layout, scaled.sums, scaled.queries)
    shift = (np.sqrt(ridge) * units) ** 2
    # A row of zero features has no product with another: any positive number will do.
    empty = matrix.diagonal() + shift == 0.0
    shift[empty] = 1.0
    matrix[np.diag_indices_from(matrix)] += shift
    norm = _one_norm(matrix)
    rcond = float(lapack.dpocon(matrix, norm, uplo="L")[0]) if factor_lower(matrix) else 0.0
    if rcond <= SAFE_RCOND:
        return None
    alpha = lapack.dpotrs(matrix, np.asfortranarray(scaled.targets), lower=1)[0]
    theta = scaled.combine(alpha)
    # The residual is that of the features: its rounding is that of Phi theta, which the condition
    # number magnifies once, where that of K alpha is magnified twice [Bjorck 1987].
    for _ in range(MAX_REFINEMENTS):
        missing = scaled.residual(theta) - shift[:, None] * alpha
        correction = lapack.dpotrs(matrix, np.asfortranarray(missing), lower=1)[0]
        alpha = alpha + correction
        step = scaled.combine(correction)
        theta += step
        if np.linalg.norm(step) <= SMALL_CORRECTION * np.linalg.norm(theta):
            break
    residual = scaled.residual(theta) / units[:, None]
    missing = residual - (shift / units)[:, None] * alpha
    # Rows of very different size may all be met only by coefficients that round away the large.
    if np.linalg.norm(missing) > UNSEEN_RESIDUAL * np.linalg.norm(given.targets):
        return None
    rank = None if ridge > 0 else len(units) - int(np.count_nonzero(empty))
    return Solution(theta, rank, float(np.sum(residual**2)), float(np.sqrt(1 / rcond)), ridge)


def _by_eigenvalues(given: Gathered, ridge: float) -> Solution:
    """The pseudo-inverse where the kernel is singular to rounding."""
    lower = kernel_lower(given.layout, given.sums, given.queries)
    values, vectors = np.linalg.eigh(lower, UPLO="L")
    # An eigenvalue of pure rounding has no features, whatever the penalty.
    kept = values > EPS * 10.0 * len(values) * values[-1]
    shifted, basis = values[kept] + ridge, vectors[:, kept]
    alpha = np.zeros_like(given.targets)
    theta = given.combine(alpha)
    # As with Cholesky, residuals of the features bring back what small eigenvalues lost.
    for _ in range(MAX_REFINEMENTS):
        missing = basis.T @ (given.residual(theta) - ridge * alpha)
        correction = basis @ (missing / shifted[:, None])
        alpha, theta = alpha + correction, theta + given.combine(correction)
    power = float(np.sum(given.residual(theta) ** 2))
    condition = float(np.sqrt(shifted[-1] / shifted[0])) if len(shifted) else 1.0
    rank = len(shifted) if ridge == 0 else None
    step, gain = _hidden(given, vectors[:, ~kept], np.sqrt(values[-1]), ridge)
    length, whole = float(np.linalg.norm(theta)), float(np.sum(given.targets**2))
    if step <= UNSEEN_RESIDUAL * length:
        return Solution(theta, rank, power, condition, ridge, SINGULAR)
    note = SINGULAR + HIDDEN.format(step / length if length else 1.0, gain / whole)
    return Solution(theta, rank, power, condition, ridge, note, is_reached=False)


def _hidden(given: Gathered, vectors: NDArray, largest: float, ridge: float) -> tuple[float, float]:
    """About what combinations (N, k) of rows would add to theta, and take from the squared error.

    The kernel holds squares, and these were lost in its rounding; their features are not.
    """
    added, gain, limit = 0.0, 0.0, 10.0 * EPS * len(vectors) * largest
    # As many at a time as take the memory of the summaries.
    count = max(1, given.sums.size // given.layout.n_features)
    for first in range(0, vectors.shape[1], count):
        some = vectors[:, first : first + count]
        sizes = np.linalg.norm(given.combine(some), axis=0)
        sizes, some = sizes[sizes > limit], some[:, sizes > limit]
        powers = np.sum((some.T @ given.targets) ** 2, axis=1)
        added += float(np.sum((sizes / (sizes**2 + ridge)) ** 2 * powers))
        gain += float(np.sum(sizes**2 / (sizes**2 + ridge) * powers))
    return added**0.5, gain


def _one_norm(lower: NDArray) -> float:
    """The largest column sum of |K| of a symmetric matrix, of which the lower half is given."""

    def add_up(start: int) -> NDArray[np.float64]:
        stop = min(start + COLUMN_BLOCK, len(lower))
        part = np.abs(lower[start:, start:stop])
        corner = np.tril(part[: stop - start])
        part[: stop - start] = corner
        sums = np.zeros(len(lower))
        sums[start:] = part.sum(axis=1)
        sums[start:stop] += part.sum(axis=0) - corner.diagonal()
        return sums

    return float(np.max(sum(map_pieces(add_up, range(0, len(lower), COLUMN_BLOCK)))))
