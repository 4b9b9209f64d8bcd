"""Full column rank, proved with a triangular factor: for eigenvalues too small for a Gram.

Let Phi (rows, m) be the features, rows brought to similar size, and W any matrix (m, m), in
practice D R^-1 of a QR factorisation.  If the columns of B = Phi W are nearly orthonormal,

    sigma_min(B)  >=  sqrt(1 - ||B^T B - I||) - rounding  >  0,

then Phi W, and with it Phi, has full column rank: whatever W is, and whoever computed it.  One
pass over the data forms B block by block, and bounds its rounding errors row by row.  Condition
numbers of Phi up to about 1e13 (of Lambda_D: 1e26) are decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.rounding import SLACK, feature_depth, gamma
from polyattn.certify.verified.triangle import Triangle, normalised_pieces
from polyattn.stats import TriangularFactor
from polyattn.stats.rows import Rows

# The "small integer constant" of Householder's error analysis, taken generously.
HOUSEHOLDER_CONSTANT = 32.0

# Entries of an inverse at which no proof can succeed.
HOPELESS = 1e17


@dataclass(frozen=True)
class Orthogonal:
    """The columns of Phi W (or of Phi D) have singular values of at least ``least``, proved."""

    least: float
    rounding: float


def prove_independent(rows: Rows, space: FeatureSpace, triangle: Triangle) -> Orthogonal | None:
    """The proof that the features have full column rank, or None where doubt is left.

    Cost: one pass, 4 m^2 flops per row and as many for the bound.
    """
    size = space.dimension
    if len(triangle.factor) < size or np.any(triangle.factor.diagonal() == 0.0):
        return None
    inverse, failed = lapack.dtrtri(triangle.factor)
    # NaN fails as well.
    if failed or not np.all(np.abs(inverse) < HOPELESS):
        return None
    W = triangle.scale[:, None] * inverse
    absolute = np.abs(W)
    depth = feature_depth(int(rows.batch.lengths.max()))
    square, doubt, power = np.zeros((size, size), order="F"), 0.0, 0.0
    for pairs, queries in normalised_pieces(rows, space):
        phi = space.features(pairs, queries)
        B = phi.T @ W
        errors = gamma(depth) * space.magnitudes(pairs, queries)
        errors += gamma(size + 2) * np.abs(phi)
        doubt += float(np.sum((errors.T @ absolute) ** 2))
        power += float(np.sum(B**2))
        square = blas.dsyrk(1.0, B, beta=1.0, c=square, trans=1, lower=0, overwrite_c=1)
    return _judge(square, doubt, power, rows.n_rows)


def prove_by_factor(statistics: TriangularFactor, triangle: Triangle) -> Orthogonal | None:
    """A lower bound of the singular values of Phi D from a triangular factor alone, if positive.

    Without the data the factorisation itself has to be trusted: Householder QR of r rows moves
    each column by at most gamma(c r m) of its length [Higham, theorem 19.4], and at worst every
    row was stacked on a factor of m rows and factored anew.
    """
    size = triangle.factor.shape[1]
    if len(triangle.factor) < size:
        return None
    least = float(triangle.singular[0][-1])
    length = float(np.sqrt(np.sum(triangle.factor**2)))
    moved = gamma(HOUSEHOLDER_CONSTANT * size * (size + 1.0) * (statistics.n_rows + 1.0)) * length
    features = gamma(feature_depth(statistics.max_length)) * triangle.feature_size
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
