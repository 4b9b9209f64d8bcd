"""Rounding errors, bounded: what float64 may have done to the sums, at worst.

Standard model: fl(a op b) = (a op b)(1 + delta), |delta| <= u = 2^-53; k operations in any order
then err by at most gamma_k = k u / (1 - k u), whatever the blocking, threads or fused
multiply-adds [Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 3].
Derivation: docs/derivations/rounding.md.
"""

from __future__ import annotations

import numpy as np

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
