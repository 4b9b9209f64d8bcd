"""The rank of the features of a data set, proved.

Rows that are independent modulo a prime are independent: the rank found is a lower bound.  An
integer vector orthogonal to every row is found modulo primes but checked in integers: with
n_columns - rank independent ones the bound is the rank.  Nothing here rests on rounding, nor
on luck: an unlucky prime makes the bound lower or the search fail, never an answer wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact import integers
from polyattn.certify.exact.feature_rows import ExactSummary, FeatureRows
from polyattn.certify.exact.modular import SLAB, Echelon, primes
from polyattn.certify.exact.numbers import number_residues
from polyattn.progress import report

Vector = tuple[int, ...]

# Null vectors that are read off one prime, and how many of the simplest are checked.
CANDIDATES, ATTEMPTS = 64, 8

# Null vectors that are looked for together at most.
MOST_VECTORS = 1 << 12

# Multiply-adds that lifting may spend: a minute or two.  Those of a pass over the data are
# slower by PASS, and a digit more may take a pass more to check.
EFFORT, PASS = 2e11, 10


class ExactRank(Echelon):
    """A proved lower bound of the rank, and the rows that prove it."""

    def __init__(self, n_columns: int, prime: int) -> None:
        super().__init__(n_columns, prime)
        self.independent = np.empty(0, dtype=np.int64)  # (rank,): numbers of independent rows

    def absorb_block(self, block: ExactSummary, rng: np.random.Generator) -> None:
        """Add the independent rows of a block."""
        waiting = np.arange(len(block.sums))
        while len(waiting) and self.rank < self.n_columns:
            # A row in the span is orthogonal to every null vector; a new one to two random ones
            # once in 10^13 times.
            half = self.prime // 2
            weights = rng.integers(-half, half + 1, (len(self.free), 2)).astype(np.float64)
            products = block.products(self.null_vectors(weights))
            waiting = waiting[products[waiting].any(axis=1)]
            some, waiting = waiting[:SLAB], waiting[SLAB:]
            new = block.first + some[self.absorb(block.features(some))]
            self.independent = np.append(self.independent, new)


def exact_rank(rows: FeatureRows, prime: int | None = None) -> ExactRank:
    """The rank of the features modulo a prime, at most the true rank, and nearly always it.

    ``prime`` is chosen unless given.  Data are read only until the rank is full.

    Guarantee: the rows ``independent`` are linearly independent over the rationals.
    Cost: 2 r n flops per row that is independent, 4 u d per row that is not (u pairs in use).
    """
    if prime is None:
        # One that divides none of the first tokens: one that does may lower the rank.
        tokens = rows.batch.values[:1024]
        nonzero = tokens != 0
        allowed = filter(rows.allows, primes())
        prime = next(p for p in allowed if np.all(number_residues(tokens, p)[nonzero]))
    found, rng = ExactRank(rows.n_columns, prime), np.random.default_rng(0)
    for block in rows.summaries(prime):
        found.absorb_block(block, rng)
        report(block.stop, rows.n_rows)
        if found.rank == rows.n_columns:
            break
    return found


def null_vector(rows: FeatureRows, found: ExactRank) -> Vector | None:
    """One integer vector v, not zero, with psi . v = 0 for every row, of few small entries.

    Guarantee: checked in integers.  None if the rank is full, nothing was confirmed within
    EFFORT multiply-adds, or a check would take too long.
    """
    if not integers.can_be_checked(rows):
        return None
    # By how many pivot columns the null vector of each free column involves.
    sparsest = np.argsort(np.count_nonzero(found.coefficients, axis=0), kind="stable")
    candidates = list(_read_off(rows, found, sparsest[:CANDIDATES]).values())
    candidates.sort(key=lambda vector: (sum(map(bool, vector)), max(map(abs, vector))))
    for vector in candidates[:ATTEMPTS]:
        if integers.annihilated(rows, [vector])[0]:
            return vector
    vectors = _lift(rows, found, sparsest[:1])
    return vectors[0] if vectors else None


def null_space(rows: FeatureRows, found: ExactRank) -> list[Vector] | None:
    """n_columns - rank independent integer vectors orthogonal to every row.

    Guarantee: each is checked in integers, and each has a column of its own, where the others
    are zero; so the rank of the features is exactly ``found.rank``.  None if there would be
    more than MOST_VECTORS, not all were confirmed within EFFORT multiply-adds, or a check would
    take too long.
    """
    places = np.arange(len(found.free))
    if len(places) > MOST_VECTORS or not integers.can_be_checked(rows):
        return None
    candidates = _read_off(rows, found, places)
    confirmed = integers.annihilated(rows, list(candidates.values()))
    checked = zip(candidates.items(), confirmed, strict=True)
    vectors = {place: vector for (place, vector), zero in checked if zero}
    missing = np.setdiff1d(places, list(vectors))
    lifts = _lift(rows, found, missing)
    if lifts is None:
        return None
    vectors.update(zip(missing.tolist(), lifts, strict=True))
    return [vectors[place] for place in places.tolist()]


def _read_off(rows: FeatureRows, found: ExactRank, places: NDArray[np.int64]) -> dict[int, Vector]:
    """Null vectors of the given free columns whose entries are small fractions, unchecked."""
    prime = found.prime
    # The same vector for integer features: entry c times 2^exponent_c.
    units, which = np.unique(rows.lowest, return_inverse=True)
    powers = [pow(2, int(unit), prime) for unit in units]
    vectors = {}
    for place in places.tolist():
        column = found.coefficients[:, place]
        support = np.flatnonzero(column)
        touched = [int(found.free[place]), *found.pivots[support].tolist()]
        residues = [1, *(-column[support]).astype(np.int64).tolist()]
        scaled = [r * powers[which[c]] for r, c in zip(residues, touched, strict=True)]
        start = pow(scaled[0], -1, prime)
        entries = integers.reconstruct([start * entry for entry in scaled], prime)
        if entries is not None:
            vectors[place] = integers.to_features(rows, dict(zip(touched, entries, strict=True)))
    return vectors


def _lift(rows: FeatureRows, found: ExactRank, places: NDArray[np.int64]) -> list[Vector] | None:
    """The null vectors of the given free columns, lifted to any length and checked."""
    if not len(places):
        return []
    support = np.flatnonzero(found.coefficients[:, places].any(axis=1))
    vectors = None
    # One zero in a million is an accident of the prime: few zeros do not make fewer columns.
    if 2 * len(support) <= found.rank:
        vectors = _lift_on(rows, found, places, found.pivots[support])
    return vectors or _lift_on(rows, found, places, found.pivots)


def _lift_on(
    rows: FeatureRows, found: ExactRank, places: NDArray, pivots: NDArray
) -> list[Vector] | None:
    """The same for vectors that involve some pivot columns: A w = -b on as many rows."""
    prime, free = found.prime, found.free[places]
    digits = _affordable_digits(rows, len(pivots), len(places))
    if not len(pivots) or digits < 1:
        return None
    # Which rows do is found in residues: integers are made of no more than these.
    numbers, residues = np.sort(found.independent), []
    for block in rows.summaries(prime):
        start, end = np.searchsorted(numbers, [block.first, block.stop])
        residues.append(block.features(numbers[start:end] - block.first)[:, pivots])
    chosen = numbers[Echelon(len(pivots), prime).absorb(np.concatenate(residues))]
    matrix, right = (integers.integer_rows(rows, chosen, each) for each in (pivots, free))
    refused = None
    for solution, modulus in integers.lifted(matrix, -right, prime, digits):
        vectors = []
        for column, entries in zip(free.tolist(), solution.T.tolist(), strict=True):
            numerators = integers.reconstruct([1, *entries], modulus)
            if numerators is None:
                break
            touched = [column, *pivots.tolist()]
            vectors.append(integers.to_features(rows, dict(zip(touched, numerators, strict=True))))
        if len(vectors) < len(places):
            continue
        # What more digits do not change is the solution, and no null vector.
        if vectors == refused:
            return None
        if integers.annihilated(rows, vectors).all():
            return vectors
        refused = vectors
    return None


def _affordable_digits(rows: FeatureRows, size: int, n_vectors: int) -> int:
    """How many digits to lift at most, for ``size`` pivot columns."""
    limbs = 1 + rows.bits // integers.LIMB
    per_digit = size**2 * n_vectors * (1 + limbs) + PASS * integers.multiplications(rows)
    # Hadamard: minors are below 2^bits, and a digit has more than 21: more digits change nothing.
    bits = size * (rows.bits + size.bit_length())
    return min(int((EFFORT - size**3) / per_digit), 2 * bits // 21 + 2)
