"""Full column rank, proved with a triangular factor: for eigenvalues too small for a Gram.

Let Phi (rows, m) be the features, rows brought to similar size, and W any matrix (m, m), in
practice D R^-1 of a QR factorisation.  If the columns of B = Phi W are nearly orthonormal,

    sigma_min(B)  >=  sqrt(1 - ||B^T B - I||) - rounding  >  0,

then Phi W, and with it Phi, has full column rank: whatever W is, and however it was computed.  One
pass over the data forms B block by block, and bounds its rounding errors row by row.  Condition
numbers of Phi up to about 1e13 (of Lambda_D: 1e26) are decided.

Multiplying a row (or a column) by a power of two changes no rank and rounds nothing.  A single
row of large tokens would otherwise hide all the others: features are cubic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.gram import Source, require_memory
from polyattn.certify.verified.rounding import (
    LEAST_POWER,
    SLACK,
    factor_error,
    feature_depth,
    gamma,
    longest,
    only_rounding,
)
from polyattn.certify.verified.sizes import row_pieces
from polyattn.stats.passes import folded, of_parts
from polyattn.stats.rows import Rows


@dataclass(frozen=True, eq=False)
class Triangle:
    """R (k, m) of the features Phi D, k = min(rows, m), D = diag(scale) powers of two.

    ``feature_size``: sqrt of the sum over rows and columns of D^2 G_jj G_kk x_l^2, which the
    rounding errors of all features are relative to; in other forms, see ``sizes``.
    """

    factor: NDArray[np.float64]
    scale: NDArray[np.float64]
    feature_size: float

    @cached_property
    def singular(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Singular values (m,) descending, and right singular vectors (m, m) in rows."""
        size = self.factor.shape[1]
        _, values, vectors = np.linalg.svd(self.factor)
        return np.concatenate([values, np.zeros(size - len(values))]), vectors


def triangle_of_rows(rows: Rows, space: FeatureSpace) -> Triangle:
    """One pass: blocks of normalised rows are stacked on the factor so far, and factored."""
    require_memory(space)
    parts = of_parts(rows, _factor_of_part, space, are_large=True)
    factor, magnitudes = (np.array(each, order="F") for each in next(parts))
    for more, squares in parts:
        factor, magnitudes = triangular_factor([factor, more]), magnitudes + squares
    # Squares below 2^-1074 vanish, so no scale exceeds 2^540, and underflow in features, times
    # such a scale, stays far below rounding.
    lengths = np.linalg.norm(factor, axis=0)
    depth = feature_depth(space.layout, longest(rows))
    lengths = np.where(only_rounding(lengths**2, magnitudes, depth), np.sqrt(magnitudes), lengths)
    scale = np.ldexp(1.0, -np.frexp(np.where(lengths > 0, lengths, 1.0))[1])
    return Triangle(factor * scale, scale, float(np.sqrt(np.sum(scale**2 * magnitudes))))


def _factor_of_part(rows: Rows, space: FeatureSpace) -> tuple[NDArray, NDArray]:
    """The factor of a part of the rows, and the sums of squared magnitudes (m,)."""
    size = space.dimension
    factor, magnitudes, waiting, height = np.zeros((0, size)), np.zeros(size), [], 0
    for piece in row_pieces(rows, space, normalised=True):
        magnitudes += piece.squares(space)
        waiting.append(piece.features(space).T)
        height += len(waiting[-1])
        if height >= 2 * size:
            factor, waiting, height = triangular_factor([factor, *waiting]), [], 0
    return triangular_factor([factor, *waiting]), magnitudes


@dataclass(frozen=True)
class Orthogonal:
    """The columns of Phi W (or of Phi D) have singular values of at least ``least``, proved."""

    least: float
    rounding: float


# Sizes that leave float64 prove nothing: infinity and NaN fail at the end.
@np.errstate(over="ignore", invalid="ignore")
def prove_independent(source: Source, space: FeatureSpace, triangle: Triangle) -> Orthogonal | None:
    """The proof that the features have full column rank, or None where doubt is left.

    Cost: one pass, 4 m^2 flops per row and as many for the bound.
    """
    size = space.dimension
    if len(triangle.factor) < size or np.any(triangle.factor.diagonal() == 0.0):
        return None
    if not isinstance(source, Rows):
        return _by_factor(
            triangle, source.n_roundings, feature_depth(space.layout, longest(source))
        )
    inverse, failed = lapack.dtrtri(triangle.factor)
    # No proof can succeed with such entries.  NaN fails as well.
    if failed or not np.all(np.abs(inverse) < 1e17):
        return None
    W = triangle.scale[:, None] * inverse
    depth = feature_depth(space.layout, longest(source))
    square, doubt, power = folded(
        of_parts(source, _products_of_part, space, W, depth, are_large=True)
    )
    return _judge(square, doubt, power, source.n_rows)


@np.errstate(over="ignore", invalid="ignore")
def _products_of_part(
    rows: Rows, space: FeatureSpace, W: NDArray, depth: int
) -> tuple[NDArray, float, float]:
    """B^T B (upper half) of B = Phi W, and bounds of what rounding did to it, over a part."""
    size, absolute = space.dimension, np.abs(W)
    square, doubt, power = np.zeros((size, size), order="F"), 0.0, 0.0
    for piece in row_pieces(rows, space, normalised=True):
        phi = piece.features(space)
        B = phi.T @ W
        errors = gamma(depth) * piece.magnitudes(space)
        errors += gamma(size + 2) * np.abs(phi)
        doubt += float(np.sum((errors.T @ absolute) ** 2))
        power += float(np.sum(B**2))
        square = blas.dsyrk(1.0, B, beta=1.0, c=square, trans=1, lower=0, overwrite_c=1)
    return square, doubt, power


def _by_factor(triangle: Triangle, n_roundings: int, depth: int) -> Orthogonal | None:
    """A lower bound of the singular values of Phi D from a triangular factor alone, if positive.

    Without the data the factorisation itself has to be trusted, see ``factor_error``.
    """
    size = triangle.factor.shape[1]
    # What lengths and magnitudes are made of may have been lost to underflow below this.
    if np.any(np.sum((triangle.factor / triangle.scale) ** 2, axis=0) < LEAST_POWER):
        return None
    least = float(triangle.singular[0][-1])
    length = float(np.sqrt(np.sum(triangle.factor**2)))
    moved = factor_error(size, n_roundings) * length
    features = gamma(depth) * triangle.feature_size
    rounding = SLACK * (moved + features)
    return Orthogonal(least - rounding, rounding) if least > rounding else None


def _judge(square: NDArray, doubt: float, power: float, n_rows: int) -> Orthogonal | None:
    # The upper triangle is computed; off the diagonal it stands for both halves.
    upper = np.triu(square, 1)
    away = 2.0 * float(np.sum(upper**2)) + float(np.sum((square.diagonal() - 1.0) ** 2))
    summed = SLACK * gamma(n_rows + 4) * power
    left = 1.0 - SLACK * float(np.sqrt(away)) - summed
    rounding = SLACK * float(np.sqrt(doubt)) + summed
    least = float(np.sqrt(left)) - SLACK * float(np.sqrt(doubt)) if left > 0 else -1.0
    return Orthogonal(least, rounding) if least > 0 else None


def triangular_factor(parts: list[NDArray]) -> NDArray[np.float64]:
    """R of the parts, one below the other."""
    stacked = np.asfortranarray(np.concatenate(parts))
    work, _ = lapack.dgeqrf_lwork(*stacked.shape)
    result, _, _, _ = lapack.dgeqrf(stacked, lwork=int(work.real), overwrite_a=1)
    return np.triu(result[: min(stacked.shape)])
