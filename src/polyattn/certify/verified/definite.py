"""Positive definiteness, proved in floating point from a Gram matrix.

A factor R of M - s I, however it came about, satisfies R^T R >= 0 exactly.  So with the residual
M - s I - R^T R bounded in norm (one matrix product, whose rounding is bounded too) and M known to
be within ``error`` of the true matrix,

    M_true  >=  R^T R + (s - residual - error) I.

Nothing about the Cholesky routine is trusted, only that products are sums of products [after
S. M. Rump, Verification of positive definiteness, BIT 46 (2006)].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyattn.certify.verified.gram import Gram
from polyattn.certify.verified.rounding import SLACK, gamma


@dataclass(frozen=True, eq=False)
class Definite:
    """A proof that  D S D >= R^T R + margin I  for the true sums S, with margin > 0."""

    scale: NDArray[np.float64]  # D (m,), powers of two
    factor: NDArray[np.float64]  # R (m, m), upper triangular
    margin: float
    rounding: float  # everything that rounding may have done, as a norm


def prove_definite(
    gram: Gram, scale: NDArray[np.float64] | None = None, shift: float = 0.0
) -> Definite | None:
    """The proof, or None where rounding leaves doubt.

    ``scale`` (m,): powers of two D, by default those that equilibrate the features.
    ``shift`` asks for more than positivity: a margin of nearly so much, after scaling.
    Cost: one Cholesky factorisation and one symmetric product, 4/3 m^3 flops.
    """
    if not gram.is_reliable:
        return None
    scale = gram.scale if scale is None else scale
    matrix, error = gram.scaled(scale), gram.error(scale)
    size, trace = len(matrix), float(np.trace(matrix))
    # Three times what is expected of the factorisation and the check of its residual.
    shift = max(shift, 4.0 * (error + 3.0 * gamma(size + 4) * trace))
    if not shift < trace:
        return None
    diagonal = np.einsum("ii->i", matrix)
    diagonal -= shift
    # The matrix is symmetric: its C order is the Fortran order LAPACK wants.
    factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=0)
    if failed:
        return None
    rounding = error + _residual_bound(matrix, factor, shift)
    margin = shift - rounding
    return Definite(scale, factor, margin, rounding) if margin > 0 else None


def _residual_bound(shifted: NDArray, factor: NDArray, shift: float) -> float:
    """A bound of ||M - s I - R^T R||_2, the rounding of the shifted diagonal included."""
    size = len(factor)
    power = float(np.einsum("ij,ij->", factor, factor))
    trace = float(np.trace(shifted)) + size * shift
    # Only the upper triangle is computed; the other half is its mirror.
    residual = blas.dsyrk(-1.0, factor, beta=1.0, c=shifted.T, trans=1, lower=0)
    upper = np.triu(residual)
    squares = 2.0 * float(np.einsum("ij,ij->", upper, upper))
    return SLACK * (float(np.sqrt(squares)) + gamma(size + 4) * (trace + power))
