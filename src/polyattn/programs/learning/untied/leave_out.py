"""Which traces said something that no other trace said.

A trace is *innovative* if the span of the others is smaller.  With chosen rows S (a basis) and
coefficients C of the other rows in it, the rows S_g of trace g are in the span of the other
traces iff C[S_g, rows not of g] has full row rank: other rows can then take their places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from polyattn.programs.learning.untied.basis import Basis, unit_rows
from polyattn.programs.learning.untied.span import BLOCK_ROWS, Span

# Eigenvalues of C_g C_g^T (unit rows) below this are zero: replacing g would cost digits.
REPLACEABLE = 1e-9


def innovative(span: Span) -> NDArray[np.int64]:
    """The numbers of the traces that are not in the span of the others.

    Guarantee: with exchangeable traces, (number of innovative traces among M) / M is an unbiased
    estimate of the probability that a fresh trace leaves the span of M - 1; at most the rank of
    them are innovative.
    Cost: 2 r^2 (N - r) flops in each type.
    """
    found = [_innovative(span, basis) for basis in span.bases]
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))


def _innovative(span: Span, basis: Basis) -> NDArray[np.int64]:
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


def _others(span: Span, basis: Basis) -> list[NDArray[np.int64]]:
    """The training rows of this type that were not chosen, in blocks."""
    kind = next(i for i, other in enumerate(span.bases) if other is basis)
    numbers = np.flatnonzero(span.types.assign(span.features.queries) == kind)
    left = np.setdiff1d(numbers, basis.numbers)
    return [left[first : first + BLOCK_ROWS] for first in range(0, len(left), BLOCK_ROWS)]


def _coefficients(span: Span, basis: Basis, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """C (r, rows): each row as a combination of the chosen ones."""
    rows = span.features.take(numbers)
    halfway = basis.halfway(*unit_rows(span.active, rows.pairs, rows.queries))
    return solve_triangular(basis.triangle, halfway, lower=True, trans="T", check_finite=False)
