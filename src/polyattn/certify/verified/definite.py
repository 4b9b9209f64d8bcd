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
from scipy.linalg import lapack

from polyattn.certify.verified.gram import Gram
from polyattn.certify.verified.rounding import SLACK, gamma
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.blas import add_product

# Rows of the residual that are computed together.
RESIDUAL_ROWS = 256


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
    Cost: one Cholesky factorisation and one product of triangles, 2/3 m^3 flops.
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
    """A bound of ||M - s I - R^T R||_2, the rounding of the shifted diagonal included.

    Cost: m^3/3 flops, since R is triangular; a block of rows at a time.
    """
    size, lower = len(factor), factor.T  # in C order, as products like it
    squares, power = 0.0, float(np.einsum("ij,ij->", lower, lower))
    for first, stop in even_ranges(size, RESIDUAL_ROWS):
        residual = np.zeros((stop - first, size - first))
        add_product(residual, lower[first:stop, :stop], lower[first:, :stop])
        residual -= shifted[first:stop, first:]
        # What stands right of the diagonal block stands below it as well.
        squares += 2.0 * float(np.einsum("ij,ij->", residual, residual))
        squares -= float(np.sum(residual[:, : stop - first] ** 2))
    trace = float(np.trace(shifted)) + size * shift
    return SLACK * (float(np.sqrt(squares)) + gamma(size + 4) * (trace + power))
