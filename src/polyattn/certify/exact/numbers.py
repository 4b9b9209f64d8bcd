"""Numbers of any dtype as exact integers: their residues, their sizes, their powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import Residues, centre, residues_of
from polyattn.numerics.arrays import pieces
from polyattn.numerics.scaling import column_magnitudes
from polyattn.sequences import SequenceBatch

# "Integer data" are integers up to this size, once a power of two per coordinate is taken out.
LARGEST_INTEGER = 1 << 15

# Sequences that are looked at before all are.
FIRST_SEQUENCES = 16

# A float64 is an integer of 53 bits times a power of two within these exponents.
MANTISSA = 53
LEAST_EXPONENT, MOST_EXPONENT = -1074 - MANTISSA, 1024 - MANTISSA

# Above every exponent.
FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Extents:
    """Coordinate c of all tokens is an integer times 2^lowest[c], of size below 2^highest[c]."""

    lowest: NDArray[np.int64]  # (d,); 0 for a coordinate that is always zero
    highest: NDArray[np.int64]  # (d,)
    largest: NDArray[np.float64]  # (d,): the largest size, exact up to 2^53
    widths: NDArray[np.int64]  # (d,): of floats the most bits from the first to the last set

    @classmethod
    def of(cls, batch: SequenceBatch, bias: bool = False) -> Extents:
        """The extents of all tokens; ``bias`` adds the coordinate 1, but no width."""
        lowest, widths = np.full(batch.n_dims, FAR), np.zeros(batch.n_dims, dtype=np.int64)
        for piece in pieces(batch.values):
            if piece.dtype.kind != "f":
                joined = np.bitwise_or.reduce(piece.astype(np.uint64), axis=0)
                bit = (joined & (~joined + np.uint64(1))).astype(np.float64)
                lowest = np.minimum(lowest, np.where(joined == 0, FAR, np.frexp(bit)[1] - 1))
                continue
            fractions, exponents = np.frexp(piece.astype(np.float64))
            integers = np.ldexp(fractions, MANTISSA).astype(np.int64)
            # The last bit is a power of two, and frexp counts from one half.
            last = np.frexp((integers & -integers).astype(np.float64))[1].astype(np.int64) - 1
            ends = np.where(fractions == 0, FAR, last + exponents - MANTISSA)
            lowest = np.minimum(lowest, ends.min(axis=0))
            bits = np.where(fractions == 0, 0, MANTISSA - last)
            widths = np.maximum(widths, bits.max(axis=0))
        largest = column_magnitudes(pieces(batch.values), batch.n_dims)
        lowest[largest == 0] = 0
        if bias:
            lowest, largest = np.append(lowest, 0), np.append(largest, 1.0)
        return cls(lowest, np.frexp(largest)[1].astype(np.int64), largest, widths)


def is_integer_data(batch: SequenceBatch) -> bool:
    """Whether every coordinate holds a power of two times integers up to LARGEST_INTEGER."""
    # Data of another kind are usually recognised by the first few sequences.
    for part in (batch.part(0, min(len(batch), FIRST_SEQUENCES)), batch):
        extents = Extents.of(part)
        with np.errstate(over="ignore"):
            units = np.ldexp(extents.largest, -extents.lowest)
        if not np.all(units <= LARGEST_INTEGER):
            return False
    return True


def rounded_coordinates(batch: SequenceBatch) -> NDArray[np.bool_]:
    """Which coordinates (d,) look rounded, as the results of floating point do.

    Some of its numbers have the last bit of their dtype set (half of all rounded ones have it), and
    not all are multiples of one power of two, of at most one bit more than the dtype has (numbers
    on both sides of 2^50 are).  All others are taken as exactly what they are: integers above all.
    Cost: one pass over the tokens, of ordinary floats only over the first few sequences.
    """
    if batch.values.dtype.kind != "f":
        return np.zeros(batch.n_dims, dtype=bool)
    precision = np.finfo(batch.values.dtype).nmant + 1
    for part in (batch.part(0, min(len(batch), FIRST_SEQUENCES)), batch):
        extents = Extents.of(part)
        off_grid = extents.highest - extents.lowest > precision + 1
        rounded = (extents.widths == precision) & off_grid
        if rounded.all():
            break
    return np.asarray(rounded)


def number_residues(values: NDArray, prime: int) -> Residues:
    """Real numbers of any dtype modulo the prime; values m 2^e by the inverse powers of two."""
    if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
        values = np.remainder(values, prime)
    residues = np.array(values, dtype=np.float64, order="C")
    if np.all((residues == np.rint(residues)) & (np.abs(residues) < 2.0**52)):
        centre(residues, prime)
        return residues
    fractions, exponents = np.frexp(residues)
    residues = residues_of(np.ldexp(fractions, MANTISSA).astype(np.int64), prime)
    residues *= _powers_of_two(prime)[exponents - MANTISSA - LEAST_EXPONENT]
    centre(residues, prime)
    return residues


def shifted(values: NDArray, lowest: NDArray[np.int64]) -> NDArray:
    """values / 2^lowest, integers: int64 of integers, float64 of floats (exact either way)."""
    if values.dtype.kind == "f":
        return np.ldexp(values.astype(np.float64), -lowest)
    integers = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    return integers >> lowest.astype(integers.dtype)


def python_integers(values: NDArray, lowest: NDArray[np.int64]) -> NDArray[np.object_]:
    """The same for numbers of any size, as Python integers."""
    result = np.empty(values.shape, dtype=object)
    for place, value in np.ndenumerate(values):
        numerator, denominator = value.item().as_integer_ratio()
        exponent = int(lowest[place[-1]])
        # Both divisions leave no remainder.
        result[place] = (numerator << max(-exponent, 0)) // denominator >> max(exponent, 0)
    return result


@lru_cache(maxsize=8)
def _powers_of_two(prime: int) -> Residues:
    """2^e modulo the prime for all exponents e of mantissas, the least first."""
    powers = [pow(2, e, prime) for e in range(LEAST_EXPONENT, MOST_EXPONENT + 1)]
    return residues_of(np.array(powers), prime)
