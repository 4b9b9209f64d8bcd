"""The span of the training rows modulo a prime: what is independent there is so, provably.

Everything is an integer.  Rows (G, x) of one token type are looked at through K random forms,
which are linear in features:

    t(G, x) = (vech(G) . u)(x . v)

Training rows are brought to echelon form in these numbers, and a row is inside if it reduces to
zero.  Each form lowers the dimension of what all before it miss, unless it is unlucky: with
probability at most 2/prime (Schwartz-Zippel).  So with SPARE more forms than the rank, a row
outside is called inside with probability at most (2 K / prime)^SPARE / SPARE!, which is below
1e-20 for K up to 20,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import Echelon, Residues, centre, inverse, multiply, primes
from polyattn.certify.exact.numbers import number_residues
from polyattn.errors import InvalidInput
from polyattn.programs.certificates.certify_traces import BLOCK_ROWS, INSIDE, OUTSIDE
from polyattn.programs.learning.coefficients.active_pairs import RowFeatures
from polyattn.programs.learning.coefficients.coefficient_span import CoefficientSpan
from polyattn.programs.traces import TraceRows
from polyattn.progress import report

# Forms beyond the rank, at least.
SPARE = 8


@dataclass(frozen=True, eq=False)
class ExactSpan:
    """The span modulo a prime, of the training rows of a ``CoefficientSpan``.

    Guarantee: ``rank`` rows are independent over the rationals: a proof.  Membership is decided
    modulo the prime, in exact arithmetic: it is right unless the prime divides one of a few
    determinants (one prime in millions, by rule of thumb; not proved) or forms are unlucky.
    """

    span: CoefficientSpan
    prime: int
    kinds: tuple[_Kind, ...]

    @classmethod
    def of(cls, span: CoefficientSpan, prime: int | None = None) -> ExactSpan:
        """The exact span of the same training rows.

        Cost: 2/3 r^3 flops for the rank r of each type, and 2 u r for each row.
        """
        prime = prime or next(primes())
        features, types = span.features, span.types
        if np.any(features.pairs != np.rint(features.pairs)):
            raise InvalidInput("exact spans need integer tokens; got fractions.")
        tokens = number_residues(types.basis, prime)
        towards = _coordinates(tokens, prime)
        kinds = []
        for number, basis in enumerate(span.bases):
            here = types.kinds == number
            projector = multiply(towards[:, here], tokens[here], prime)
            # The chosen rows come first: once the rank is reached, a row costs little.
            others = np.setdiff1d(np.flatnonzero(span.kinds == number), basis.numbers)
            rows = np.append(basis.numbers, others)
            kinds.append(_Kind(features, rows, basis.rank + 2 * SPARE, projector, prime))
            report(number + 1, len(span.bases))
        return cls(span, prime, tuple(kinds))

    @property
    def arithmetic(self) -> str:
        """How membership is decided."""
        return f"modulo {self.prime}"

    @property
    def rank(self) -> int:
        """A number of rows that are independent, provably; nearly surely the rank."""
        return sum(kind.echelon.rank for kind in self.kinds)

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside" or "outside".  Cost: 2 u r flops per row."""
        if np.any(rows.queries != np.rint(rows.queries)):
            raise InvalidInput("exact spans need integer tokens; got fractions.")
        result = np.full(len(rows.queries), OUTSIDE)
        numbers = np.flatnonzero(~self.span.active.unknown(rows.grams))
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            pairs = number_residues(self.span.active.of_grams(rows.grams[some]), self.prime)
            queries = number_residues(rows.queries[some], self.prime)
            # The parts must lie in the spans of their types, and add up to the rows.
            inside, rest = np.ones(len(some), dtype=bool), queries.copy()
            for kind in self.kinds:
                part = multiply(queries, kind.projector, self.prime)
                rest -= part
                held = np.flatnonzero(part.any(axis=1))
                left = kind.echelon.reduce(kind.seen(pairs[held], part[held]))
                inside[held] &= ~left.any(axis=1)
            centre(rest, self.prime)
            inside &= ~rest.any(axis=1) | ~pairs.any(axis=1)
            result[some[inside]] = INSIDE
        return result


class _Kind:
    """The training rows of one type, seen through random forms, in echelon form.

    projector : (d, d), x @ projector is the part of x in the subspace of the type
    """

    def __init__(
        self, features: RowFeatures, rows: NDArray, n_forms: int, projector: Residues, prime: int
    ) -> None:
        self.projector, self._prime = projector, prime
        rng, half = np.random.default_rng(0), prime // 2
        while True:
            self._forms = [
                rng.integers(-half, half + 1, (n, n_forms)).astype(np.float64)
                for n in (len(features.active), features.active.n_dims)
            ]
            self.echelon = Echelon(n_forms, prime)
            for first in range(0, len(rows), BLOCK_ROWS):
                some = features.take(rows[first : first + BLOCK_ROWS])
                both = (number_residues(each, prime) for each in (some.pairs, some.queries))
                self.echelon.absorb(self.seen(*both))
            if self.echelon.rank + SPARE <= n_forms:
                return
            n_forms *= 2  # the rank in floating point was too low

    def seen(self, pairs: Residues, queries: Residues) -> Residues:
        """The forms (m, K) of rows."""
        of_pairs, of_queries = self._forms
        result = multiply(pairs, of_pairs, self._prime)
        result *= multiply(queries, of_queries, self._prime)
        centre(result, self._prime)
        return result


def _coordinates(basis: Residues, prime: int) -> Residues:
    """R (d, r) with x @ R the coefficients of x in the basis (r, d), for x in its span."""
    form = Echelon(basis.shape[1], prime)
    if len(form.absorb(basis)) < len(basis):
        raise InvalidInput(f"the prime {prime} divides the last tokens; choose another one.")
    result = np.zeros((basis.shape[1], len(basis)))
    # The columns of the pivots are independent, so the inverse exists.
    result[form.pivots] = inverse(np.ascontiguousarray(basis[:, form.pivots]), prime)
    return result
