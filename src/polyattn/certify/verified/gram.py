"""The second moment of a space's features, its rounding error, and a proof that it is definite.

A factor R of M - s I, however it came about, satisfies R^T R >= 0 exactly.  So with the residual
M - s I - R^T R bounded in norm (one matrix product, whose rounding is bounded too) and M known to
be within ``error`` of the true matrix,

    M_true  >=  R^T R + (s - residual - error) I.

Nothing about the Cholesky routine is trusted, only that products are sums of products [after
S. M. Rump, Verification of positive definiteness, BIT 46 (2006)].

The ends of the spectrum of Lambda_D on a space are estimates to report, not to rest a proof on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.rounding import LEAST_POWER, SLACK, feature_depth, gamma, longest
from polyattn.certify.verified.sizes import by_diagonal, diagonal_places, row_pieces
from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.blas import add_product, add_square
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# What a certificate is made from.
Source = Rows | Moments | TriangularFactor

# A matrix of this many columns takes 3.2 GB.
MOST_COLUMNS = 20_000

# Up to this size all eigenvalues are as cheap as two.
DENSE_SIZE = 600

# Vectors that Lanczos iterations keep for the largest eigenvalue, which usually stands alone.
KRYLOV = 8


@dataclass(frozen=True, eq=False)
class Gram:
    """S = sum phi phi^T over rows, for tokens divided by 2**token_exponent.

    ``magnitudes`` (m,): sums of the squares of features without cancellation, G_jj G_kk x_l^2 in
    the papers' layer, by which their errors are measured (see ``sizes``); infinite where unknown.
    """

    matrix: NDArray[np.float64]
    magnitudes: NDArray[np.float64]
    n_rows: int
    feature_depth: int  # roundings in one feature
    total_weight: float

    @property
    def depth(self) -> int:
        """Roundings in one entry of S, given the features of the rows."""
        return self.n_rows + self.feature_depth + 4

    @property
    def powers(self) -> NDArray[np.float64]:
        """The diagonal of S: sums of squared features."""
        return self.matrix.diagonal()

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """Powers of two D (m,) that bring the diagonal of D S D near one (1 where it is zero)."""
        powers = self.powers
        _, exponents = np.frexp(np.where(powers > 0, powers, 1.0))
        return np.ldexp(1.0, -(exponents // 2))

    def error(self, scale: NDArray[np.float64]) -> float:
        """A bound of ||S_computed - S||_2 after scaling both sides by D = diag(scale).

        The error of accumulation is at most gamma sqrt(S_aa S_bb) in entry (a, b), so its norm is
        at most gamma trace S.  A feature errs by at most gamma sqrt(G_jj G_kk) |x_l|, so with
        Delta the matrix of these errors
        ||(Phi + Delta)^T (Phi + Delta) - Phi^T Phi|| <= 2 ||Phi + Delta|| ||Delta|| + ||Delta||^2.
        """
        squares = scale**2
        trace = float(np.sum(self.powers * squares))
        summed = gamma(self.depth) * trace
        size = float(np.sqrt(np.sum(self.magnitudes * squares)))
        delta = gamma(self.feature_depth) * size
        return SLACK * (summed + 2.0 * delta * np.sqrt(trace) + delta**2)

    @property
    def feature_size(self) -> float:
        """sqrt(sum of D^2 magnitudes): what the errors of all features are relative to."""
        return float(np.sqrt(np.sum(self.scale**2 * self.magnitudes)))

    def scaled(self, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """D S D, D = diag(scale), a fresh matrix."""
        matrix = self.matrix * scale
        matrix *= scale[:, None]
        return matrix


def require_memory(space: FeatureSpace) -> None:
    """Refuse a matrix that is too large for memory, before it is made."""
    if space.dimension > MOST_COLUMNS:
        raise InvalidInput(
            f"a certificate needs a matrix of {space.dimension} x {space.dimension} numbers "
            f"({8e-9 * space.dimension**2:.0f} GB); this release goes up to {MOST_COLUMNS} "
            "features. Use fewer coordinates, or a domain whose features span less."
        )


def gram_of(source: Source, space: FeatureSpace) -> Gram:
    """From sums, of a triangular factor R^T R; or by one pass over the data.

    Cost: memory m^2 numbers, whatever the number of sequences.
    """
    require_memory(space)
    depth = feature_depth(space.layout, longest(source))
    # Sums do not know how long a context was.
    sized = by_diagonal(space.layout)
    sized &= isinstance(source, Rows) or space.layout.n_context_dims is None
    if isinstance(source, Rows) and space.is_whole and sized:
        source = Moments.of(source)
    if isinstance(source, Rows):
        lower, magnitudes = _lower_of_rows(source, space)
        matrix = np.tril(lower) + np.tril(lower, -1).T
    else:
        whole = whole_matrix(source)
        matrix = whole if space.is_whole else whole[np.ix_(space.columns, space.columns)]
        unknown = np.full(space.dimension, np.inf)
        magnitudes = _magnitudes_of(whole, space) if sized else unknown
    return Gram(matrix, magnitudes, source.n_rows, depth, source.total_weight)


def _lower_of_rows(rows: Rows, space: FeatureSpace) -> tuple[NDArray, NDArray]:
    """The lower triangle of S, and the magnitudes, by a pass over the data."""
    lower, magnitudes = np.zeros((space.dimension, space.dimension)), np.zeros(space.dimension)
    if space.is_whole:
        lower = Moments.of(rows).scaled_gram()
    for piece in row_pieces(rows, space):
        if not space.is_whole:
            add_square(lower, piece.features(space))
        magnitudes += np.sum(piece.magnitudes(space) ** 2, axis=1)
    return lower, magnitudes


def _magnitudes_of(whole: NDArray, space: FeatureSpace) -> NDArray[np.float64]:
    """From all sums: S_jj S_kk u_l^2 is a product of two features, an entry of the matrix."""
    layout = space.layout
    first, second = diagonal_places(layout)
    sums, queries = space.factors
    one, other = (each[sums] * layout.n_queries + queries for each in (first, second))
    if layout.kept is not None:
        one, other = (np.searchsorted(layout.kept, each) for each in (one, other))
    return np.asarray(whole[one, other])


def whole_matrix(statistics: Moments | TriangularFactor) -> NDArray[np.float64]:
    """sum psi psi^T (p, p) of all features, tokens scaled."""
    if isinstance(statistics, Moments):
        return statistics.scaled_gram()
    factor = statistics.scaled_factor()
    return factor.T @ factor


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
    ``shift``: the margin to prove, after scaling; 0 for any positive one.
    Cost: one Cholesky factorisation and one product of triangles, 2/3 m^3 flops.
    """
    # Features of less power may have lost bits to underflow, and some sums do not know theirs.
    if not (np.all(gram.powers >= LEAST_POWER) and np.all(np.isfinite(gram.magnitudes))):
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
    # The matrix is symmetric: its C order is the Fortran order of LAPACK.
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
    size, lower = len(factor), factor.T  # in C order, which is faster in products
    squares, power = 0.0, float(np.einsum("ij,ij->", lower, lower))
    for first, stop in even_ranges(size, 256):
        residual = np.zeros((stop - first, size - first))
        add_product(residual, lower[first:stop, :stop], lower[first:, :stop])
        residual -= shifted[first:stop, first:]
        # What stands right of the diagonal block stands below it as well.
        squares += 2.0 * float(np.einsum("ij,ij->", residual, residual))
        squares -= float(np.sum(residual[:, : stop - first] ** 2))
    trace = float(np.trace(shifted)) + size * shift
    return SLACK * (float(np.sqrt(squares)) + gamma(size + 4) * (trace + power))


def extremes(matrix: NDArray[np.float64], proof: Definite | None = None) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric matrix.

    Large ones by Lanczos iterations: with a Cholesky factor for the smallest eigenvalue, or the
    one that a proof made of (nearly) D ``matrix`` D.
    """
    if len(matrix) <= DENSE_SIZE:
        return _dense_extremes(matrix)
    if proof is None:
        factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=1)
        scale = np.ones(len(matrix))
    else:
        factor, scale, failed = proof.factor, proof.scale, 0

    def solve(vector: NDArray) -> NDArray:
        """By D (R^T R)^-1 D, nearly the inverse; the quotient corrects what is not."""
        half = solve_triangular(factor, scale * vector, trans=1, check_finite=False)
        return scale * solve_triangular(factor, half, check_finite=False)

    if not failed:
        inverse = LinearOperator(matrix.shape, matvec=solve, dtype=np.float64)
        with suppress(ArpackNoConvergence):
            return _lanczos(inverse, matrix), _lanczos(matrix, matrix, KRYLOV)
    return _dense_extremes(matrix)


def largest(matrix: NDArray[np.float64]) -> float:
    """The largest eigenvalue of a symmetric matrix alone."""
    if len(matrix) > DENSE_SIZE:
        with suppress(ArpackNoConvergence):
            return _lanczos(matrix, matrix, KRYLOV)
    return _dense_extremes(matrix)[1]


def second_moment(gram: Gram, space: FeatureSpace) -> NDArray[np.float64]:
    """L^T Lambda_phi L with L L^T = E^T E: its eigenvalues are those of Lambda_D = E Lambda E^T.

    In the units of scaled tokens.
    """
    matrix = gram.matrix / gram.total_weight
    if space.is_whole:
        return matrix
    shares = (space.expansion.T @ space.expansion).toarray()
    if np.count_nonzero(shares) == len(shares):
        roots = np.sqrt(shares.diagonal())
        return matrix * roots * roots[:, None]
    lower = np.linalg.cholesky(shares)
    return lower.T @ matrix @ lower


def _dense_extremes(matrix: NDArray) -> tuple[float, float]:
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])


def _lanczos(operator: NDArray | LinearOperator, matrix: NDArray, ncv: int | None = None) -> float:
    """The eigenvalue of ``matrix`` whose vector has the largest eigenvalue of ``operator``."""
    # Errors of eigenvalues are the squares of errors of their vectors.
    start = np.ones(len(matrix))
    _, vectors = eigsh(operator, k=1, which="LA", v0=start, ncv=ncv, tol=1e-4)
    vector = vectors[:, 0]
    return float(vector @ matrix @ vector / (vector @ vector))
