"""Independent rows: chosen by Cholesky with pivots, kept as a triangle that can grow.

For unit rows phi_i the residual of Cholesky at row j is the squared distance of phi_j from the
span of the rows chosen so far.  The farthest comes next, until all that are left lie in the span.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from polyattn.programs.learning.coefficients.features import ActivePairs, kernel

# Squared distance from the span, relative to the row: below, a row counts as inside.
CHOSEN = 1e-9

# Rows whose kernel is made at once: an array of this many squared.
MOST_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Basis:
    """Independent rows of one token type, and the Cholesky factor of their kernel.

    pairs : array (r, u) and queries (r, d) of the chosen rows, scaled to unit features
    numbers : integer array (r,), their numbers among all training rows
    triangle : array (r, r), Fortran order, lower; its product with its transpose is the kernel
    least, most : the smallest squared distance of a row that was chosen from those before, the
        largest of one that was not: far apart if the rank is beyond doubt
    """

    active: ActivePairs
    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]
    numbers: NDArray[np.int64]
    triangle: NDArray[np.float64]
    least: float = 1.0
    most: float = 0.0

    @classmethod
    def choose(
        cls, active: ActivePairs, pairs: NDArray, queries: NDArray, numbers: NDArray
    ) -> Basis:
        """A basis of the span of rows: pairs (N, u), queries (N, d), with their numbers (N,).

        Cost: r^2 N flops and N^2 numbers for N up to MOST_ROWS; beyond that in pieces of as
        many, with r^2 + r MOST_ROWS numbers.
        """
        n_dims = queries.shape[1]
        basis = cls(
            active, np.empty((0, len(active))), np.empty((0, n_dims)),
            np.empty(0, dtype=np.int64), np.empty((0, 0), order="F"),
        )  # fmt: skip
        for first in range(0, len(pairs), MOST_ROWS):
            some = slice(first, first + MOST_ROWS)
            basis = basis.grown(pairs[some], queries[some], numbers[some])
        return basis

    @property
    def rank(self) -> int:
        """r, how many rows were chosen."""
        return len(self.numbers)

    @cached_property
    def weighted(self) -> NDArray[np.float64]:
        """The pairs, each weighted by how often it stands in G."""
        return self.pairs * self.active.multiplicity

    def kernel(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """The kernel (r, m) between the chosen rows and others."""
        result = self.weighted @ pairs.T
        result *= self.queries @ queries.T
        return result

    def halfway(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """triangle^-1 kernel (r, m): what of each row lies in the span, in an orthonormal basis."""
        return solve_triangular(
            self.triangle, self.kernel(pairs, queries), lower=True, check_finite=False,
            overwrite_b=True,
        )  # fmt: skip

    def residuals(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """Squared distances (m,) of unit rows from the span."""
        if not self.rank:
            return np.ones(len(pairs))
        inside = self.halfway(pairs, queries)
        return 1.0 - np.einsum("rm,rm->m", inside, inside)

    def grown(self, pairs: NDArray, queries: NDArray, numbers: NDArray) -> Basis:
        """The basis with those of further rows that are not in its span."""
        pairs, queries = unit_rows(self.active, pairs, queries)
        gram = kernel(self.active, pairs, queries, pairs, queries)
        inside = self.halfway(pairs, queries) if self.rank else np.empty((0, len(pairs)))
        if self.rank:
            gram -= inside.T @ inside
        largest = np.maximum(gram.diagonal().copy(), 0.0)
        corner, order, rank, _ = lapack.dpstrf(
            np.asfortranarray(gram), tol=CHOSEN, lower=1, overwrite_a=1
        )
        del gram
        # LAPACK counts from one; with the very first pivot below the tolerance it may say 1.
        rank = 0 if largest.max(initial=0.0) <= CHOSEN else int(rank)
        order = order - 1
        chosen = order[:rank]
        left = largest[order[rank:]] - np.sum(np.tril(corner)[rank:, :rank] ** 2, axis=1)
        pivots = corner.diagonal()[:rank] ** 2
        return Basis(
            self.active,
            np.concatenate([self.pairs, pairs[chosen]]),
            np.concatenate([self.queries, queries[chosen]]),
            np.concatenate([self.numbers, numbers[chosen]]),
            _joined(self.triangle, inside[:, chosen].T, np.tril(corner[:rank, :rank])),
            min(self.least, float(pivots.min(initial=1.0))),
            max(self.most, float(np.abs(left).max(initial=0.0))),
        )


def unit_rows(
    active: ActivePairs, pairs: NDArray, queries: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """TraceRows scaled to features of norm one; rows without features stay zero."""
    of_pairs = np.sqrt((pairs**2) @ active.multiplicity)
    of_queries = np.linalg.norm(queries, axis=1)
    return (
        pairs / np.where(of_pairs > 0, of_pairs, 1.0)[:, None],
        queries / np.where(of_queries > 0, of_queries, 1.0)[:, None],
    )


def _joined(upper: NDArray, side: NDArray, corner: NDArray) -> NDArray[np.float64]:
    """The lower triangle [[upper, 0], [side, corner]] in Fortran order."""
    rank, size = len(upper), len(upper) + len(corner)
    if not rank:
        return np.asfortranarray(corner)
    result = np.zeros((size, size), order="F")
    result[:rank, :rank], result[rank:, :rank], result[rank:, rank:] = upper, side, corner
    return result
