"""The span of the training rows, in floating point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from polyattn.errors import InvalidInput
from polyattn.programs.certificates.certify_traces import FLOATING_POINT, statuses
from polyattn.programs.learning.coefficients.basis import Basis, unit_rows
from polyattn.programs.learning.coefficients.features import ActivePairs, RowFeatures
from polyattn.programs.learning.coefficients.types import TokenTypes
from polyattn.programs.traces import Trace, TraceRows
from polyattn.progress import report

# Rows that are tested together.
BLOCK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class CoefficientSpan:
    """The span of the features vech(G) ⊗ x of training rows, type by type.

    Guarantee: a row is called inside if its squared distance from the span is below 1e-10 of
    its square, outside above 1e-6 or if it has a pair or a last token that training never had,
    undecided between; ``gap`` says how clear the rank itself is.  For proofs see ``ExactSpan``.
    """

    features: RowFeatures
    types: TokenTypes
    bases: tuple[Basis, ...]
    arithmetic = FLOATING_POINT

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
            rows = features.take(numbers)
            bases.append(Basis.choose(features.active, rows.pairs, rows.queries, numbers))
            done += len(numbers)
            report(done, len(features))
        return cls(features, types, tuple(bases))

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

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided".

        Cost: r^2 flops per row for the rank r of its type.
        """
        return statuses(self.distances(rows))

    def distances(self, rows: TraceRows) -> NDArray[np.float64]:
        """The relative squared distance (m,) of each row from the span; 1 for what is new."""
        result = np.ones(len(rows.queries))
        familiar = ~(self.active.strangers(rows.grams) | self.types.strangers(rows.queries))
        numbers = np.flatnonzero(familiar)
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            pairs = self.active.of_grams(rows.grams[some])
            result[some] = self._distances(pairs, np.asarray(rows.queries[some], np.float64))
        return result

    def _distances(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """The largest distance of the parts of each row; zero for a row without features."""
        result = np.zeros(len(queries))
        for kind, basis in enumerate(self.bases):
            part = self.types.part(queries, kind)
            held = np.flatnonzero(part.any(axis=1) & pairs.any(axis=1))
            unit = unit_rows(self.active, pairs[held], part[held])
            result[held] = np.maximum(result[held], np.abs(basis.residuals(*unit)))
        return result

    def add(self, training: Iterable[Trace]) -> CoefficientSpan:
        """The span with further traces; new pairs and new kinds of tokens are welcome.

        Cost: that of a new span of all rows.
        """
        listed = list(training)
        if not listed:
            raise InvalidInput("add needs at least one trace; got none.")
        return CoefficientSpan.of(self.features.joined(listed))


# Which traces said something that no other trace said.
#
# A trace is *innovative* if the span of the others is smaller.  With chosen rows S (a basis) and
# coefficients C of the other rows in it, the rows S_g of trace g are in the span of the other
# traces iff C[S_g, rows not of g] has full row rank: other rows can then take their places.

# Eigenvalues of C_g C_g^T (unit rows) below this are zero: replacing g would cost digits.
REPLACEABLE = 1e-9


def innovative(span: CoefficientSpan) -> NDArray[np.int64]:
    """The numbers of the traces that are not in the span of the others.

    Guarantee: with exchangeable traces, (number of innovative traces among M) / M is an unbiased
    estimate of the probability that a fresh trace leaves the span of M - 1; at most the rank of
    them are innovative.
    Cost: 2 r^2 (N - r) flops in each type.
    """
    found = [_innovative(span, basis) for basis in span.bases]
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))


def _innovative(span: CoefficientSpan, basis: Basis) -> NDArray[np.int64]:
    """The same for the rows of one type."""
    owners = span.features.owners
    mine = owners[basis.numbers]
    order = np.argsort(mine, kind="stable")
    names, starts = np.unique(mine[order], return_index=True)
    members = np.split(order, starts[1:])
    grams = [np.zeros((len(some), len(some))) for some in members]
    for others in _others(span, basis):
        coefficients = _coefficients(span, basis, others)
        # A row of the same trace goes with it, and can replace nothing.
        coefficients[mine[:, None] == owners[others]] = 0.0
        for gram, some in zip(grams, members, strict=True):
            gram += coefficients[some] @ coefficients[some].T
    lost = [np.linalg.eigvalsh(gram)[0] < REPLACEABLE for gram in grams]
    return names[np.array(lost, dtype=bool)]


def _others(span: CoefficientSpan, basis: Basis) -> list[NDArray[np.int64]]:
    """The training rows of this type that were not chosen, in blocks."""
    kind = next(i for i, other in enumerate(span.bases) if other is basis)
    numbers = np.flatnonzero(span.types.assign(span.features.queries) == kind)
    left = np.setdiff1d(numbers, basis.numbers)
    return [left[first : first + BLOCK_ROWS] for first in range(0, len(left), BLOCK_ROWS)]


def _coefficients(
    span: CoefficientSpan, basis: Basis, numbers: NDArray[np.int64]
) -> NDArray[np.float64]:
    """C (r, rows): each row as a combination of the chosen ones."""
    rows = span.features.take(numbers)
    halfway = basis.halfway(*unit_rows(span.active, rows.pairs, rows.queries))
    return solve_triangular(basis.triangle, halfway, lower=True, trans="T", check_finite=False)
