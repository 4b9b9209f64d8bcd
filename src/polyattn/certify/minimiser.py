"""The least risk of any layer, found without the solvers: the checker does not trust the prover.

Least squares in theta = s P with features psi / s (docs/derivations/minimum_norm.md), from a root
of the sums, root^T root = sum psi psi^T / (s s^T) and root^T rhs = sum psi y^T / s:

    the triangular factor of the data    memory of (p + e)^2 numbers, whatever N is
    a factor of moments                  where only those are known
    the kernel matrix of the rows        fewer rows than features; no root is needed

Where the root is singular, the rank is read off its pivoted QR factorisation after the columns
are brought to similar size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from polyattn.certify.verified.gram import Source
from polyattn.certify.verified.rounding import UNIT
from polyattn.errors import InvalidInput
from polyattn.features.products import apply_coef, correlate, kernel
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import (
    as_doubt,
    as_risk,
    exponent_for,
    largest_magnitude,
    restored,
    scaled,
)
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# A dense matrix of this many rows and columns takes 2 GB; larger ones are not made.
MOST_COLUMNS = 1 << 14

# Rows x features up to this many numbers (0.5 GB) are factored where a kernel is not enough.
FACTORED_NUMBERS = 1 << 26

# Dependent columns leave less than this share of the rank's threshold, and than a few roundings.
DOUBTFUL, FEW_ROUNDINGS = 0.02, 16.0 * UNIT

# Squares (Gram and kernel matrices) better conditioned than this lose nothing that matters.
SAFE_RCOND = 1e-8


@dataclass(frozen=True, eq=False)
class Minimiser:
    """The layer of least risk; of all such layers the one of smallest norm of T."""

    coef: NDArray[np.float64]  # (e, m, r), folded
    risk: float  # weighted mean over predicted positions of ||y - F(X)||^2: no layer has less
    rounding: float  # how far rounding may have moved ``risk``, doubts about the rank included
    rank: int  # singular values of the equilibrated features above rounding
    # From theta (p, e), in any units, to the one of smallest norm with the same outputs on the
    # data; None where the data see all of it.
    seen: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None

    def seen_of(self, coef: NDArray[np.float64], layout: Layout) -> NDArray[np.float64]:
        """Of coefficients (e, m, r) what the data see: the least with the same outputs on them."""
        if self.seen is None:
            return coef
        exponent = exponent_for(largest_magnitude(coef)) or 0
        found = layout.as_coef(self.seen(layout.as_theta(scaled(coef, -exponent))))
        return scaled(found, exponent)


@single_threaded_blas()
def minimise(source: Source) -> Minimiser:
    """The least-squares minimiser of smallest norm, over layers with any number of heads.

    Guarantee: ``risk`` is right up to ``rounding``, an estimate: orthogonal factors solve a
    problem whose features differ from the given ones by E of rounding size, and the roots of the
    two least risks differ by at most ||E theta||.  Combinations of features that are smaller
    than rounding (from moments: below 1e-7 of the largest) count as absent: layers that use them
    have coefficients too large to be evaluated.
    Cost: one pass, 2 p^2 flops per row and O(p^3); fewer rows N than features N^2 p, or N^3 by
    the kernel.  Memory a few (p + e)^2 or N^2 numbers.
    """
    if isinstance(source, Rows):
        n_rows, n_features = source.n_rows, source.n_features
        if min(n_rows, n_features) > MOST_COLUMNS:
            raise InvalidInput(
                f"the least risk on {n_rows} predicted positions with {n_features} features needs "
                f"a dense matrix of more than {MOST_COLUMNS} rows and columns (2 GB); use fewer "
                "sequences, or tokens of fewer coordinates."
            )
        found = _from_kernel(source) if n_rows < n_features else None
        if found is not None:
            return found
        source = TriangularFactor.of(source)
    root, rhs, outside = _root(source)
    theta, rank, size, missed, doubtful, basis = _minimum_norm(root, rhs, source.n_rows)
    size += float(np.sqrt(outside + np.sum(rhs**2)))
    seen = None if basis is None else partial(_projected, basis)
    return _in_true_units(source, theta, rank, outside + missed, size, doubtful, seen)


@single_threaded_blas()
def excess_risk(coef: NDArray[np.float64], statistics: Moments | TriangularFactor) -> float:
    """The risk of a layer with these coefficients less the least of any layer.

    By Pythagoras the mean of ||F(X) - F*(X)||^2, without the difference of two risks.
    """
    best = minimise(statistics)
    token, target = statistics.token_exponent or 0, statistics.target_exponent or 0
    layout = statistics.layout
    difference = scaled(coef - best.coef, 3 * token - target)
    difference = layout.as_theta(difference) / layout.feature_weights[:, None]
    if isinstance(statistics, Moments):
        power = float(np.sum(difference * (statistics.scaled_gram() @ difference)))
    else:
        power = float(np.sum((statistics.scaled_factor() @ difference) ** 2))
    return as_risk(max(power, 0.0) / statistics.total_weight, target)


def rounding_unit(n_features: int, n_rows: int) -> float:
    """The relative error of an output or residual: eight times what random signs leave."""
    return 8.0 * UNIT * (n_features + float(np.sqrt(n_rows)) + 8.0)


def _root(sums: Moments | TriangularFactor) -> tuple[NDArray, NDArray, float]:
    """(root, rhs, power of the targets outside the span of the features).

    Of moments by Cholesky, or by eigenvalues: nothing is known of those below 1e-15.
    """
    if isinstance(sums, TriangularFactor):
        root = sums.scaled_factor() / sums.layout.feature_weights
        return root, sums.scaled_projection(), sums.scaled_residual_power()
    scale = _powers_of_two(np.sqrt(sums.scaled_feature_powers()))
    matrix, cross = sums.scaled_gram(1.0 / scale), sums.scaled_cross() / scale[:, None]
    # The matrix is symmetric: its C order is the Fortran order of LAPACK.
    root, failed = lapack.dpotrf(matrix.T, lower=0, clean=1)
    if not failed and _rcond(root) ** 2 > SAFE_RCOND * sums.cancellation:
        rhs = solve_triangular(root, cross, trans="T", check_finite=False)
    else:
        values, vectors = np.linalg.eigh(matrix)
        unit = UNIT * sums.cancellation
        kept = values > 20.0 * unit * len(scale) * max(float(values[-1]), 1.0)
        sigma, basis = np.sqrt(values[kept]), vectors[:, kept]
        root, rhs = sigma[:, None] * basis.T, basis.T @ cross / sigma[:, None]
    outside = max(sums.scaled_target_power() - float(np.sum(rhs**2)), 0.0)
    return root * (scale / sums.layout.feature_weights), rhs, outside


def _minimum_norm(
    root: NDArray, rhs: NDArray, n_rows: int
) -> tuple[NDArray[np.float64], int, float, float, float, NDArray[np.float64] | None]:
    """The theta (p, e) of least norm that minimises ||rhs - root theta||, and what is known of it.

    (theta, rank, size, missed, doubtful, basis).  ``size``: ||D theta||, of this or another
    minimiser.  ``missed``: what is left of ||rhs||^2.  ``doubtful``: the part of that in directions
    that rounding may have pushed below the threshold of the rank.  ``basis`` (p, rank): of the span
    of the rows, orthonormal; None where that is everything.
    """
    n_features = root.shape[1]
    scale = _powers_of_two(np.sqrt(np.einsum("mp,mp->p", root, root)))
    floor = 2.0 * UNIT * max(10.0 * n_features, float(np.sqrt(n_rows)))
    if _rcond(root / scale) > floor:
        inner = solve_triangular(root / scale, rhs, check_finite=False)
        return inner / scale[:, None], n_features, float(np.linalg.norm(inner)), 0.0, 0.0, None
    basis, triangle, order = qr(root / scale, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(triangle.diagonal())
    largest = max(float(sizes.max(initial=0.0)), 1.0)
    floor *= largest
    rank = int(np.count_nonzero(sizes > floor))
    projected = basis.T @ rhs
    missed = projected[rank:] ** 2
    theta = np.zeros((n_features, rhs.shape[1]))
    orthonormal = None if rank == n_features else np.zeros((n_features, 0))
    if rank == n_features:
        theta[order] = solve_triangular(triangle, projected, check_finite=False)
        theta /= scale[:, None]
    elif rank:
        # The solution of least norm lies in the span of the rows, in true coordinates.
        spanning = np.empty((n_features, rank))
        spanning[order] = triangle[:rank].T
        spanning *= scale[:, None]
        orthonormal, lower = qr(spanning, mode="economic", check_finite=False)
        # Scales of many orders magnify rounding in the small entries: solve for what is left.
        for _ in range(4):
            left = projected[:rank] - spanning.T @ theta
            theta += orthonormal @ solve_triangular(lower, left, trans="T", check_finite=False)
    doubtful = missed[sizes[rank:] > max(DOUBTFUL * floor, FEW_ROUNDINGS * largest)]
    # The risk errs no more than by the smallest of all solutions: one of few columns may be that.
    few = solve_triangular(triangle[:rank, :rank], projected[:rank], check_finite=False)
    size = float(min(np.linalg.norm(scale[:, None] * theta), np.linalg.norm(few)))
    return theta, rank, size, float(missed.sum()), float(doubtful.sum()), orthonormal


def _from_kernel(rows: Rows) -> Minimiser | None:
    """By the N x N kernel: P = sum_i psi_i alpha_i / s^2 with K alpha = y.

    None where the kernel has lost digits that a factor of the features still has.
    """
    blocks = list(rows.blocks())
    sums, queries, targets = (
        np.concatenate([getattr(block, name) for block in blocks], axis=1)
        for name in ("sums", "queries", "targets")
    )
    matrix = kernel(rows.layout, sums, queries, sums, queries)
    values, vectors = np.linalg.eigh(matrix)
    unsafe = values[0] <= SAFE_RCOND * values[-1]
    if unsafe and rows.n_rows * rows.n_features <= FACTORED_NUMBERS:
        return None
    kept = values > 20.0 * UNIT * len(values) * values[-1]
    basis, alpha = vectors[:, kept], np.zeros_like(targets)
    # The second round solves for what rounding left of the first.
    for _ in range(2):
        alpha += ((targets - alpha @ matrix) @ basis / values[kept]) @ basis.T
    products = correlate(sums, queries, alpha).reshape(-1, rows.n_outputs)
    theta = rows.layout.select(products) / rows.layout.feature_weights[:, None]
    size = float(np.linalg.norm(targets) + values[-1] * np.linalg.norm(alpha))

    def seen(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        # theta^T Phi^T K^+ Phi: what a combination of rows gives the same outputs.
        outputs = apply_coef(rows.layout.as_coef(theta), sums, queries)
        weights = (outputs @ basis / values[kept]) @ basis.T
        found = correlate(sums, queries, weights).reshape(-1, theta.shape[1])
        return np.asarray(rows.layout.select(found) / rows.layout.feature_weights[:, None])

    return _in_true_units(
        rows, theta, int(np.count_nonzero(kept)), float(np.sum((targets - alpha @ matrix) ** 2)),
        size, seen=seen,
    )  # fmt: skip


def _projected(basis: NDArray, theta: NDArray) -> NDArray[np.float64]:
    """The projection on the span of an orthonormal basis (p, rank)."""
    return np.asarray(basis @ (basis.T @ theta))


def _in_true_units(
    source: Source,
    theta: NDArray,
    rank: int,
    power: float,
    size: float,
    doubtful: float = 0.0,
    seen: Callable[[NDArray], NDArray] | None = None,
) -> Minimiser:
    """From theta (p, e) and squared residuals of scaled data; their errors are relative to size."""
    token, target = source.token_exponent or 0, source.target_exponent or 0
    coef = source.layout.as_coef(theta)
    features = source.layout.feature_sizes(source.coordinate_sizes)
    coef = restored(coef, target - 3 * token, "the coefficients", features)
    coef.setflags(write=False)
    doubt = rounding_unit(source.n_features, source.n_rows) * size
    if not isinstance(source, Rows):
        doubt *= source.cancellation
    squared = isinstance(source, Moments)
    rounding = doubt * size if squared else (2.0 * float(np.sqrt(power)) + doubt) * doubt
    risk, level = power / source.total_weight, (rounding + doubtful) / source.total_weight
    return Minimiser(coef, as_risk(risk, target), as_doubt(level, target), rank, seen)


def _powers_of_two(norms: NDArray) -> NDArray[np.float64]:
    """Powers of two near the norms, 1 where they are zero: dividing by them is exact."""
    _, exponents = np.frexp(np.where(norms > 0, norms, 1.0))
    return np.where(norms > 0, np.ldexp(1.0, exponents), 1.0)


def _rcond(root: NDArray) -> float:
    """The reciprocal condition number of a square triangular root; 0 for any other."""
    if root.shape[0] != root.shape[1] or np.any(np.tril(root, -1)):
        return 0.0
    rcond, _ = lapack.dtrcon(np.asfortranarray(root), norm="1", uplo="U", diag="N")
    return float(rcond)
