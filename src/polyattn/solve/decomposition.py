"""The features' singular values: one decomposition that serves every ridge of a grid.

Second moments and kernels are cheap and square the condition number.  They are used while rounding
hides nothing beside the smallest ridge; otherwise the features themselves are factored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.features.products import kernel
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import feature_matrix
from polyattn.solve.dual import FEATURE_NUMBERS, gather
from polyattn.stats import Moments
from polyattn.stats.of_source import moments_of
from polyattn.stats.passes import factor_of
from polyattn.stats.rows import Rows

# The ridges that ``ridge="loo"`` and ``"gcv"`` choose from, in units of the mean eigenvalue of the
# moments.
DEFAULT_GRID = np.logspace(-12, 2, 29)

# Squares of condition numbers, ridge included: up to the first, moments and kernels lose nothing
# that matters; beyond the others, rounding hides more than 1e-5 of an error.
SAFE, MOST_OF_SQUARES, MOST = 1e6, 1e-5 / EPS, (1e-5 / EPS) ** 2


@dataclass(frozen=True)
class Decomposition:
    """Phi = U diag(sqrt(values)) V^T, the targets beside it, and the ridges."""

    values: NDArray[np.float64]  # (m,)
    vectors: NDArray[np.float64]  # (m, m): V of features, values ascending; U of samples
    components: NDArray[np.float64]  # U^T y (m, e)
    outside: float  # power of the targets outside the span of the features
    grid: NDArray[np.float64]


def of_features(rows: Rows, ridges: NDArray | None) -> Decomposition:
    """Of data with at least as many rows as features, m = p.  ``ridges=None``: the default grid."""
    found = of_moments(moments_of(rows), ridges)
    if _condition(found.values, found.grid) <= SAFE:
        return found
    factor = factor_of(rows)
    left, sizes, right = np.linalg.svd(factor.scaled_factor() / rows.layout.feature_weights)
    values, components = sizes[::-1] ** 2, left[:, ::-1].T @ factor.scaled_projection()
    grid = _within(MOST, found.grid, values, ridges is None)
    return Decomposition(values, right[::-1].T, components, factor.scaled_residual_power(), grid)


def of_moments(moments: Moments, ridges: NDArray | None) -> Decomposition:
    """From sums alone, which cannot see singular values below 1e-8 of the largest."""
    s = moments.layout.feature_weights
    values, vectors = np.linalg.eigh(moments.scaled_gram(1.0 / s))
    unit = EPS * moments.cancellation
    seen = values > unit * 10.0 * len(values) * values[-1]
    values = np.where(seen, values, 0.0)
    roots = np.sqrt(np.where(seen, values, np.inf))[:, None]
    components = vectors.T @ (moments.scaled_cross() / s[:, None]) / roots
    power = moments.scaled_target_power()
    outside = power - float(np.sum(components**2))
    # Rows that span all there is are met exactly; otherwise rounding of the power is none.
    n_seen, n_rows = int(np.count_nonzero(seen)), moments.n_positive
    met = n_seen >= n_rows or outside < unit * len(values) * power
    grid = _grid(ridges, values, n_rows)
    return Decomposition(values, vectors, components, 0.0 if met else outside, grid)


def of_samples(rows: Rows, ridges: NDArray | None) -> Decomposition:
    """Of m rows, fewer than features; those of weight zero are left out."""
    sums, queries, targets = gather(rows)
    values, vectors = np.linalg.eigh(kernel(rows.layout, sums, queries, sums, queries))
    values = np.maximum(values, 0.0)
    grid = _grid(ridges, values, len(values))
    safe = _condition(values, grid) <= SAFE
    if safe or rows.n_rows * rows.n_features > FEATURE_NUMBERS:
        grid = grid if safe else _within(MOST_OF_SQUARES, grid, values, ridges is None)
        return Decomposition(values, vectors, vectors.T @ targets, 0.0, grid)
    features, targets = feature_matrix(rows)
    if rows.row_weights is not None:
        positive = rows.row_weights > 0
        features, targets = features[positive], targets[positive]
    found = of_matrix(features, targets, grid)
    return replace(found, grid=_within(MOST, grid, found.values, ridges is None))


def of_matrix(features: NDArray, targets: NDArray, grid: NDArray) -> Decomposition:
    """Of m rows of features (m, p), which may be more than p."""
    vectors, sizes, _ = np.linalg.svd(features, full_matrices=len(features) > features.shape[1])
    values = np.zeros(len(features))
    values[: len(sizes)] = sizes**2
    return Decomposition(values, vectors, vectors.T @ targets, 0.0, grid)


def _grid(ridges: NDArray | None, values: NDArray, n_rows: int) -> NDArray[np.float64]:
    mean = values.sum() / max(1, min(n_rows, len(values)))
    return DEFAULT_GRID * (mean or 1.0) if ridges is None else ridges


def _condition(values: NDArray, grid: NDArray) -> float:
    """The square of the largest condition number, at the smallest ridge."""
    return float(values.max() / (values.min() + grid[0]))


def _within(most: float, grid: NDArray, values: NDArray, default: bool) -> NDArray[np.float64]:
    """The ridges with squared condition numbers up to ``most``."""
    return visible(grid, values.max() <= most * (values.min() + grid), default)


def visible(grid: NDArray, seen: NDArray, default: bool) -> NDArray[np.float64]:
    """The ridges whose effect is ``seen``; those of a user must all be."""
    count = len(grid) - int(np.count_nonzero(seen))
    if count == len(grid) or (count and not default):
        raise OutOfRange(
            f"{count} of the {len(grid)} ridges of ridge_grid cannot be judged: they are so small "
            "beside the largest features that their effect is lost in rounding. Leave out the "
            f"smallest {count}, or bring sequences and coordinates to a similar size."
        )
    return grid[seen]
