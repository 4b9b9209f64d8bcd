"""Rounding errors, bounded: what float64 may have done to the sums, at worst.

Standard model: fl(a op b) = (a op b)(1 + delta), |delta| <= u = 2^-53; k operations in any order
then err by at most gamma_k = k u / (1 - k u), whatever the blocking, threads or fused
multiply-adds [Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 3].
Derivation: docs/derivations/rounding.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-53

# The bounds are computed in float64 themselves; this covers their own rounding many times over.
SLACK = 1.0 + 1e-6

# Features of less power than this could have lost bits to underflow.
LEAST_POWER = 2.0**-960


def gamma(n_operations: float) -> float:
    """The relative error of that many operations in any order; infinite when it means nothing."""
    total = n_operations * UNIT
    return total / (1.0 - total) if total < 0.5 else np.inf


def feature_depth(max_length: int) -> int:
    """Roundings in one feature: a sum over tokens, its query, and the root of a weight."""
    return max_length + 4


def accumulation_depth(n_rows: int, max_length: int) -> int:
    """Roundings in one entry of the sums, given the features of the rows."""
    return n_rows + max_length + 8


def gram_error(
    powers: NDArray[np.float64], magnitudes: NDArray[np.float64], n_rows: int, max_length: int
) -> float:
    """A bound of ||S_computed - S||_2 for S = sum phi phi^T of features scaled by a constant each.

    ``powers`` (m,) is the computed diagonal of S and ``magnitudes`` (m,) the computed sums of
    (G_jj G_kk x_l^2), both after scaling.  The error of accumulation is at most
    gamma sqrt(S_aa S_bb) in entry (a, b), so its norm is at most gamma trace S.  A feature errs
    by at most gamma sqrt(G_jj G_kk) |x_l|, so with Delta the matrix of these errors
    ||(Phi + Delta)^T (Phi + Delta) - Phi^T Phi|| <= 2 ||Phi + Delta|| ||Delta|| + ||Delta||^2.
    """
    trace = float(powers.sum())
    summed = gamma(accumulation_depth(n_rows, max_length)) * trace
    delta = gamma(feature_depth(max_length)) * float(np.sqrt(magnitudes.sum()))
    return SLACK * (summed + 2.0 * delta * np.sqrt(trace) + delta**2)
