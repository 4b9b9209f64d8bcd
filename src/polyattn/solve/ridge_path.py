"""Choosing the ridge: the error of leaving out each sequence, for a whole grid at once.

One eigendecomposition serves every ridge of the grid.  What is left out is a whole sequence:
the positions of one sequence share their tokens, so leaving out single positions would leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.cubic import cubic_features
from polyattn.features.kernel import kernel
from polyattn.features.pairs import feature_weights
from polyattn.features.summaries import default_block_rows
from polyattn.solve.dual import gather
from polyattn.solve.spectral import EPS
from polyattn.stats import Moments
from polyattn.stats.rows import Rows

# The default grid, in units of the mean eigenvalue of the moments.
GRID = np.logspace(-12, 2, 29)


@dataclass(frozen=True)
class RidgePath:
    """The estimated error of prediction (mean squared norm) for each ridge of a grid."""

    ridges: NDArray[np.float64]
    errors: NDArray[np.float64]
    kind: str

    @property
    def best(self) -> float:
        """The ridge of least error; the largest such, when several tie."""
        return float(self.ridges[np.flatnonzero(self.errors == self.errors.min())[-1]])


def leave_one_out(rows: Rows, ridges: NDArray | None = None) -> RidgePath:
    """The exact leave-one-sequence-out error for each ridge.

    Equals ``RidgeCV`` in mode ``last`` (on the features, without intercept).
    Cost: one eigendecomposition of size min(rows, p) and, per ridge, one pass of products.
    """
    if len(rows.batch) < 2:
        raise InvalidInput("ridge='loo' leaves out one sequence at a time: X needs at least two.")
    tall = rows.n_rows >= rows.n_features
    return _tall(rows, ridges) if tall else _wide(rows, ridges)


def generalised(source: Rows | Moments, ridges: NDArray | None = None) -> RidgePath:
    """Generalised cross-validation [Golub, Heath, Wahba 1979]; moments suffice.

        (sum ||r||^2 / W) / (1 - tr H / N)^2,    r = (I - H) y,

    written without the differences that cancel when few rows are met exactly: with u_k the
    components of y along the left singular vectors, r has components u_k ridge/(s_k + ridge),
    and N - tr H = (N - rank) + sum ridge/(s_k + ridge).
    """
    if isinstance(source, Rows) and source.n_positive < source.n_features:
        values, inside, outside = _kernel_components(source)
    else:
        values, inside, outside = _moment_components(
            Moments.of(source) if isinstance(source, Rows) else source
        )
    n = source.n_positive
    grid = _grid(ridges, values.sum() / max(1, min(n, source.n_features)))
    left = grid / (values[:, None] + grid)  # (rank, grid)
    freedom = (max(0, n - len(values)) + left.sum(axis=0)) / n
    residual = outside + inside @ left**2
    return RidgePath(grid, residual / freedom**2 / source.total_weight, "gcv")


def _tall(rows: Rows, ridges: NDArray | None) -> RidgePath:
    """In feature space: residuals divided by one minus their leverage, per sequence."""
    moments = Moments.of(rows)
    values, vectors, projected = _eigen(moments)
    grid = _grid(ridges, values.sum() / len(values))
    shrink = 1.0 / (values[:, None] + grid)  # (p, grid)
    thetas = shrink.T[:, :, None] * projected  # (grid, p, e)
    errors = np.zeros(len(grid))
    for basis, targets in _sequence_features(rows, vectors):
        residual = targets[None] - basis.T @ thetas  # (grid, n, e)
        if rows.mode == "last":
            leverage = (basis**2).T @ shrink  # (n, grid)
            left_out = residual / np.maximum(1.0 - leverage.T, EPS)[:, :, None]
        else:
            left_out = _without_sequence(basis, shrink, residual)
        errors += np.sum(left_out**2, axis=(1, 2))
    return RidgePath(grid, errors / rows.total_weight, "loo")


def _wide(rows: Rows, ridges: NDArray | None) -> RidgePath:
    """In sample space: (C_BB)^-1 alpha_B with C = (K + ridge)^-1, exact even for tiny ridge."""
    pairs, queries, targets = gather(rows)
    values, vectors = np.linalg.eigh(kernel(pairs, queries, pairs, queries))
    values = np.maximum(values, 0.0)
    grid = _grid(ridges, values.sum() / len(values))
    shrink = 1.0 / (values[:, None] + grid)
    alphas = vectors @ (shrink.T[:, :, None] * (vectors.T @ targets))  # (grid, N, e)
    errors = np.zeros(len(grid))
    for block in _kept_sequences(rows):
        own = vectors[block]
        inverse = np.stack([(own * column) @ own.T for column in shrink.T])
        errors += np.sum(np.linalg.solve(inverse, alphas[:, block]) ** 2, axis=(1, 2))
    return RidgePath(grid, errors / rows.total_weight, "loo")


def _without_sequence(basis: NDArray, shrink: NDArray, residual: NDArray) -> NDArray[np.float64]:
    """(I - H)^-1 r of one sequence, for each ridge; basis (p, n), residual (grid, n, e)."""
    p, n = basis.shape
    if n <= p:
        hat = (basis.T[None] * shrink.T[:, None, :]) @ basis
        return np.linalg.solve((1.0 + EPS) * np.eye(n) - hat, residual)
    # Woodbury: the same through p x p matrices.
    inner = (1.0 + EPS) / shrink.T[:, :, None] * np.eye(p) - basis @ basis.T
    return residual + basis.T @ np.linalg.solve(inner, basis @ residual)


def _sequence_features(
    rows: Rows, vectors: NDArray
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Features in the eigenbasis (p, n) and targets (n, e): per sequence, or many for last."""
    step = default_block_rows(rows.width) if rows.mode == "last" else 1
    s = feature_weights(rows.width)[:, None]
    for first in range(0, len(rows.batch), step):
        part = rows.part(first, min(first + step, len(rows.batch)))
        blocks = list(part.blocks(max(1, part.n_rows)))
        psi = np.concatenate([cubic_features(b.pairs, b.queries) for b in blocks], axis=1)
        targets = np.concatenate([b.targets for b in blocks], axis=1)
        yield vectors.T @ (psi / s), targets.T


def _kept_sequences(rows: Rows) -> Iterator[slice]:
    """Where each sequence of positive weight stands among the gathered rows."""
    sizes = np.ones(len(rows.batch), int) if rows.mode == "last" else rows.batch.lengths
    if rows.sequence_weights is not None:
        sizes = sizes[rows.sequence_weights > 0]
    ends = np.cumsum(sizes)
    return (slice(end - size, end) for size, end in zip(sizes, ends, strict=True))


def _moment_components(moments: Moments) -> tuple[NDArray, NDArray, float]:
    """Nonzero eigenvalues s_k, sum over outputs of u_k^2, and the power of y outside."""
    values, _, projected = _eigen(moments)
    kept = values > EPS * 10.0 * len(values) * values[-1]
    inside = np.sum(projected[kept] ** 2, axis=1) / values[kept]
    power = moments.scaled_target_power()
    outside = power - float(inside.sum())
    # Rows that span all there is are met exactly; otherwise rounding of the power is no residual.
    met = np.count_nonzero(kept) >= moments.n_positive or outside < EPS * len(values) * power
    return values[kept], inside, 0.0 if met else outside


def _kernel_components(rows: Rows) -> tuple[NDArray, NDArray, float]:
    """The same from the kernel, for fewer rows than features."""
    pairs, queries, targets = gather(rows)
    values, vectors = np.linalg.eigh(kernel(pairs, queries, pairs, queries))
    squares = np.sum((vectors.T @ targets) ** 2, axis=1)
    kept = values > EPS * 10.0 * len(values) * values[-1]
    return values[kept], squares[kept], float(squares[~kept].sum())


def _eigen(moments: Moments) -> tuple[NDArray, NDArray, NDArray]:
    """Eigenvalues, eigenvectors and V^T b of the moments in the coordinates of the norm."""
    s = feature_weights(moments.width)
    values, vectors = np.linalg.eigh(moments.scaled_gram(1.0 / s))
    projected = vectors.T @ (moments.scaled_cross() / s[:, None])
    return np.maximum(values, 0.0), vectors, projected


def _grid(ridges: NDArray | None, mean_eigenvalue: float) -> NDArray[np.float64]:
    return GRID * (mean_eigenvalue or 1.0) if ridges is None else ridges
