"""Features as integers: a power of two is taken out of each column, nothing is rounded.

psi_c = 2^e_c z_c with integers z_c.  The one check that a proof rests on is made here: whether
integer vectors are orthogonal to every row (``annihilated``).

Candidates for such vectors come from residues.  One modular inverse gives the solution of A Z = B
modulo p, p^2, p^3, ... by p-adic lifting (Dixon 1982), a digit for the price of two products: far
cheaper than one elimination per prime.  A vector of fractions is then read off its residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, isqrt

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.modular import inverse, multiply, primes, residues_of
from polyattn.certify.exact.sums import TOKENS
from polyattn.numerics.arrays import even_ranges
from polyattn.progress import report

# Sums below 2^EXACT are exact in float64.
EXACT = 53

# Numbers in the vectors that are checked together.
VECTOR_NUMBERS = 1 << 23

# Entries are cut into limbs of so many bits; INNER products of a limb and a residue are exact.
LIMB, INNER = 20, 1 << 12

# A check takes a pass for each prime.  Powers of decays have so many bits in long sequences that
# there are many; then they may multiply so often: a minute or two.
MANY_PRIMES, MULTIPLICATIONS = 64, 2e9


def can_be_checked(rows: FeatureRows) -> bool:
    """Whether ``annihilated`` takes no longer than a minute or two for short vectors."""
    n_primes = rows.bits // 21 + 1
    return n_primes <= MANY_PRIMES or n_primes * multiplications(rows) <= MULTIPLICATIONS


def multiplications(rows: FeatureRows) -> int:
    """How many of them a pass over the data takes, for one vector."""
    of_tokens = rows.n_products * len(rows.attended.batch.values)
    return of_tokens + rows.n_rows * (rows.n_products + 1) * rows.layout.n_queries


def annihilated(rows: FeatureRows, vectors: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """For each integer vector v (n_columns,) whether psi . v = 0 for every row, exactly.

    Small data are multiplied as they are, long vectors in limbs of 8 or 16 bits.  Otherwise the
    products are taken modulo primes until those exceed twice what a product can be.
    Cost: 2 u d flops per row, vector, and limb or prime; a pass over the data per prime.
    """
    spare = EXACT - rows.bits - rows.n_columns.bit_length()
    extents = rows.attended.extents
    running = 2 * int((extents.highest - extents.lowest).max()) + TOKENS.bit_length()
    small = rows.in_floats and spare >= 8 and running <= EXACT
    check = _by_limbs if small else _by_primes
    step = max(1, VECTOR_NUMBERS // (rows.n_columns * _longest(vectors)))
    portions = (vectors[first : first + step] for first in range(0, len(vectors), step))
    return np.concatenate([np.empty(0, dtype=bool), *(check(rows, some) for some in portions)])


def to_integers(rows: FeatureRows, vector: Sequence[int]) -> list[int]:
    """Integers w (n_columns,) such that psi . v is z . w times a power of two."""
    exponents = rows.lowest.tolist()
    least = min((e for e, v in zip(exponents, vector, strict=True) if v), default=0)
    # Where v is zero the exponent may be lower, and the shift is not needed.
    shifts = [max(0, e - least) for e in exponents]
    return [v << shift for v, shift in zip(vector, shifts, strict=True)]


def to_features(rows: FeatureRows, entries: dict[int, int]) -> tuple[int, ...]:
    """v with psi . v = 0 wherever z . w = 0, without a common divisor; w by its entries."""
    exponents = rows.lowest.tolist()
    most = max((exponents[column] for column, w in entries.items() if w), default=0)
    raised = {column: w << max(0, most - exponents[column]) for column, w in entries.items()}
    divisor = gcd(*raised.values()) or 1
    return tuple(raised.get(column, 0) // divisor for column in range(rows.n_columns))


def integer_rows(rows: FeatureRows, numbers: NDArray, columns: NDArray[np.int64]) -> NDArray:
    """z (rows, columns) of some rows: int64 if that holds all of them, else Python integers.

    Cost: n d^2 for a row that attends to n tokens, one row after the other.
    """
    at, query = (places[columns] for places in rows.factors)
    # Sums of that size fit int64, with a bit to spare.
    small = rows.in_floats and rows.bits <= 62
    result = np.empty((len(numbers), len(at)), dtype=np.int64 if small else object)
    for i, number in enumerate(numbers.tolist()):
        sums, queries = _integer_row(rows, number, small)
        result[i] = sums[at] * queries[query]
    return result


def _integer_row(rows: FeatureRows, number: int, small: bool) -> tuple[NDArray, NDArray]:
    """The sums in use and the query of one row, in integers, times the count of the row."""
    form, offsets = rows.layout.form, rows.batch.offsets
    owner = number
    if form.mode != "last":
        owner = int(np.searchsorted(offsets, number, side="right")) - 1
    token = int(offsets[owner + 1]) - 1 if form.mode == "last" else number
    place = token - int(offsets[owner])
    begin, end = (int(each) for each in rows.attended.batch.offsets[owner : owner + 2])
    end = begin + place + 1 if form.mode == "causal" else end
    seen = rows.attended.integers(slice(begin, end), small)
    distances = len(seen) - 1 - np.arange(len(seen))
    sums = [np.zeros(0, dtype=seen.dtype)]
    for part in rows.products:
        scale = part.scale
        attended = distances >= scale.start
        if scale.stop is not None:
            attended &= distances < scale.stop
        if form.mode == "full" and not form.include_query:
            attended[place] = False
        weighted = seen
        if scale.decay < 1.0:
            # decay^o as an integer over 2^(f (longest - 1)), decay = m / 2^f.
            m, below = scale.decay.as_integer_ratio()
            weights = [m**o * below ** (rows.longest - 1 - o) for o in distances.tolist()]
            weighted = seen * np.array(weights, dtype=object)[:, None]
        gram = weighted[attended].T @ seen[attended]
        sums.append(gram[part.value, part.key])
    if rows.has_constant:
        sums.append(rows.counts(np.array([len(seen)])).astype(seen.dtype))
    query = rows.tokens.integers(slice(token, token + 1), small)[0][rows.layout.query]
    return np.concatenate(sums), np.append(query, [1] * form.intercept).astype(seen.dtype)


def reconstruct(residues: Sequence[int], modulus: int) -> list[int] | None:
    """Small integers proportional to the residues: the numerators over a common denominator.

    Returns None unless numerators and denominator are at most sqrt(modulus / 2); no other
    fractions of that size have these residues.
    """
    bound = isqrt(modulus // 2)
    denominator = 1
    numerators: list[int] = []
    for residue in residues:
        numerator = residue * denominator % modulus
        if 2 * numerator > modulus:
            numerator -= modulus
        if abs(numerator) > bound:
            numerator, factor = _fraction(numerator, modulus, bound)
            denominator *= factor
            if denominator > bound:
                return None
            numerators = [factor * earlier for earlier in numerators]
        numerators.append(numerator)
    if any(abs(numerator) > bound for numerator in numerators):
        return None
    divisor = gcd(*numerators) or 1
    return [numerator // divisor for numerator in numerators]


def lifted(
    matrix: NDArray, right: NDArray, prime: int, most_digits: int
) -> Iterator[tuple[NDArray[np.object_], int]]:
    """Z modulo rising powers of the prime, with that power, where ``matrix`` Z = ``right``.

    ``matrix`` (k, k) and ``right`` (k, s) hold integers, int64 or Python's.  Nothing comes
    where the matrix is singular modulo the prime.  Candidates, to be checked by the caller.
    Cost: one inverse, then (1 + limbs of an entry) k^2 s multiply-adds per digit.
    """
    inverted = inverse(residues_of(matrix, prime), prime)
    if inverted is None:
        return
    # The matrix as a sum of limb_i 2^(LIMB i), each limb of size at most 2^(LIMB - 1).
    half, mask, limbs = 1 << (LIMB - 1), (1 << LIMB) - 1, []
    while np.any(matrix != 0):
        low = ((matrix + half) & mask) - half
        limbs.append(low.astype(np.float64))
        matrix = (matrix - low) >> LIMB
    rest = right.astype(object)
    digits: list[NDArray[np.object_]] = []
    attempt = 1
    while len(digits) < most_digits:
        digit = multiply(inverted, residues_of(rest, prime), prime)
        digits.append(digit.astype(np.int64).astype(object))
        for i, limb in enumerate(limbs):
            for start, stop in even_ranges(len(digit), INNER):
                product = (limb[:, start:stop] @ digit[start:stop]).astype(np.int64)
                rest -= product.astype(object) << (LIMB * i)
        rest //= prime
        if len(digits) >= attempt or len(digits) == most_digits:
            yield _joined(digits, prime), prime ** len(digits)
            attempt = int(1.5 * len(digits)) + 1


def _by_limbs(rows: FeatureRows, vectors: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """The check in float64: |z . limb| < 2^(feature bits + bits of a limb) n_columns <= 2^53."""
    wide = EXACT - rows.bits - rows.n_columns.bit_length() >= 16
    integers = [to_integers(rows, vector) for vector in vectors]
    size, base = 2 * _longest(integers), 1 << (16 if wide else 8)
    # A row of limbs for each column, vector after vector, the lowest limb first.
    entries = b"".join(abs(entry).to_bytes(size, "little") for v in integers for entry in v)
    limbs = np.frombuffer(entries, dtype="<u2" if wide else "u1").astype(np.float64)
    signs = np.fromiter((-1.0 if entry < 0 else 1.0 for v in integers for entry in v), np.float64)
    limbs = limbs.reshape(len(signs), -1) * signs[:, None]
    limbs = limbs.reshape(len(vectors), rows.n_columns, -1).swapaxes(0, 1)
    limbs = limbs.reshape(rows.n_columns, -1)
    zero = np.ones(len(vectors), dtype=bool)
    for block in rows.summaries(None):
        products = block.products(limbs).astype(np.int64)
        products = products.reshape(len(products), len(vectors), -1)
        carry = np.zeros(products.shape[:2], dtype=np.int64)
        # The sum of product_i base^i vanishes iff it does digit by digit, with carries.
        for i in range(products.shape[2]):
            carry, digit = np.divmod(products[:, :, i] + carry, base)
            zero &= ~digit.any(axis=0)
        zero &= ~carry.any(axis=0)
        report(block.stop, rows.n_rows)
        if not zero.any():
            break
    return zero


def _by_primes(rows: FeatureRows, vectors: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """The check modulo primes: a z . w that they divide and cannot reach is zero."""
    integers = [to_integers(rows, vector) for vector in vectors]
    bits = max(abs(entry) for vector in integers for entry in vector).bit_length()
    bound = 1 << (rows.bits + bits + rows.n_columns.bit_length())
    table = np.array([list(vector) for vector in vectors], dtype=object).T
    zero = np.ones(len(vectors), dtype=bool)
    product = 1
    for prime in filter(rows.allows, primes()):
        residues = residues_of(table, prime)
        for block in rows.summaries(prime):
            zero &= ~block.products(residues).any(axis=0)
            report(block.stop, rows.n_rows)
        product *= prime
        if product > 2 * bound or not zero.any():
            break
    return zero


def _longest(vectors: Sequence[Sequence[int]]) -> int:
    """Limbs of 16 bits in the longest entry."""
    largest = max((abs(entry) for vector in vectors for entry in vector), default=0)
    return max(1, -(-largest.bit_length() // 16))


def _fraction(residue: int, modulus: int, bound: int) -> tuple[int, int]:
    """(a, b) with a = b * residue modulo ``modulus``, |a| <= bound, by Euclid's steps."""
    high, low = modulus, residue % modulus
    before, factor = 0, 1
    while low > bound:
        quotient = high // low
        high, low = low, high - quotient * low
        before, factor = factor, before - quotient * factor
    return (low, factor) if factor > 0 else (-low, -factor)


def _joined(digits: list[NDArray[np.object_]], prime: int) -> NDArray[np.object_]:
    """The sum of digits[i] prime^i, by halves: long integers are multiplied few times."""
    if len(digits) == 1:
        return digits[0]
    half = len(digits) // 2
    return _joined(digits[:half], prime) + _joined(digits[half:], prime) * prime**half
