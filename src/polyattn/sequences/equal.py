"""equal_sequences: which sequences of a batch are copies of one another, and splits without them.

What is held out must have no copy in what is fitted: equal sequences stay on one side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import ranges_of_rows
from polyattn.sequences.batch import SequenceBatch

# Numbers of tokens that are looked at together.
READ_NUMBERS = 1 << 20


def equal_sequences(
    *parts: tuple[SequenceBatch, SequenceBatch | None],
) -> NDArray[np.intp]:
    """A number (N,) for each sequence of all parts, counted from 0; equal ones have the same.

    Each part is a batch and its context, if it has one; both must be equal.
    Cost: one pass over the tokens, 16 bytes for each different sequence.
    """
    return numbered(sequence_digests(*part) for part in parts)


def numbered(digests: Iterable[list[bytes]]) -> NDArray[np.intp]:
    """The numbers of ``equal_sequences`` from the digests of each part."""
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(each, len(numbers)) for part in digests for each in part]
    return np.array(found, dtype=np.intp)


def sequence_digests(batch: SequenceBatch, context: SequenceBatch | None) -> list[bytes]:
    """For each sequence, with its context, bytes that are equal where these are."""
    own = _digests(batch)
    if context is None:
        return list(own)
    return [one + other for one, other in zip(own, _digests(context), strict=True)]


def split_apart(
    numbers: NDArray[np.intp], order: NDArray[np.intp], count: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The sequences that have the first ``count`` numbers of an order, and all others.

    numbers : (N,), those of ``equal_sequences``; order : a permutation of the different ones
    Both sides are in this order, copies beside each other: without any, they are order[:count] and
    order[count:].
    """
    places = np.argsort(order)[numbers]
    border = int(np.count_nonzero(places < count))
    sequences = np.argsort(places, kind="stable")
    return sequences[:border], sequences[border:]


def _digests(batch: SequenceBatch) -> Iterator[bytes]:
    for first, stop in ranges_of_rows(batch.offsets, max(1, READ_NUMBERS // batch.n_dims)):
        borders = batch.offsets[first : stop + 1]
        tokens = np.asarray(batch.values[borders[0] : borders[-1]], dtype=np.float64)
        # Minus zero is zero.
        read = np.ascontiguousarray(tokens + 0.0).data.cast("B")
        ends = (8 * batch.n_dims * (borders - borders[0])).tolist()
        for begin, end in pairwise(ends):
            yield blake2b(read[begin:end], digest_size=16).digest()
