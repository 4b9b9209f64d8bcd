"""Rounding errors, bounded: what float64 may have done to the sums, at worst.

Standard model: fl(a op b) = (a op b)(1 + delta), |delta| <= u = 2^-53; k operations in any order
then err by at most gamma_k = k u / (1 - k u), whatever the blocking, threads or fused
multiply-adds [Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 3].
Derivation: docs/derivations/rounding.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.form.layout import Layout
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

UNIT = 2.0**-53

# The bounds are computed in float64 themselves; this covers their own rounding many times over.
SLACK = 1.0 + 1e-6

# The "small integer constant" of Householder's error analysis, taken generously.
HOUSEHOLDER_CONSTANT = 32.0

# Features of less power than this could have lost bits to underflow.
LEAST_POWER = 2.0**-960


def gamma(n_operations: float) -> float:
    """The relative error of that many operations in any order; infinite when it means nothing."""
    total = n_operations * UNIT
    return total / (1.0 - total) if total < 0.5 else np.inf


def factor_error(n_columns: int, n_rows: int) -> float:
    """How far the columns of a triangular factor are moved, relative to their lengths.

    Householder QR of r rows moves each column by at most gamma(c r m) of its length [Higham,
    theorem 19.4], and at worst every row was stacked on a factor of m rows and factored anew, once
    alone and once in a merger.
    """
    return gamma(HOUSEHOLDER_CONSTANT * n_columns * (n_columns + 1.0) * 2.0 * (n_rows + 1.0))


def feature_depth(layout: Layout, max_length: int) -> int:
    """Roundings in one feature: a sum over tokens, its query, and the root of a weight.

    With decays a term may be multiplied as often as it is added, and sums that are divided by
    counts are brought back to sums wherever blocks meet; powers and divisions err a little more.
    A matrix adds a sum over the coordinates to each of three factors.
    """
    form = layout.form
    depth = max_length + 4
    if form.is_plain:
        return depth
    depth += 16
    if form.mean or any(scale.decay != 1.0 for scale in form.scales):
        depth += 3 * max_length + 64
    if any(columns.maps for columns in (layout.columns, layout.pair_columns)):
        depth += 3 * (max(layout.n_dims, layout.n_context_dims or 0) + 2)
    return depth


def only_rounding(
    squares: NDArray[np.float64], magnitudes: NDArray[np.float64], depth: int
) -> NDArray[np.bool_]:
    """Features (m,) that rounding may have made of zero, by their sums of squares and magnitudes.

    In units of their own length all that is relative to magnitudes would be lost beside their
    rounding; m of them together are no more than that of one feature.
    """
    size = len(squares)
    return np.asarray(squares <= size * gamma(size + depth) ** 2 * magnitudes)


def longest(source: Rows | Moments | TriangularFactor) -> int:
    """The most tokens in a sum over a sequence or its context."""
    return max(source.max_length, source.max_context_length)
