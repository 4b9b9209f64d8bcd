"""How many statistical queries it takes to learn the parity layers: a lower bound, computed.

Wanted: a number of averages that every learner needs which sees the data through averages alone.
Assumption: uniform Boolean sequences of k tokens; the C(d-1, s) layers of ``parity_layer`` with one
known marker; averages are right to within a tolerance tau, and no better.
Argument: answer each query as if the hidden set had no influence.  For a member U whose true
average is farther than tau from that the answer is wrong, and the query *excludes* U; Bessel's
inequality bounds how many it can exclude.  All others are left with one and the same hypothesis,
which is near one of them at most.

The proof, with what the queries may be: ``docs/derivations/softmax_parity.md``.  The argument is
that of Blum et al. (1994) and Szorenyi (2009); constants and finite beta are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb, floor, log10, sqrt

import numpy as np

from polyattn.errors import InvalidInput, require_choice, require_integer, require_number
from polyattn.quoting import counted, shown
from polyattn.softmax.hardness import parity_error_bound
from polyattn.softmax.parity_weights import ParityWeights, parity_weights

QUERIES = {
    "correlational": "averages of g(X) y, g between -1 and 1 and y the output at a row",
    "row_sign": "averages of functions between -1 and 1 of X and of the sign of the output at a "
    "row",
    "all_signs": "averages of functions between -1 and 1 of X and of the signs of all its outputs",
}

# Square roots of bounds are rounded up by this factor.
UP = 1.0 + 1e-14

# Numbers of more digits are printed as a power of ten.
MOST_DIGITS = 12


@dataclass(frozen=True)
class StatisticalQueryBound:
    """What any learner by statistical queries needs for the parity layers.

    Attributes
    ----------
    n_dims, n_heads, n_tokens, beta, tolerance, queries, success : what was asked
    n_members : int
        C(d - 1, s) layers, one for each hidden set.
    correlation : float
        The largest correlation of two members, less what is common to all of them.
    dimension : int
        So many members at least are correlated by at most 1 / dimension: a lower bound on the
        statistical-query dimension of Blum et al.
    most_excluded : int
        From how many members one query can tell the common answer, at most.
    n_queries : int | None
        Whoever succeeds asks at least so many queries; 0 if the bound says nothing, None if no
        number of queries is enough at this tolerance.
    radius : float
        Success is a hypothesis whose root-mean-square error at a row is less than this: half the
        distance of the two nearest members.  With queries of signs the error is that of the sign.
    """

    n_dims: int
    n_heads: int
    n_tokens: int
    beta: float
    tolerance: float
    queries: str
    success: float
    n_members: int
    correlation: float
    dimension: int
    most_excluded: int
    n_queries: int | None
    radius: float

    @property
    def sentence(self) -> str:
        """The bound in words."""
        members = (
            f"{_figure(self.n_members)} layer{'s' * (self.n_members > 1)} of "
            f"{counted(self.n_heads, 'head')}, a parity of "
            f"{self.n_heads} of {counted(self.n_dims - 1, 'bit')} each"
        )
        if self.n_queries == 0:
            return (
                f"The bound says nothing about {members}: a guess is right with probability "
                f"{self.success:g} or more."
            )
        need = (
            "cannot be done with any number"
            if self.n_queries is None
            else f"takes at least {_figure(self.n_queries)}"
        )
        return (
            f"To learn every one of {members}, with probability {self.success:g}, from "
            f"{QUERIES[self.queries]}, each right to within {self.tolerance:g}, {need} of them: "
            f"one tells at most {_figure(self.most_excluded)} members from what is common to all."
        )

    def __str__(self) -> str:
        return self.sentence


def statistical_query_bound(
    n_dims: int,
    n_heads: int,
    tolerance: float,
    *,
    n_tokens: int = 4,
    beta: float = np.inf,
    queries: str = "all_signs",
    success: float = 0.5,
) -> StatisticalQueryBound:
    """A lower bound on the queries of any learner of ``parity_layer`` from averages.

    Parameters
    ----------
    n_dims, n_heads : d and s, s odd and less than d
    tolerance : float > 0
        An oracle may answer a query with any number within the tolerance of its average.
    n_tokens : k >= 2, tokens of a sequence
    beta : float > 0
        The sharpness; infinite by default, where outputs are signs.
    queries : "correlational" | "row_sign" | "all_signs"
        What is averaged: g(X) y with the exact output y at one row; any function of X and of the
        sign of one output; or of X and the signs of all k.  Signs are parities if
        ``parity_error_bound`` is less than 1; otherwise only "correlational" has a bound.
    success : float in (0, 1]
        The learner's probability of success, for every member.

    Returns
    -------
    StatisticalQueryBound

    Guarantee: a theorem for every learner, randomised and adaptive ones included, against some
    oracle of that tolerance.  It says nothing of learners that look at single examples: Gaussian
    elimination learns these layers from d examples.  Nor of queries that read more than the sign
    of y, but for correlations: at finite beta the low digits of y show the number of ones.
    Cost: O(s^3 + s^2 k) for finite beta.

    >>> bound = statistical_query_bound(64, 5, tolerance=0.1, queries="row_sign")
    >>> bound.n_members, bound.most_excluded, bound.n_queries
    (7028847, 76, 46243)
    """
    d, s, k = _checked_sizes(n_dims, n_heads, n_tokens)
    tau, alpha = _positive("tolerance", tolerance), _positive("success", success, most=1.0)
    beta = np.inf if beta == np.inf else _positive("beta", beta)
    require_choice("queries", queries, tuple(QUERIES))
    weights = parity_weights(s, k, beta)
    members = comb(d - 1, s)
    by_sign = queries != "correlational"
    if by_sign:
        _require_signs(s, k, beta)
        weights = parity_weights(s, k, np.inf)
        # Excluded is what differs by more than the tolerance: the bound is not attained.
        most = _excluded_by_signs(k, 1 if queries == "row_sign" else k, tau)
    else:
        most = _excluded_by_correlation(weights, d - 1, k, tau)
    excluded = min(ceil(most) - 1, members)
    own = weights.correlation(s)
    nearest = weights.correlation(s - 1) if members > 1 else 0.0
    correlation = nearest / own
    return StatisticalQueryBound(
        n_dims=d, n_heads=s, n_tokens=k, beta=float(beta), tolerance=tau, queries=queries,
        success=alpha, n_members=members, correlation=correlation,
        dimension=min(members, floor(1.0 / correlation)) if correlation > 0.0 else members,
        most_excluded=excluded,
        n_queries=_queries_needed(members, alpha, excluded),
        radius=0.5 * sqrt(2.0 * (own - nearest)),
    )  # fmt: skip


def _excluded_by_signs(n_tokens: int, n_signs: int, tau: float) -> Fraction:
    """p^2 (2^r - 1) / tau^2, p the probability of both markers and r the signs of a query."""
    return (_both_markers(n_tokens) / Fraction(tau)) ** 2 * (2**n_signs - 1)


def _excluded_by_correlation(weights: ParityWeights, n: int, n_tokens: int, tau: float) -> Fraction:
    """The least of p lambda_J / (tau - sqrt(p l_J))^2 over the degrees J < s that are set aside.

    l_J is the squared norm of the degrees 1..J, which may be what a query sees; lambda_J the
    largest row sum of the correlations of the degrees above J,
    sum_{j > J} weights_j C(s, j) C(n - j, s - j).
    """
    s = len(weights.at_most) - 1
    p = _both_markers(n_tokens)
    above = [
        Fraction(float(weights.at_most[j])) * comb(s, j) * comb(n - j, s - j) for j in range(s + 1)
    ]
    bounds, seen = [p * sum(above[1:]) / Fraction(tau) ** 2], Fraction(0)
    for degree in range(1, s):
        seen += Fraction(float(weights.at_most[degree])) * comb(s, degree)
        rest = Fraction(tau) - Fraction(sqrt(p * seen) * UP)
        if rest > 0:
            bounds.append(p * sum(above[degree + 1 :]) / rest**2)
    return min(bounds)


def _queries_needed(members: int, success: float, excluded: int) -> int | None:
    """The least q with success * members <= q * excluded + 1."""
    left = Fraction(success) * members - 1
    if left <= 0:
        return 0
    return None if excluded == 0 else ceil(left / excluded)


def _both_markers(n_tokens: int) -> Fraction:
    """The probability that a sequence has both markers."""
    return 1 - Fraction(2, 2**n_tokens)


def _require_signs(s: int, k: int, beta: float) -> None:
    if beta != np.inf and parity_error_bound(s, beta, k) >= 1.0:
        raise InvalidInput(
            f"signs of outputs are not known to be parities at beta = {beta:g}, where "
            f"parity_error_bound is {parity_error_bound(s, beta, k):.3g}; it must be less than 1. "
            "Give a larger beta, or queries='correlational'."
        )


def _checked_sizes(n_dims: int, n_heads: int, n_tokens: int) -> tuple[int, int, int]:
    d, s = require_integer("n_dims", n_dims, least=2), require_integer("n_heads", n_heads)
    if s % 2 == 0 or s >= d:
        raise InvalidInput(
            f"n_heads must be odd and less than n_dims, one coordinate being the marker; got "
            f"n_heads={s}, n_dims={d}."
        )
    return d, s, require_integer("n_tokens", n_tokens, least=2)


def _positive(name: str, value: float, most: float = np.inf) -> float:
    number = require_number(name, value, most)
    if number == 0.0:
        raise InvalidInput(f"{name} must be greater than 0; got {shown(value)}.")
    return number


def _figure(number: int) -> str:
    """A number with its digits, or as a power of ten if these are many."""
    digits = number.bit_length() * log10(2.0)
    return f"{number:,}" if digits < MOST_DIGITS else f"about 10^{digits:.0f}"
