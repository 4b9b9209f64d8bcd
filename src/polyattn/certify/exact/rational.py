"""Rational solutions of integer equations, from their residues.

One modular inverse gives the solution of A Z = B modulo p, p^2, p^3, ... by p-adic lifting
(Dixon 1982), a digit for the price of two products: far cheaper than one elimination per prime.
A vector of fractions is then read off its residues.  What comes out is a candidate, to be checked
by the caller (``integers.annihilated``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, isqrt

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import inverse, multiply, residues_of
from polyattn.numerics.arrays import even_ranges

# Entries are cut into limbs of so many bits; INNER products of a limb and a residue are exact.
LIMB, INNER = 20, 1 << 12

# Digits between two attempts to read off fractions grow by this factor.
GROWTH = 1.5


def reconstruct(residues: Sequence[int], modulus: int) -> list[int] | None:
    """Small integers proportional to the residues: the numerators over a common denominator.

    Returns None unless numerators and denominator are at most sqrt(modulus / 2); no other
    fractions of that size have these residues.
    """
    bound = isqrt(modulus // 2)
    denominator = 1
    numerators: list[int] = []
    for residue in residues:
        numerator = _centred(residue * denominator, modulus)
        if abs(numerator) > bound:
            numerator, factor = _fraction(numerator, modulus, bound)
            denominator *= factor
            if denominator > bound:
                return None
            numerators = [factor * earlier for earlier in numerators]
        numerators.append(numerator)
    if any(abs(numerator) > bound for numerator in numerators):
        return None
    return primitive(numerators)


def primitive(integers: Sequence[int]) -> list[int]:
    """The integers without their common divisor."""
    divisor = gcd(*integers) or 1
    return [integer // divisor for integer in integers]


def lifted(
    matrix: NDArray, right: NDArray, prime: int, most_digits: int
) -> Iterator[tuple[NDArray[np.object_], int]]:
    """Z modulo rising powers of the prime, with that power, where ``matrix`` Z = ``right``.

    ``matrix`` (k, k) and ``right`` (k, s) hold integers, int64 or Python's.  Nothing comes
    where the matrix is singular modulo the prime.
    Cost: one inverse, then (1 + limbs of an entry) k^2 s multiply-adds per digit.
    """
    inverted = inverse(residues_of(matrix, prime), prime)
    if inverted is None:
        return
    limbs = _limbs(matrix)
    rest = right.astype(object)
    digits: list[NDArray[np.object_]] = []
    attempt = 1
    while len(digits) < most_digits:
        digit = multiply(inverted, residues_of(rest, prime), prime)
        digits.append(_integers(digit))
        rest = (rest - _exact_product(limbs, digit)) // prime
        if len(digits) >= attempt or len(digits) == most_digits:
            yield _joined(digits, prime), prime ** len(digits)
            attempt = int(GROWTH * len(digits)) + 1


def _fraction(residue: int, modulus: int, bound: int) -> tuple[int, int]:
    """(a, b) with a = b * residue modulo ``modulus``, |a| <= bound, by Euclid's steps."""
    high, low = modulus, residue % modulus
    before, factor = 0, 1
    while low > bound:
        quotient = high // low
        high, low = low, high - quotient * low
        before, factor = factor, before - quotient * factor
    return (low, factor) if factor > 0 else (-low, -factor)


def _centred(value: int, modulus: int) -> int:
    value %= modulus
    return value - modulus if 2 * value > modulus else value


def _integers(residues: NDArray[np.float64]) -> NDArray[np.object_]:
    return residues.astype(np.int64).astype(object)


def _limbs(matrix: NDArray) -> list[NDArray[np.float64]]:
    """The matrix as a sum of limb_i 2^(LIMB i), each limb of size at most 2^(LIMB - 1)."""
    half, mask = 1 << (LIMB - 1), (1 << LIMB) - 1
    limbs = []
    while np.any(matrix != 0):
        low = ((matrix + half) & mask) - half
        limbs.append(low.astype(np.float64))
        matrix = (matrix - low) >> LIMB
    return limbs


def _exact_product(
    limbs: list[NDArray[np.float64]], digit: NDArray[np.float64]
) -> NDArray[np.object_]:
    """The matrix of these limbs times a digit (k, s), as Python integers."""
    total = np.zeros(digit.shape, dtype=object)
    for i, limb in enumerate(limbs):
        for start, stop in even_ranges(len(digit), INNER):
            total += _integers(limb[:, start:stop] @ digit[start:stop]) << (LIMB * i)
    return total


def _joined(digits: list[NDArray[np.object_]], prime: int) -> NDArray[np.object_]:
    """The sum of digits[i] prime^i, by halves: long integers are multiplied few times."""
    if len(digits) == 1:
        return digits[0]
    half = len(digits) // 2
    return _joined(digits[:half], prime) + _joined(digits[half:], prime) * prime**half
