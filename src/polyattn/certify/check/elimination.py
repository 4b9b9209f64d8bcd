"""Rank modulo a prime, for the checker alone: written apart from ``modular.py``, on purpose.

Residues are integers of magnitude at most 2^22 in float64, so INNER = 256 products of two add up
to at most 2^52: exact, in whatever order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LARGEST_PRIME = (1 << 23) - 15

# How many products of residues are added before they are reduced.
INNER = 256

# Columns that are eliminated one by one before the others follow in one product.
PANEL = 64


def random_prime(rng: np.random.Generator, other_than: int | None = None) -> int:
    """A prime between 2^22 and 2^23, of which there are 268,000: no forger can foresee it."""
    while True:
        candidate = int(rng.integers(1 << 22, LARGEST_PRIME)) | 1
        if candidate != other_than and is_prime(candidate):
            return candidate


def is_prime(number: int) -> bool:
    """Whether this is a prime between 3 and LARGEST_PRIME, by trial division."""
    if not 2 < number <= LARGEST_PRIME or number % 2 == 0:
        return False
    return bool(np.all(number % np.arange(3, int(number**0.5) + 1, 2)))


def reduce(numbers: NDArray[np.float64], prime: int) -> NDArray[np.float64]:
    """Integers below 2^53 to residues about zero, in place."""
    numbers -= prime * np.rint(numbers / prime)
    return numbers


def product(left: NDArray, right: NDArray, prime: int) -> NDArray[np.float64]:
    """left @ right modulo the prime."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for start in range(0, left.shape[1], INNER):
        total += left[:, start : start + INNER] @ right[start : start + INNER]
        reduce(total, prime)
    return total


def rank_of(matrix: NDArray[np.float64], prime: int) -> int:
    """The rank of residues (rows, columns), which are overwritten.

    Cost: 2/3 of rows * columns * rank * 2 flops, nearly all in matrix products.
    """
    rank = 0
    for start in range(0, matrix.shape[1], PANEL):
        stop = min(start + PANEL, matrix.shape[1])
        found = _eliminate_panel(matrix, rank, start, stop, prime)
        top, rest = matrix[rank : rank + found, stop:], matrix[rank + found :, stop:]
        factors = matrix[rank:, start : start + found]
        for row in range(1, found):
            top[row] -= product(factors[row : row + 1, :row], top[:row], prime)[0]
            reduce(top[row], prime)
        rest -= product(factors[found:], top, prime)
        reduce(rest, prime)
        rank += found
        if rank == len(matrix):
            break
    return rank


def _eliminate_panel(
    matrix: NDArray[np.float64], rank: int, start: int, stop: int, prime: int
) -> int:
    """Eliminate columns start..stop below row ``rank``; how many pivots there are.

    Rows are exchanged as wholes; the factor by which pivot row i was taken from each row is left
    in column start + i, which is not needed any more.
    """
    panel = matrix[rank:, start:stop].copy()
    factors = np.zeros_like(panel)
    found = 0
    for column in range(stop - start):
        candidates = np.flatnonzero(panel[found:, column])
        if not len(candidates):
            continue
        swap, into = [found, found + int(candidates[0])], [found + int(candidates[0]), found]
        for each in (panel, factors, matrix[rank:, stop:]):
            each[swap] = each[into]
        inverse = pow(int(panel[found, column]), -1, prime)
        inverse -= prime if inverse > prime // 2 else 0
        below = reduce(panel[found + 1 :, column] * inverse, prime)
        factors[found + 1 :, found] = below
        panel[found + 1 :] -= np.outer(below, panel[found])
        reduce(panel[found + 1 :], prime)
        found += 1
        if found == len(panel):
            break
    matrix[rank:, start:stop] = factors
    return found
