"""equal_sequences: which sequences of a batch are copies of one another."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from polyattn.sequences.batch import SequenceBatch


def equal_sequences(
    *parts: tuple[SequenceBatch, SequenceBatch | None],
) -> NDArray[np.intp]:
    """A number (N,) for each sequence of all parts, counted from 0; equal ones have the same.

    Each part is a batch and its context, if it has one; both must be equal.  What is held out
    must have no copy in what is fitted: equal sequences stay together.
    Cost: one pass over the tokens, 16 bytes for each different sequence.
    """
    numbers: dict[bytes, int] = {}
    found = [
        numbers.setdefault(_digest(batch[i], None if context is None else context[i]), len(numbers))
        for batch, context in parts
        for i in range(len(batch))
    ]
    return np.array(found, dtype=np.intp)


def _digest(*arrays: NDArray | None) -> bytes:
    digest = blake2b(digest_size=16)
    for each in arrays:
        if each is not None:
            # Minus zero is zero.
            plain = np.ascontiguousarray(np.asarray(each, dtype=np.float64) + 0.0)
            digest.update(str(plain.shape).encode())
            digest.update(plain.tobytes())
    return digest.digest()
