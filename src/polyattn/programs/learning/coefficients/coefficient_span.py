"""The span of the training rows, in floating point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from polyattn.errors import InvalidInput
from polyattn.programs.certificates.certify_traces import BLOCK_ROWS, statuses
from polyattn.programs.learning.coefficients.active_pairs import ActivePairs, PairRows, RowFeatures
from polyattn.programs.learning.coefficients.token_types import TokenTypes
from polyattn.programs.traces import Trace, TraceRows
from polyattn.progress import report

# Squared distance from the span, relative to the row: below, a row is not chosen for a basis.
CHOSEN = 1e-9

# Rows whose kernel is made at once: an array of this many squared.
MOST_ROWS = 4096

# Eigenvalues of C_g C_g^T (see ``innovative``) below this are zero: replacing g would cost digits.
REPLACEABLE = 1e-9


@dataclass(frozen=True, eq=False)
class CoefficientSpan:
    """The span of the features vech(G) ⊗ x of training rows, type by type.

    kinds : integer array (N,), the type of each training row
    bases : independent rows of each type

    Guarantee: a row is called inside if its squared distance from the span is below 1e-10 of
    its square, outside above 1e-6 or if it has a pair or a last token that training never had,
    undecided between; ``gap`` says how clear the rank itself is.  For proofs see ``ExactSpan``.
    """

    features: RowFeatures
    types: TokenTypes
    kinds: NDArray[np.int64]
    bases: tuple[Basis, ...]

    @classmethod
    def of(cls, training: Iterable[Trace] | RowFeatures) -> CoefficientSpan:
        """The span of traces (or of their rows).

        Cost: N r^2 flops for N rows of rank r in each type, r^2 numbers for each type.
        """
        features = training if isinstance(training, RowFeatures) else RowFeatures.of(training)
        types = TokenTypes.of(features.queries)
        kinds = types.assign(features.queries)
        bases, done = [], 0
        for kind in range(types.n_types):
            numbers = np.flatnonzero(kinds == kind)
            bases.append(Basis.choose(features, numbers))
            done += len(numbers)
            report(done, len(features))
        return cls(features, types, kinds, tuple(bases))

    @property
    def active(self) -> ActivePairs:
        """The pairs that occur in training."""
        return self.features.active

    @cached_property
    def rank(self) -> int:
        """The number of independent rows."""
        return sum(basis.rank for basis in self.bases)

    @property
    def n_rows(self) -> int:
        """N, the training rows."""
        return len(self.features)

    @property
    def n_traces(self) -> int:
        """M, the training traces."""
        return self.features.n_traces

    @property
    def gap(self) -> tuple[float, float]:
        """Squared distances: the largest of a row called dependent, the least of one called not."""
        most = max((basis.most for basis in self.bases), default=0.0)
        return most, min((basis.least for basis in self.bases), default=1.0)

    @cached_property
    def n_innovative(self) -> int:
        """How many traces are not in the span of the others."""
        return len(innovative(self))

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided".  Cost: r^2 flops each, at rank r."""
        return statuses(self.distances(rows))

    def distances(self, rows: TraceRows) -> NDArray[np.float64]:
        """The relative squared distance (m,) of each row from the span; 1 for what is new."""
        result = np.ones(len(rows.queries))
        familiar = ~(self.active.unknown(rows.grams) | self.types.unknown(rows.queries))
        numbers = np.flatnonzero(familiar)
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            pairs = self.active.of_grams(rows.grams[some])
            queries = np.asarray(rows.queries[some], np.float64)
            # The largest distance of its parts; zero for a row without features.
            largest = np.zeros(len(some))
            for kind, basis in enumerate(self.bases):
                part = self.types.part(queries, kind)
                held = np.flatnonzero(part.any(axis=1) & pairs.any(axis=1))
                inside = basis.halfway(PairRows(self.active, pairs[held], part[held]).unit())
                left = 1.0 - np.einsum("rm,rm->m", inside, inside)
                largest[held] = np.maximum(largest[held], np.abs(left))
            result[some] = largest
        return result

    def add(self, training: Iterable[Trace]) -> CoefficientSpan:
        """The span with further traces, which may have new pairs and new kinds of tokens.

        Cost: that of a new span of all rows.
        """
        listed = list(training)
        if not listed:
            raise InvalidInput("add needs at least one trace; got none.")
        old, new, n_dims = self.features, RowFeatures.of(listed), self.active.n_dims
        flat = np.union1d(old.active.flat, new.active.flat)
        pairs = np.zeros((len(old) + len(new), len(flat)))
        pairs[: len(old), np.searchsorted(flat, old.active.flat)] = old.pairs
        pairs[len(old) :, np.searchsorted(flat, new.active.flat)] = new.pairs
        features = RowFeatures(
            ActivePairs(n_dims, *np.divmod(flat, n_dims)), pairs,
            np.concatenate([old.queries, new.queries]), np.concatenate([old.targets, new.targets]),
            np.concatenate([old.owners, old.n_traces + new.owners]),
        )  # fmt: skip
        return CoefficientSpan.of(features)


@dataclass(frozen=True, eq=False)
class Basis:
    """Independent rows, chosen by Cholesky with pivots, and the Cholesky factor of their kernel.

    For unit rows phi_i the residual of Cholesky at row j is the squared distance of phi_j from
    the span of the rows chosen so far.  The farthest comes next, until all lie in the span.

    rows : the r chosen rows, scaled to unit features
    numbers : integer array (r,), their numbers among all training rows
    triangle : array (r, r), Fortran order, lower; its product with its transpose is the kernel
    least, most : the smallest squared distance of a row that was chosen from those before, the
        largest of one that was not: far apart if the rank is beyond doubt
    """

    rows: PairRows
    numbers: NDArray[np.int64]
    triangle: NDArray[np.float64]
    least: float = 1.0
    most: float = 0.0

    @classmethod
    def choose(cls, features: RowFeatures, numbers: NDArray[np.int64]) -> Basis:
        """A basis of the span of some of the rows.

        Cost: r^2 N flops and N^2 numbers for N up to MOST_ROWS; beyond that in pieces of as
        many, with r^2 + r MOST_ROWS numbers.
        """
        basis = cls(features.take(numbers[:0]), numbers[:0], np.empty((0, 0), order="F"))
        for first in range(0, len(numbers), MOST_ROWS):
            basis = basis._grown(features, numbers[first : first + MOST_ROWS])
        return basis

    @property
    def rank(self) -> int:
        """r, how many rows were chosen."""
        return len(self.numbers)

    def halfway(self, rows: PairRows) -> NDArray[np.float64]:
        """What of each row lies in the span, in an orthonormal basis (r, m).

        That is triangle^-1 times the kernel (r, m) between the chosen rows and these.
        """
        if not self.rank:
            return np.empty((0, len(rows)))
        return solve_triangular(
            self.triangle, self.rows.kernel(rows), lower=True, check_finite=False, overwrite_b=True
        )

    def combination(self, halfway: NDArray) -> NDArray[np.float64]:
        """What lies in the span as combinations (r, m) of the chosen unit rows."""
        return solve_triangular(self.triangle, halfway, lower=True, trans="T", check_finite=False)

    def _grown(self, features: RowFeatures, numbers: NDArray[np.int64]) -> Basis:
        """The basis with those of further rows that are not in its span."""
        rows = features.take(numbers).unit()
        inside = self.halfway(rows)
        gram = rows.kernel(rows)
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
        left = largest[order[rank:]] - np.sum(np.tril(corner)[rank:, :rank] ** 2, axis=1)
        pivots = corner.diagonal()[:rank] ** 2
        old, chosen = self.rank, np.append(self.numbers, numbers[order[:rank]])
        triangle = np.zeros((len(chosen), len(chosen)), order="F")
        triangle[:old, :old], triangle[old:, :old] = self.triangle, inside[:, order[:rank]].T
        triangle[old:, old:] = np.tril(corner[:rank, :rank])
        least = min(self.least, float(pivots.min(initial=1.0)))
        most = max(self.most, float(np.abs(left).max(initial=0.0)))
        return Basis(features.take(chosen).unit(), chosen, triangle, least, most)


def innovative(span: CoefficientSpan) -> NDArray[np.int64]:
    """The numbers of the traces that are not in the span of the others.

    With chosen rows S (a basis) and coefficients C of the other rows in it, the rows S_g of trace
    g are in the span of the other traces iff C_g = C[S_g, rows not of g] has full row rank: other
    rows can then take their places.

    Guarantee: with exchangeable traces, (number of innovative traces among M) / M is an unbiased
    estimate of the probability that a fresh trace leaves the span of M - 1; at most the rank of
    them are innovative.
    Cost: 2 r^2 (N - r) flops in each type.
    """
    features, owners, found = span.features, span.features.owners, set[int]()
    for kind, basis in enumerate(span.bases):
        mine = owners[basis.numbers]
        members = {int(g): np.flatnonzero(mine == g) for g in np.unique(mine)}
        grams = {g: np.zeros((len(some), len(some))) for g, some in members.items()}
        left = np.setdiff1d(np.flatnonzero(span.kinds == kind), basis.numbers)
        for first in range(0, len(left), BLOCK_ROWS):
            others = left[first : first + BLOCK_ROWS]
            coefficients = basis.combination(basis.halfway(features.take(others).unit()))
            # A row of the same trace goes with it, and can replace nothing.
            coefficients[mine[:, None] == owners[others]] = 0.0
            for g, some in members.items():
                grams[g] += coefficients[some] @ coefficients[some].T
        found |= {g for g, gram in grams.items() if np.linalg.eigvalsh(gram)[0] < REPLACEABLE}
    return np.array(sorted(found), dtype=np.int64)
