"""RowKernel: the curvature of log-loss plus a ridge, inverted by rows where these are few.

With curvatures c (rows,) and C = diag(c), the kernel K = Phi Phi^T of all rows gives

    (Phi^T C Phi + penalty)^-1  =  (1 - Phi^T R (penalty + R K R)^-1 R Phi) / penalty,

where R is the root of C,

by one factor of a matrix of rows x rows, however many features there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.features.products import kernel_lower
from polyattn.numerics.blas import factor_lower
from polyattn.solve.curvature_model import Inverse
from polyattn.solve.dual import gather
from polyattn.solve.feature_passes import FeaturePasses

Array = NDArray[np.float64]

# Kernels of up to so many rows (34 MB) are made, of summaries of up to so many numbers (134 MB).
MOST_ROWS, MOST_NUMBERS = 2048, 1 << 24

# A smaller penalty, beside the trace of the kernel, is lost where the second term is subtracted.
LEAST_PENALTY = 1e-12


@dataclass(frozen=True)
class RowKernel:
    """The kernel of rows without weights, and the penalty that is added to the curvature.

    matrix : (rows, rows), the lower triangle
    """

    passes: FeaturePasses
    matrix: Array
    penalty: float

    @classmethod
    def of(cls, passes: FeaturePasses, curvatures: Array, penalty: float) -> RowKernel | None:
        """None for many rows, or a penalty that is too small beside these curvatures (rows,).

        Cost: rows^2 (m + r) flops.
        """
        rows, layout = passes.rows, passes.rows.layout
        n_numbers = rows.n_rows * (layout.n_sums + layout.n_queries)
        few = rows.n_rows <= min(MOST_ROWS, rows.n_features // 2) and n_numbers <= MOST_NUMBERS
        if penalty == 0.0 or not few:
            return None
        sums, queries, _ = gather(rows)
        matrix = np.tril(kernel_lower(layout, sums, queries))
        if not penalty > LEAST_PENALTY * float(curvatures @ matrix.diagonal()):
            return None
        return cls(passes, matrix, penalty)

    def inverse(self, curvatures: Array) -> Inverse:
        """The inverse of sum_i c_i phi_i phi_i^T + penalty, for curvatures c (rows,)."""
        roots = np.sqrt(curvatures)
        factor = np.asfortranarray(roots[:, None] * self.matrix * roots)
        factor[np.diag_indices_from(factor)] += self.penalty
        factor_lower(factor)

        def inverse(rhs: Array) -> Array:
            seen = np.asfortranarray((roots * self.passes.outputs(rhs)).T)
            solved, _ = lapack.dpotrs(factor, seen, lower=1)
            return np.asarray((rhs - self.passes.correlated(roots * solved.T)) / self.penalty)

        return inverse
