"""The span of the training rows modulo a prime: what is independent there is so, provably.

Everything is an integer: tokens, Gram matrices, and the kernel <G,G'><x,x'>.  With the kernel K
of the chosen rows and random tests t(G, x) = (vech(G) . u)(x . v), which are linear in features,

    a row is inside  =>  t(row) = k(row) K^-1 t(chosen rows),    k(row) its kernel with the chosen.

A row that is outside fulfils this for one test with probability at most 2/prime
(Schwartz-Zippel), so TESTS of them decide; a row costs no more than its kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import Echelon, Residues, centre, inverse, multiply, primes
from polyattn.certify.exact.numbers import number_residues
from polyattn.errors import InvalidInput
from polyattn.programs.certificates.certify_traces import INSIDE, OUTSIDE
from polyattn.programs.learning.coefficients.coefficient_span import BLOCK_ROWS, CoefficientSpan
from polyattn.programs.traces import TraceRows
from polyattn.progress import report

# (2 / prime)^TESTS is below 1e-24: a row is called inside by accident that rarely.
TESTS = 4


@dataclass(frozen=True, eq=False)
class ExactSpan:
    """The span modulo a prime, built from the rows that ``CoefficientSpan`` chose.

    Guarantee: ``rank`` rows are independent over the rationals: a proof.  Membership is decided
    modulo the prime, in exact arithmetic: it is right unless the prime divides one of a few
    determinants (one prime in millions, by rule of thumb; not proved) or all tests fail.
    """

    span: CoefficientSpan
    prime: int
    kinds: tuple[_Kind, ...]

    @classmethod
    def of(cls, span: CoefficientSpan, prime: int | None = None) -> ExactSpan:
        """The exact span of the same training rows.

        Cost: 2/3 r^3 flops for the rank r of each type, and the kernel of all rows with the
        chosen ones.
        """
        prime = prime or next(primes())
        features, types = span.features, span.types
        if np.any(features.pairs != np.rint(features.pairs)):
            raise InvalidInput("exact spans need integer tokens; got fractions.")
        towards = _coordinates(types.basis, prime)
        kinds, assigned = [], types.assign(features.queries)
        for number, basis in enumerate(span.bases):
            here = types.kinds == number
            projector = multiply(towards[:, here], _residues(types.basis[here], prime), prime)
            rows = np.flatnonzero(assigned == number)
            kinds.append(_Kind.of(span, basis.numbers, rows, projector, prime))
            report(number + 1, len(span.bases))
        return cls(span, prime, tuple(kinds))

    @property
    def arithmetic(self) -> str:
        """How membership is decided."""
        return f"modulo {self.prime}"

    @property
    def rank(self) -> int:
        """A number of rows that are independent, provably; nearly surely the rank."""
        return sum(len(kind.weighted) for kind in self.kinds)

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside" or "outside".  Cost: 2 u r flops per row."""
        if np.any(rows.queries != np.rint(rows.queries)):
            raise InvalidInput("exact spans need integer tokens; got fractions.")
        result = np.full(len(rows.queries), OUTSIDE)
        numbers = np.flatnonzero(~self.span.active.strangers(rows.grams))
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            pairs = _residues(self.span.active.of_grams(rows.grams[some]), self.prime)
            queries = _residues(rows.queries[some], self.prime)
            # The parts must lie in the spans of their types, and add up to the rows.
            inside, rest = np.ones(len(some), dtype=bool), queries.copy()
            for kind in self.kinds:
                part = multiply(queries, kind.projector, self.prime)
                rest -= part
                held = np.flatnonzero(part.any(axis=1))
                inside[held] &= kind.inside(pairs[held], part[held])
            centre(rest, self.prime)
            inside &= ~rest.any(axis=1) | ~pairs.any(axis=1)
            result[some[inside]] = INSIDE
        return result


@dataclass(frozen=True, eq=False)
class _Kind:
    """Independent rows of one type: K^-1 t(chosen rows) for all tests, in residues."""

    prime: int
    projector: Residues  # (d, d): x @ projector is the part of x in the subspace of the type
    weighted: Residues  # (r, u): pairs of the chosen rows times their multiplicity
    queries: Residues  # (r, d)
    forms: tuple[Residues, Residues]  # u (n_pairs, TESTS), v (d, TESTS)
    solved: Residues  # (r, TESTS)

    @classmethod
    def of(
        cls, span: CoefficientSpan, chosen: NDArray, rows: NDArray, projector: Residues, prime: int
    ) -> _Kind:
        """From the rows that were chosen in floating point; what that got wrong is put right."""
        rng = np.random.default_rng(0)
        half = prime // 2
        features, active = span.features, span.active
        forms = (
            rng.integers(-half, half + 1, (len(active), TESTS)).astype(np.float64),
            rng.integers(-half, half + 1, (features.queries.shape[1], TESTS)).astype(np.float64),
        )
        while True:
            some = features.take(chosen)
            pairs, queries = _residues(some.pairs, prime), _residues(some.queries, prime)
            weighted = pairs * active.multiplicity
            centre(weighted, prime)
            kernel = _products(pairs, queries, weighted.T, queries.T, prime)
            solved = _solve(kernel, _products(pairs, queries, *forms, prime), prime)
            if solved is None:
                # Independent rows of a symmetric matrix: the minor on them is not zero.
                chosen = chosen[Echelon(len(chosen), prime).absorb(kernel)]
                continue
            kind = cls(prime, projector, weighted, queries, forms, solved)
            missed = kind.first_outside(span, np.setdiff1d(rows, chosen))
            if missed is None:
                return kind
            chosen = np.append(chosen, missed)

    def inside(self, pairs: Residues, queries: Residues) -> NDArray[np.bool_]:
        """Whether rows pass all tests."""
        kernel = _products(pairs, queries, self.weighted.T, self.queries.T, self.prime)
        rest = _products(pairs, queries, *self.forms, self.prime)
        rest -= multiply(kernel, self.solved, self.prime)
        centre(rest, self.prime)
        return np.all(rest == 0, axis=1)

    def first_outside(self, span: CoefficientSpan, numbers: NDArray) -> int | None:
        """The first training row that is not in the span of the chosen ones."""
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            rows = span.features.take(some)
            pairs, queries = _residues(rows.pairs, self.prime), _residues(rows.queries, self.prime)
            outside = np.flatnonzero(~self.inside(pairs, queries))
            if len(outside):
                return int(some[outside[0]])
        return None


def _products(
    pairs: Residues, queries: Residues, of_pairs: Residues, of_queries: Residues, prime: int
) -> Residues:
    """Forms (m, n) of m rows: those of their pairs times those of their last tokens."""
    result = multiply(pairs, of_pairs, prime)
    result *= multiply(queries, of_queries, prime)
    centre(result, prime)
    return result


def _solve(matrix: Residues, right: Residues, prime: int) -> Residues | None:
    """matrix^-1 right, or None if the matrix is singular modulo the prime."""
    size = len(matrix)
    echelon = Echelon(size + right.shape[1], prime)
    echelon.absorb(np.concatenate([matrix, right], axis=1))
    if echelon.rank < size or echelon.pivots.max(initial=-1) >= size:
        return None
    result = np.empty(right.shape)
    result[echelon.pivots[:, None], echelon.free - size] = echelon.coefficients
    return result


def _coordinates(basis: NDArray, prime: int) -> Residues:
    """R (d, r) with x @ R the coefficients of x in the basis (r, d), for x in its span."""
    residues = _residues(basis, prime)
    form = Echelon(basis.shape[1], prime)
    if len(form.absorb(residues)) < len(basis):
        raise InvalidInput(f"the prime {prime} divides the last tokens; choose another one.")
    inverted = inverse(np.ascontiguousarray(residues[:, form.pivots]), prime)
    result = np.zeros((basis.shape[1], len(basis)))
    # The columns of the pivots are independent, so the inverse exists.
    result[form.pivots] = inverted
    return result


def _residues(integers: NDArray, prime: int) -> Residues:
    return number_residues(np.ascontiguousarray(integers), prime)
