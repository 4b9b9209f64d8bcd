"""Linear algebra modulo a prime, at the speed of floating-point matrix products.

Residues are integers of magnitude at most 2^21 in float64, about centred at zero.  A product of
two is at most 2^42, so up to INNER = 2047 products and one more residue add up to at most
2047 * 2^42 + 2^21 < 2^53: every partial sum is exact, in whatever order BLAS takes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import map_pieces, single_threaded_blas

Residues = NDArray[np.float64]

# Primes lie below this, and half of them, rounding included, below 2^21.
LARGEST = (1 << 22) - 4

# How many products of residues add up exactly.
INNER = (1 << 11) - 1

# Rows that are eliminated together, and few enough to do so one by one.
SLAB, LEAF = 512, 32

# Tiles of a product (one of them is worth a thread), and numbers centred in cache.
TILE_ROWS, TILE_COLUMNS, CENTRED = 256, 512, 1 << 15


class Echelon:
    """The reduced row echelon form of rows that arrive in blocks.

    In the column order (pivots, free columns) the form is [I | F], and only F is stored and
    changed: n^3 * 2/3 flops for n independent rows of n columns, as a plain LU factorisation.

    Guarantee: rows that are independent modulo the prime are independent over the rationals.
    Cost: 2 r (n - r) flops per row at rank r, memory a few r (n - r) numbers.
    """

    def __init__(self, n_columns: int, prime: int) -> None:
        self.n_columns, self.prime, self.rank = n_columns, prime, 0
        self.pivots = np.empty(0, dtype=np.int64)  # (rank,): the pivot column of each row
        self.free = np.arange(n_columns)  # the columns without a pivot, in the order of F
        self.coefficients: Residues = np.empty((0, n_columns))  # F

    @single_threaded_blas()
    def absorb(self, rows: NDArray) -> NDArray[np.int64]:
        """Add rows (k, n_columns) of residues; which of them are independent of all before."""
        found = [np.empty(0, dtype=np.int64)]
        for first in range(0, len(rows), SLAB):
            if self.rank == self.n_columns:
                break
            slab = self.reduce(rows[first : first + SLAB])
            numbers, columns = _eliminate(slab, self.prime)
            self._append(slab[: len(numbers)], columns)
            found.append(first + numbers)
        return np.concatenate(found)

    @single_threaded_blas()
    def reduce(self, rows: NDArray) -> Residues:
        """What is left of rows in the free columns: zero iff a row is in the span."""
        # take: plain indexing of columns would give an array in column order.
        left = np.take(rows, self.free, axis=1).astype(np.float64, copy=False)
        subtract_product(left, np.take(rows, self.pivots, axis=1), self.coefficients, self.prime)
        return left

    def null_vectors(self, weights: NDArray) -> Residues:
        """The null vectors (n_columns, k) with values ``weights`` (n_free, k) where free."""
        vectors = np.zeros((self.n_columns, weights.shape[1]))
        at_pivots = np.zeros((self.rank, weights.shape[1]))
        subtract_product(at_pivots, self.coefficients, weights, self.prime)
        vectors[self.pivots], vectors[self.free] = at_pivots, weights
        return vectors

    def _append(self, fresh: Residues, columns: NDArray[np.int64]) -> None:
        """Take in reduced rows (k, n_free) with pivots at the given of the free columns."""
        # The new pivots stand in front; columns they displace go where pivots came from.
        order, front = np.arange(len(self.free)), np.arange(len(fresh))
        order[np.setdiff1d(columns, front)] = np.setdiff1d(front, columns)
        kept = order[len(fresh) :]
        old, new = np.take(self.coefficients, kept, axis=1), np.take(fresh, kept, axis=1)
        subtract_product(old, np.take(self.coefficients, columns, axis=1), new, self.prime)
        self.coefficients = np.concatenate([old, new])
        self.pivots, self.free = np.append(self.pivots, self.free[columns]), self.free[kept]
        self.rank += len(fresh)


def primes(below: int = LARGEST) -> Iterator[int]:
    """All odd primes below a number, the largest first; below LARGEST there are some 290,000."""
    divisors = np.arange(3, 2049, 2)
    for number in range((below - 1) | 1, 2048, -2):
        if number < below and np.all(number % divisors):
            yield number


def random_prime(rng: np.random.Generator) -> int:
    """A prime between 2^21 and 2^22, of which there are some 140,000."""
    return next(primes(int(rng.integers(1 << 21, LARGEST))))


def centre(values: Residues, prime: int | None) -> None:
    """Reduce integers below 2^53 - 2^22, in place, to magnitude at most (prime - 1)/2 + 2.

    Without a prime they stay as they are.
    The quotient has a relative error of 2^-52, hence an absolute one of at most 2.02/prime
    before it is rounded; all else is exact.  Zero is the only multiple of the prime left.
    """
    if prime is None:
        return
    step = max(1, CENTRED // max(1, values[:1].size))
    for first in range(0, len(values), step):
        some = values[first : first + step]
        multiples = some * (1.0 / prime)
        np.rint(multiples, out=multiples)
        multiples *= prime
        some -= multiples


def residues_of(integers: NDArray, prime: int) -> Residues:
    """Integers of any size, numpy's or Python's, modulo the prime."""
    residues = np.remainder(integers, prime).astype(np.float64)
    centre(residues, prime)
    return residues


def subtract_product(target: Residues, left: Residues, right: Residues, prime: int) -> None:
    """target -= left @ right modulo the prime, in place, tile by tile on all threads."""
    if not target.size or not left.size:
        return
    inner = list(even_ranges(left.shape[1], INNER))

    def subtract(tile: tuple[slice, slice]) -> None:
        rows, columns = tile
        part = target[rows, columns]
        for start, stop in inner:
            part -= left[rows, start:stop] @ right[start:stop, columns]
            centre(part, prime)

    tiles = [
        (slice(*rows), slice(*columns))
        for rows in even_ranges(target.shape[0], TILE_ROWS)
        for columns in even_ranges(target.shape[1], TILE_COLUMNS)
    ]
    map_pieces(subtract, tiles)


def multiply(left: Residues, right: Residues, prime: int) -> Residues:
    """left @ right modulo the prime."""
    product = np.zeros((left.shape[0], right.shape[1]))
    subtract_product(product, left, right, prime)
    return np.negative(product, out=product)


def inverse(matrix: Residues, prime: int) -> Residues | None:
    """The inverse of a square matrix modulo the prime, or None if it has none there."""
    size = len(matrix)
    echelon = Echelon(2 * size, prime)
    # Rows look for pivots from the left, so [A | I] becomes [I | inverse].
    echelon.absorb(np.concatenate([matrix, np.eye(size)], axis=1))
    if echelon.pivots.max(initial=-1) >= size:
        return None
    result = np.empty((size, size))
    result[echelon.pivots[:, None], echelon.free - size] = echelon.coefficients
    return result


def _eliminate(rows: Residues, prime: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bring rows, in place, to reduced form; the first k of them then hold it.

    Returns which k rows were independent, and the pivot column of each row of the form.
    """
    if len(rows) <= LEAF:
        return _eliminate_leaf(rows, prime)
    half = len(rows) // 2
    upper_numbers, upper_columns = _eliminate(rows[:half], prime)
    upper, lower = rows[: len(upper_numbers)], rows[half:]
    subtract_product(lower, np.take(lower, upper_columns, axis=1), upper, prime)
    lower_numbers, lower_columns = _eliminate(lower, prime)
    lower = lower[: len(lower_numbers)]
    subtract_product(upper, np.take(upper, lower_columns, axis=1), lower, prime)
    rows[len(upper) : len(upper) + len(lower)] = lower
    numbers = np.concatenate([upper_numbers, half + lower_numbers])
    return numbers, np.concatenate([upper_columns, lower_columns])


def _eliminate_leaf(rows: Residues, prime: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for few rows: pivots in a window of columns, then one product for the others."""
    pivots = np.full(len(rows), -1)
    while True:
        waiting = np.flatnonzero(pivots < 0)
        window = np.flatnonzero(rows[waiting].any(axis=0))[: 4 * LEAF]
        if not len(window):
            break
        # What is done to the unit matrix beside the window is to be done to the whole rows.
        panel = np.concatenate([np.take(rows, window, axis=1), np.eye(len(rows))], axis=1)
        for i in waiting:
            nonzero = np.flatnonzero(panel[i, : len(window)])
            if len(nonzero):
                # Make that entry one and the rest of its column zero, by row operations.
                column = int(nonzero[0])
                pivots[i] = window[column]
                panel[i] *= pow(int(panel[i, column]), -1, prime)
                centre(panel[i : i + 1], prime)
                factors = panel[:, column].copy()
                factors[i] = 0.0
                panel -= np.multiply.outer(factors, panel[i])
                centre(panel, prime)
        subtract_product(rows, np.eye(len(rows)) - panel[:, len(window) :], rows.copy(), prime)
    numbers = np.flatnonzero(pivots >= 0)
    rows[: len(numbers)] = rows[numbers]
    return numbers, pivots[numbers]
