"""Features that never occur in the data, or are always multiples of others: found exactly.

A feature occurs if in some row one of its terms is not zero.  That takes no arithmetic, and for
ordinary data one sequence says that all of them do.

Multiples are found by a few random sums of the rows modulo a prime, which they share up to their
factor, and confirmed in integers: modulo so many primes that no difference of that size is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact import integers
from polyattn.certify.exact.columns import ExactTokens
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.modular import Residues, centre, multiply, primes, residues_of
from polyattn.form.token_maps import applied
from polyattn.numerics.arrays import even_ranges

# Random sums that multiples share: others do once in 10^13 times.
RANDOM_SUMS = 3

# Rows that are looked at together.
FIRST_ROWS = 256

# Numbers in a block of differences.
BLOCK_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Multiple:
    """factor * psi[column] = other_factor * psi[other] in every row."""

    column: int
    other: int
    factor: int
    other_factor: int


def occurring(rows: FeatureRows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which features (n_columns,) have a term that is not zero in some row, and which queries (r,).

    All others are zero in every row.  Cost: a pass over the data, of ordinary data over a sequence.
    """
    if _one_sequence_has_all(rows):
        return np.ones(rows.n_columns, dtype=bool), np.ones(rows.layout.n_queries, dtype=bool)
    present = _Presence(rows.batch, rows.columns, rows.layout, rows.context)
    sums, queries = present.factors
    found, asked = np.zeros(rows.n_columns, dtype=bool), np.zeros(rows.layout.n_queries, dtype=bool)
    for block in present.summaries(None, FIRST_ROWS):
        together = (block.sums > 0).T.astype(np.float64) @ block.queries
        found |= together[sums, queries] > 0
        asked |= block.queries.any(axis=0)
        if found.all() and asked.all():
            break
    return found, asked


def multiples(rows: FeatureRows, seed: int = 0) -> list[Multiple]:
    """Features that are multiples of earlier ones in every row, each of one, confirmed.

    None are, where that would take too long: powers of decays have many bits.
    Cost: a pass over the data modulo a prime; where there are such, one for each 22 bits more.
    """
    if not integers.can_be_checked(rows):
        return []
    prime = next(filter(rows.allows, primes()))
    shared = _random_sums(rows, prime, np.random.default_rng(seed))
    first: dict[tuple[int, ...], int] = {}
    candidates = []
    for column, sums in enumerate(shared.astype(np.int64).tolist()):
        lead = next((i for i, each in enumerate(sums) if each % prime), None)
        if lead is None:
            continue
        inverse = pow(sums[lead], -1, prime)
        key = (lead, *(each * inverse % prime for each in sums))
        other = first.setdefault(key, column)
        if other != column:
            candidate = _candidate(rows, column, other, sums[lead], int(shared[other, lead]), prime)
            candidates += [] if candidate is None else [candidate]
    return confirmed(rows, candidates)


def confirmed(rows: FeatureRows, candidates: Sequence[Multiple]) -> list[Multiple]:
    """Those of the candidates that hold in every row, in integers."""
    if not candidates:
        return []
    one, other = (
        np.array([getattr(each, name) for each in candidates]) for name in ("column", "other")
    )
    factors = [(each.factor, each.other_factor) for each in candidates]
    # Differences are multiples of the lowest power of two of both, and as long as these powers.
    spread = int(np.abs(rows.lowest[one] - rows.lowest[other]).max())
    longest = max(abs(each) for pair in factors for each in pair).bit_length()
    bits, product = rows.bits + spread + longest + 2, 1
    holds = np.ones(len(candidates), dtype=bool)
    for prime in filter(rows.allows, primes()):
        both = residues_of(np.array(factors, dtype=object), prime)
        holds &= _hold_modulo(rows, one, other, both, prime)
        product *= prime
        if product.bit_length() > bits or not holds.any():
            break
    return [each for each, kept in zip(candidates, holds, strict=True) if kept]


def _one_sequence_has_all(rows: FeatureRows) -> bool:
    """Whether the longest sequence has no zeros, and tokens at the distances of every scale."""
    own, others = rows.tokens, rows.attended
    number = int(np.argmax(others.batch.lengths))
    far = max(scale.start for scale in rows.layout.form.scales)
    if far >= rows.longest or not (own.only_coordinates and others.only_coordinates):
        return False
    return all(
        bool(batch.values[slice(*batch.offsets[number : number + 2])].all())
        for batch in (own.batch, others.batch)
    )


def _hold_modulo(
    rows: FeatureRows, one: NDArray, other: NDArray, factors: Residues, prime: int
) -> NDArray[np.bool_]:
    sums, queries = rows.factors
    holds = np.ones(len(one), dtype=bool)
    for block in rows.summaries(prime):
        for start, stop in even_ranges(len(block.sums), max(1, BLOCK_NUMBERS // len(one))):
            some = slice(start, stop)
            sides = []
            for columns, factor in ((one, factors[:, 0]), (other, factors[:, 1])):
                side = block.sums[some][:, sums[columns]] * block.queries[some][:, queries[columns]]
                centre(side, prime)
                side *= factor
                sides.append(side)
            difference = sides[0] - sides[1]
            centre(difference, prime)
            holds &= ~difference.any(axis=0)
    return holds


def _random_sums(rows: FeatureRows, prime: int, rng: np.random.Generator) -> Residues:
    """sum over rows of random residues times psi, (n_columns, RANDOM_SUMS), modulo a prime."""
    sums, queries = rows.factors
    shape = (int(sums.max()) + 1, rows.layout.n_queries)
    total = [np.zeros(shape) for _ in range(RANDOM_SUMS)]
    half = prime // 2
    for block in rows.summaries(prime):
        for i in range(RANDOM_SUMS):
            weights = rng.integers(-half, half + 1, (len(block.sums), 1)).astype(np.float64)
            weighted = block.queries * weights
            centre(weighted, prime)
            product = multiply(np.ascontiguousarray(block.sums.T), weighted, prime)
            total[i] += product
            centre(total[i], prime)
    found = np.stack([each[sums, queries] for each in total], axis=1)
    centre(found, prime)
    return found


def _candidate(
    rows: FeatureRows, column: int, other: int, sum_: int, other_sum: int, prime: int
) -> Multiple | None:
    """The factors as small integers, if they are; powers of two of the columns apart."""
    shift = int(rows.lowest[column] - rows.lowest[other])
    # psi_column / psi_other as a residue, then of the integers that they are multiples of.
    ratio = sum_ * pow(other_sum, -1, prime) * pow(pow(2, shift, prime), -1, prime) % prime
    found = integers.reconstruct([1, ratio], prime)
    if found is None:
        return None
    below, above = found
    # below z_column = above z_other, with psi = 2^lowest z.
    return Multiple(column, other, below << max(0, -shift), above << max(0, shift))


class _PresentTokens(ExactTokens):
    """1 where a column may be other than zero, and 0 elsewhere."""

    def read(self, which: slice | NDArray[np.int64], prime: int | None) -> Residues:  # noqa: ARG002
        chosen = self.batch.values[which]
        columns, picked = self.columns, self.columns.coordinates
        nonzero = (chosen != 0).astype(np.float64)
        seen = np.ones((columns.n_columns, len(chosen)))
        own = nonzero if picked is None else nonzero[:, picked]
        at = own.shape[1]
        seen[:at] = own.T
        for name, given, width in columns.maps:
            if isinstance(given, np.ndarray):
                terms = nonzero @ (given != 0).astype(np.float64)
            else:
                terms = applied(given, chosen, name)
            seen[at : at + width] = (terms != 0).T
            at += width
        return seen


class _Presence(FeatureRows):
    """Rows that count terms which are not zero: without a prime, decays weigh nothing."""

    read_by = _PresentTokens
