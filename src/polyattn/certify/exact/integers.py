"""Features as integers: a power of two is taken out of each column, nothing is rounded.

psi_c = 2^e_c z_c with integers z_c.  The one check that a proof rests on is made here: whether
integer vectors are orthogonal to every row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.feature_rows import TOKENS, FeatureRows
from polyattn.certify.exact.modular import primes, residues_of
from polyattn.certify.exact.numbers import python_integers, shifted
from polyattn.certify.exact.rational import primitive
from polyattn.progress import report

# Sums below 2^EXACT are exact in float64.
EXACT = 53

# Sums below 2^62 fit int64, with a bit to spare.
INT64 = 62

# Numbers in the vectors that are checked together.
VECTOR_NUMBERS = 1 << 23


def annihilated(rows: FeatureRows, vectors: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """For each integer vector v (n_columns,) whether psi . v = 0 for every row, exactly.

    Small data are multiplied as they are, long vectors in limbs of 8 or 16 bits.  Otherwise the
    products are taken modulo primes until those exceed twice what a product can be.
    Cost: 2 u d flops per row, vector, and limb or prime; a pass over the data per prime.
    """
    result = np.ones(len(vectors), dtype=bool)
    spare = EXACT - feature_bits(rows) - rows.n_columns.bit_length()
    extents = rows.extents
    running = 2 * int((extents.highest - extents.lowest).max()) + TOKENS.bit_length()
    check = _by_limbs if spare >= 8 and running <= EXACT else _by_primes
    step = max(1, VECTOR_NUMBERS // (rows.n_columns * _longest(vectors)))
    for first in range(0, len(vectors), step):
        result[first : first + step] = check(rows, vectors[first : first + step])
    return result


def feature_bits(rows: FeatureRows) -> int:
    """Bits b with |z_c| < 2^b for every feature of every row, as integers."""
    bits = rows.per_column(rows.extents.highest - rows.extents.lowest)
    return int(bits.max()) + int(rows.batch.lengths.max()).bit_length()


def to_integers(rows: FeatureRows, vector: Sequence[int]) -> tuple[list[int], int]:
    """(w, e) with psi . v = 2^e z . w, integers w (n_columns,)."""
    exponents = rows.per_column(rows.extents.lowest).tolist()
    least = min((e for e, v in zip(exponents, vector, strict=True) if v), default=0)
    # Where v is zero the exponent may be lower, and the shift is not needed.
    shifts = [max(0, e - least) for e in exponents]
    return [v << shift for v, shift in zip(vector, shifts, strict=True)], least


def to_features(rows: FeatureRows, integers: Sequence[int]) -> tuple[int, ...]:
    """v with psi . v = 0 wherever z . w = 0, without a common divisor."""
    exponents = rows.per_column(rows.extents.lowest).tolist()
    most = max((e for e, w in zip(exponents, integers, strict=True) if w), default=0)
    shifts = [max(0, most - e) for e in exponents]
    return tuple(primitive([w << shift for w, shift in zip(integers, shifts, strict=True)]))


def integer_rows(
    rows: FeatureRows, numbers: Sequence[int], columns: NDArray[np.int64] | slice = slice(None)
) -> NDArray:
    """z (rows, columns) of some rows: int64 if that holds all of them, else Python integers.

    Cost: n d^2 for a row that attends to n tokens, one row after the other.
    """
    pair, query = (places[columns] for places in rows.factors)
    small = feature_bits(rows) <= INT64
    result = np.empty((len(numbers), len(pair)), dtype=np.int64 if small else object)
    for i, number in enumerate(numbers):
        tokens, place = _attended(rows, number)
        lowest = rows.extents.lowest[: rows.batch.n_dims]
        integers: NDArray = (
            shifted(tokens, lowest).astype(np.int64) if small else python_integers(tokens, lowest)
        )
        if rows.bias:
            integers = np.column_stack([integers, np.ones(len(tokens), dtype=integers.dtype)])
        gram = (integers.T @ integers)[rows.pairs]
        result[i] = gram[pair] * integers[place, query]
    return result


def _attended(rows: FeatureRows, number: int) -> tuple[NDArray, int]:
    """The tokens (n, d) that a row attends to, and the place of the query among them."""
    if rows.mode == "last":
        return rows.batch[number], -1
    owner = int(np.searchsorted(rows.batch.offsets, number, side="right")) - 1
    place = number - int(rows.batch.offsets[owner])
    tokens = rows.batch[owner]
    return (tokens[: place + 1] if rows.mode == "causal" else tokens), place


def _by_limbs(rows: FeatureRows, vectors: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """The check in float64: |z . limb| < 2^(feature bits + bits of a limb) n_columns <= 2^53."""
    wide = EXACT - feature_bits(rows) - rows.n_columns.bit_length() >= 16
    integers = [to_integers(rows, vector)[0] for vector in vectors]
    size = 2 * _longest(integers)
    limbs = np.stack([_limbs(vector, size, wide) for vector in integers], axis=1)
    base = 1 << (16 if wide else 8)
    zero = np.ones(len(vectors), dtype=bool)
    for block in rows.summaries(None):
        products = block.products(limbs.reshape(rows.n_columns, -1)).astype(np.int64)
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
    integers = [to_integers(rows, vector)[0] for vector in vectors]
    bits = max(abs(entry) for vector in integers for entry in vector).bit_length()
    bound = 1 << (feature_bits(rows) + bits + rows.n_columns.bit_length())
    table = np.array([list(vector) for vector in vectors], dtype=object).T
    zero = np.ones(len(vectors), dtype=bool)
    product = 1
    for prime in primes():
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


def _limbs(vector: Sequence[int], size: int, wide: bool) -> NDArray[np.float64]:
    """Entries of up to ``size`` bytes as limbs (n_columns, limbs), the lowest first."""
    joined = b"".join(abs(entry).to_bytes(size, "little") for entry in vector)
    limbs = np.frombuffer(joined, dtype="<u2" if wide else "u1").astype(np.float64)
    signs = np.array([-1.0 if entry < 0 else 1.0 for entry in vector])
    return limbs.reshape(len(vector), -1) * signs[:, None]
