"""The second moment of a space's features, its rounding error, and a proof that it is definite.

A factor R of M - s I, however it came about, satisfies R^T R >= 0 exactly.  So with the residual
M - s I - R^T R bounded in norm (one matrix product, whose rounding is bounded too) and M known to
be within ``error`` of the true matrix,

    M_true  >=  R^T R + (s - residual - error) I.

Nothing about the Cholesky routine is trusted, only that products are sums of products [after
S. M. Rump, Verification of positive definiteness, BIT 46 (2006)].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.rounding import (
    LEAST_POWER,
    SLACK,
    factor_error,
    feature_depth,
    gamma,
    longest,
    only_rounding,
)
from polyattn.certify.verified.sizes import diagonal_places, row_pieces
from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.blas import add_product, add_square
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.of_source import moments_of
from polyattn.stats.rows import Rows

# What a certificate is made from.
Source = Rows | Moments | TriangularFactor

# A matrix of this many columns takes 3.2 GB.
MOST_COLUMNS = 20_000


@dataclass(frozen=True, eq=False)
class Gram:
    """S = sum phi phi^T over rows, for tokens divided by 2**token_exponent.

    ``magnitudes`` (m,): sums of the squares of features without cancellation, G_jj G_kk x_l^2 in
    the papers' layer, by which their errors are measured (see ``stats.magnitudes``).
    ``factored``: it was made of a triangular factor R, as R^T R.
    ``largest``: the largest coordinate of the scaled tokens.
    ``subtracted`` (m,): what was added to ``powers`` and taken out again, both counted.
    """

    matrix: NDArray[np.float64]
    magnitudes: NDArray[np.float64]
    n_roundings: int  # additions of rows on the way into an entry, and what was done to it since
    feature_depth: int  # roundings in one feature
    total_weight: float
    factored: bool = False
    largest: float = 1.0
    subtracted: NDArray[np.float64] | None = None

    @property
    def depth(self) -> int:
        """Roundings in one entry of S, given the features of the rows."""
        return self.n_roundings + self.feature_depth + 4

    @property
    def powers(self) -> NDArray[np.float64]:
        """The diagonal of S: sums of squared features."""
        return self.matrix.diagonal()

    @property
    def keeps_digits(self) -> bool:
        """Whether underflow, 2^-1074 for a product of sums times u^2 in a row, disappears."""
        square = self.largest * self.largest  # inf where a power would be an OverflowError
        least = max(LEAST_POWER, 2.0**-1000 * self.n_roundings * (1.0 + square))
        return bool(np.all(self.powers >= least))

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """Powers of two D (m,) that bring the diagonal of D S D near one (1 where it is zero)."""
        lost = only_rounding(self.powers, self.magnitudes, self.feature_depth)
        powers = np.where(lost, self.magnitudes, self.powers)
        _, exponents = np.frexp(np.where(powers > 0, powers, 1.0))
        return np.ldexp(1.0, -(exponents // 2))

    def error(self, scale: NDArray[np.float64]) -> float:
        """A bound of ||S_computed - S||_2 after scaling both sides by D = diag(scale).

        The error of accumulation is at most gamma sqrt(S_aa S_bb) in entry (a, b), so its norm is
        at most gamma trace S; that of a factor R + E, ||E|| <= g ||R||, at most 2 g + g^2 of it in
        addition.  A feature errs by at most gamma sqrt(G_jj G_kk) |x_l|, so with
        Delta the matrix of these errors
        ||(Phi + Delta)^T (Phi + Delta) - Phi^T Phi|| <= 2 ||Phi + Delta|| ||Delta|| + ||Delta||^2.
        Of a difference both operands err by that, so their traces and magnitudes add.
        """
        squares = scale**2
        added = self.powers if self.subtracted is None else self.powers + self.subtracted
        trace = float(np.sum(added * squares))
        summed = gamma(self.depth) * trace
        if self.factored:
            moved = factor_error(len(self.matrix), self.n_roundings)
            summed += (2.0 * moved + moved**2) * trace
        size = float(np.sqrt(np.sum(self.magnitudes * squares)))
        if np.isinf(size):
            # Nothing is known of features whose terms leave float64, also where they are zero.
            return np.inf
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
    if isinstance(source, Rows) and space.is_whole:
        source = moments_of(source)
    if isinstance(source, Rows):
        lower, magnitudes = _lower_of_rows(source, space)
        matrix = np.tril(lower) + np.tril(lower, -1).T
    else:
        whole, known = whole_matrix(source), source.scaled_magnitudes()
        matrix = whole if space.is_whole else whole[np.ix_(space.columns, space.columns)]
        magnitudes = _by_diagonal(whole, space, source) if known is None else known[space.columns]
    largest = float(np.ldexp(source.coordinate_sizes.max(), -(source.token_exponent or 0)))
    gram = Gram(
        matrix, magnitudes, source.n_roundings, depth, source.total_weight,
        isinstance(source, TriangularFactor), largest,
    )  # fmt: skip
    if isinstance(source, Rows) or source.subtracted is None:
        return gram
    # Bounds take the total weight for the largest that it may be.
    added = source.total_weight + source.subtracted_weight
    return replace(
        gram,
        subtracted=source.subtracted[: source.n_features][space.columns],
        total_weight=source.total_weight + gamma(gram.depth) * added,
    )


def _lower_of_rows(rows: Rows, space: FeatureSpace) -> tuple[NDArray, NDArray]:
    """The lower triangle of S, and the magnitudes, by a pass over the data."""
    lower, magnitudes = np.zeros((space.dimension, space.dimension)), np.zeros(space.dimension)
    for piece in row_pieces(rows, space):
        add_square(lower, piece.features(space))
        magnitudes += piece.squares(space)
    return lower, magnitudes


def _by_diagonal(
    whole: NDArray, space: FeatureSpace, source: Moments | TriangularFactor
) -> NDArray[np.float64]:
    """Magnitudes from all sums: S_jj S_kk u_l^2 is a product of two features, an entry of them.

    Nothing cancels in it, unless it was made of a triangular factor, whose error is then added, or
    is a difference.
    """
    layout = space.layout
    first, second = diagonal_places(layout)
    sums, queries = space.factors
    one, other = (each[sums] * layout.n_queries + queries for each in (first, second))
    if layout.kept is not None:
        one, other = (np.searchsorted(layout.kept, each) for each in (one, other))
    if source.subtracted is not None:
        # Of both operands together no more than this, by Cauchy-Schwarz.
        lengths = np.sqrt(whole.diagonal() + source.subtracted[: len(whole)])
        return np.asarray(lengths[one] * lengths[other])
    if isinstance(source, Moments):
        return np.asarray(whole[one, other])
    lengths = np.sqrt(whole.diagonal())
    moved = factor_error(len(whole), source.n_roundings) + gamma(len(whole) + 2)
    return np.abs(whole[one, other]) + 3.0 * moved * lengths[one] * lengths[other]


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
    if not gram.keeps_digits:
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
