"""The rank of the features of a data set, proved.

Rows that are independent modulo a prime are independent: the rank found is a lower bound.  An
integer vector orthogonal to every row is found modulo primes but checked in integers: with
n_columns - rank independent ones the bound is the rank.  Nothing here rests on rounding, nor
on luck: an unlucky prime makes the bound lower or the search fail, never an answer wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.feature_rows import ExactSummary, FeatureRows
from polyattn.certify.exact.integers import (
    LIMB,
    annihilated,
    feature_bits,
    integer_rows,
    lifted,
    reconstruct,
    to_features,
)
from polyattn.certify.exact.modular import SLAB, Echelon, primes
from polyattn.certify.exact.numbers import number_residues
from polyattn.progress import report

Vector = tuple[int, ...]

# Null vectors that are read off one prime, and how many of the simplest are checked.
CANDIDATES, ATTEMPTS = 64, 8

# Multiply-adds that lifting may spend: a minute or two.  Those of a pass over the data are
# slower by PASS, and a digit more may take a pass more to check.
EFFORT, PASS = 2e11, 10


@dataclass(frozen=True, eq=False)
class ExactRank:
    """A proved lower bound of the rank, and the rows that prove it."""

    rank: int
    n_columns: int
    prime: int
    independent: NDArray[np.int64]  # (rank,): numbers of independent rows
    echelon: Echelon = field(repr=False)

    @property
    def n_free(self) -> int:
        """How many independent null vectors would prove that the rank is no larger."""
        return self.n_columns - self.rank


def exact_rank(rows: FeatureRows, most: int | None = None, prime: int | None = None) -> ExactRank:
    """The rank of the features modulo a prime, at most the true rank, and nearly always it.

    ``most`` is an upper bound known beforehand (the dimension of a domain): data are read only
    until it is reached.  ``prime`` is chosen unless given.

    Guarantee: the rows ``independent`` are linearly independent over the rationals.
    Cost: 2 r n flops per row that is independent, 4 u d per row that is not (u pairs in use).
    """
    if prime is None:
        # One that divides none of the first tokens: one that does may lower the rank.
        tokens = rows.batch.values[:1024]
        nonzero = tokens != 0
        prime = next(p for p in primes() if np.all(number_residues(tokens, p)[nonzero]))
    limit = min(rows.n_columns, rows.n_rows, rows.n_columns if most is None else most)
    echelon = Echelon(rows.n_columns, prime)
    independent = [np.empty(0, dtype=np.int64)]
    rng = np.random.default_rng(0)
    for block in rows.summaries(prime):
        independent += _absorb(echelon, block, limit, rng)
        report(block.stop, rows.n_rows)
        if echelon.rank >= limit:
            break
    return ExactRank(echelon.rank, rows.n_columns, prime, np.concatenate(independent), echelon)


def null_vector(rows: FeatureRows, found: ExactRank, effort: float = EFFORT) -> Vector | None:
    """One integer vector v, not zero, with psi . v = 0 for every row, of few small entries.

    Guarantee: checked in integers.  None if the rank is full, or nothing was confirmed within
    ``effort`` multiply-adds.
    """
    # By how many pivot columns the null vector of each free column involves.
    supports = np.count_nonzero(found.echelon.coefficients, axis=0)
    sparsest = np.argsort(supports, kind="stable")
    candidates = list(_read_off(rows, found, sparsest[:CANDIDATES]).values())
    candidates.sort(key=lambda vector: (sum(map(bool, vector)), max(map(abs, vector))))
    for vector in candidates[:ATTEMPTS]:
        if annihilated(rows, [vector])[0]:
            return vector
    vectors = _lift(rows, found, sparsest[:1], effort)
    return vectors[0] if vectors else None


def null_space(
    rows: FeatureRows, found: ExactRank, most_vectors: int = 1 << 12, effort: float = EFFORT
) -> list[Vector] | None:
    """n_columns - rank independent integer vectors orthogonal to every row.

    Guarantee: each is checked in integers, and each has a column of its own, where the others
    are zero; so the rank of the features is exactly ``found.rank``.  None if there would be
    more than ``most_vectors``, or not all were confirmed within ``effort`` multiply-adds.
    """
    if found.n_free > most_vectors:
        return None
    candidates = _read_off(rows, found, np.arange(found.n_free))
    confirmed = annihilated(rows, list(candidates.values()))
    checked = zip(candidates.items(), confirmed, strict=True)
    vectors = {place: vector for (place, vector), zero in checked if zero}
    missing = np.setdiff1d(np.arange(found.n_free), list(vectors))
    lifts = _lift(rows, found, missing, effort)
    if lifts is None:
        return None
    vectors.update(zip(missing.tolist(), lifts, strict=True))
    return [vectors[place] for place in range(found.n_free)]


def _absorb(
    echelon: Echelon, block: ExactSummary, limit: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Add the independent rows of a block; their numbers."""
    waiting, found = np.arange(len(block.pairs)), []
    while len(waiting) and echelon.rank < limit:
        # A row in the span is orthogonal to every null vector; a new one to two random ones once
        # in 10^13 times.
        half = echelon.prime // 2
        weights = rng.integers(-half, half + 1, (len(echelon.free), 2)).astype(np.float64)
        products = block.products(echelon.null_vectors(weights))
        waiting = waiting[products[waiting].any(axis=1)]
        some, waiting = waiting[:SLAB], waiting[SLAB:]
        new = echelon.absorb(block.features(some))
        found.append(block.first + some[new])
    return found


def _read_off(rows: FeatureRows, found: ExactRank, places: NDArray[np.int64]) -> dict[int, Vector]:
    """Null vectors of the given free columns whose entries are small fractions, unchecked."""
    echelon, prime = found.echelon, found.prime
    exponents = rows.per_column(rows.extents.lowest)
    # The same vector for integer features: entry c times 2^exponent_c.
    units, which = np.unique(exponents, return_inverse=True)
    powers = [pow(2, int(unit), prime) for unit in units]
    vectors = {}
    for place in places.tolist():
        column = echelon.coefficients[:, place]
        support = np.flatnonzero(column)
        touched = [int(echelon.free[place]), *echelon.pivots[support].tolist()]
        residues = [1, *(-column[support]).astype(np.int64).tolist()]
        scaled = [r * powers[which[c]] for r, c in zip(residues, touched, strict=True)]
        start = pow(scaled[0], -1, prime)
        entries = reconstruct([start * entry for entry in scaled], prime)
        if entries is not None:
            vectors[place] = to_features(rows, dict(zip(touched, entries, strict=True)))
    return vectors


def _lift(
    rows: FeatureRows, found: ExactRank, places: NDArray[np.int64], effort: float
) -> list[Vector] | None:
    """The null vectors of the given free columns, lifted to any length and checked."""
    if not len(places):
        return []
    support = np.flatnonzero(found.echelon.coefficients[:, places].any(axis=1))
    vectors = None
    # One zero in a million is an accident of the prime: few zeros do not make fewer columns.
    if 2 * len(support) <= found.rank:
        vectors = _lift_on(rows, found, places, support, effort)
    return vectors or _lift_on(rows, found, places, np.arange(found.rank), effort)


def _lift_on(
    rows: FeatureRows, found: ExactRank, places: NDArray, support: NDArray, effort: float
) -> list[Vector] | None:
    """The same for vectors that involve some pivot columns: A w = -b on as many rows."""
    prime, pivots = found.prime, found.echelon.pivots[support]
    free = found.echelon.free[places]
    digits = _affordable_digits(rows, len(pivots), len(places), effort)
    if not len(pivots) or digits < 1:
        return None
    chosen = rows.chosen(found.independent, prime)[:, pivots]
    numbers = found.independent[Echelon(len(pivots), prime).absorb(chosen)].tolist()
    matrix, right = integer_rows(rows, numbers, pivots), -integer_rows(rows, numbers, free)
    refused = None
    for solution, modulus in lifted(matrix, right, prime, digits):
        vectors = []
        for column, entries in zip(free.tolist(), solution.T.tolist(), strict=True):
            integers = reconstruct([1, *entries], modulus)
            if integers is None:
                break
            touched = [column, *pivots.tolist()]
            vectors.append(to_features(rows, dict(zip(touched, integers, strict=True))))
        if len(vectors) < len(places):
            continue
        # What more digits do not change is the solution, and no null vector.
        if vectors == refused:
            return None
        if annihilated(rows, vectors).all():
            return vectors
        refused = vectors
    return None


def _affordable_digits(rows: FeatureRows, size: int, n_vectors: int, effort: float) -> int:
    """How many digits to lift at most, for ``size`` pivot columns."""
    limbs = 1 + feature_bits(rows) // LIMB
    one_pass = PASS * len(rows.pairs[0]) * (len(rows.batch.values) + rows.n_rows * rows.width)
    per_digit = size**2 * n_vectors * (1 + limbs) + one_pass
    # Hadamard: minors are below 2^bits, and a digit has more than 21: more digits change nothing.
    bits = size * (feature_bits(rows) + size.bit_length())
    return min(int((effort - size**3) / per_digit), 2 * bits // 21 + 2)
