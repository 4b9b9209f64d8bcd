"""Choosing the ridge: the error of prediction for a whole grid at once.

What is left out is a whole sequence: the positions of one sequence share their tokens, so leaving
out single positions would leak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.solve.leave_one_out import errors_of_few, errors_of_many
from polyattn.solve.singular_values import FeatureSpectrum, SampleSpectrum
from polyattn.stats import Moments
from polyattn.stats.rows import Rows


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
    Cost: one decomposition of size min(rows, p) and, per ridge, one pass of products.
    """
    weights = rows.sequence_weights
    if (len(rows.batch) if weights is None else np.count_nonzero(weights)) < 2:
        raise InvalidInput(
            "ridge='loo' leaves out one sequence at a time: X needs at least two of positive "
            "weight."
        )
    many = rows.n_rows >= rows.n_features
    grid, errors = (errors_of_many if many else errors_of_few)(rows, ridges)
    return RidgePath(grid, errors / rows.total_weight, "loo")


def generalised(source: Rows | Moments, ridges: NDArray | None = None) -> RidgePath:
    """Generalised cross-validation [Golub, Heath, Wahba 1979]; moments suffice.

        (sum ||r||^2 / W) / (1 - tr H / N)^2,    r = (I - H) y,

    written without the differences that cancel when few rows are met exactly: with u_k the
    components of y along the left singular vectors, r has components u_k ridge/(s_k + ridge),
    and N - tr H = (N - number of s_k > 0) + sum ridge/(s_k + ridge).
    """
    spectrum: FeatureSpectrum | SampleSpectrum
    if isinstance(source, Moments):
        spectrum = FeatureSpectrum.of_moments(source, ridges)
    elif source.n_positive >= source.n_features:
        spectrum = FeatureSpectrum.of(source, ridges)
    else:
        spectrum = SampleSpectrum.of(source, ridges)
    n, grid = source.n_positive, spectrum.grid
    left = grid / (spectrum.values[:, None] + grid)  # (values, grid)
    nonzero = spectrum.values > 0  # the others are counted, so that no sum rounds
    freedom = (n - np.count_nonzero(nonzero) + left[nonzero].sum(axis=0)) / n
    residual = spectrum.outside + np.sum(spectrum.components**2, axis=1) @ left**2
    return RidgePath(grid, residual / freedom**2 / source.total_weight, "gcv")
