"""The digest of data: the same numbers give the same digest, whatever their dtype or layout."""

from __future__ import annotations

import hashlib

import numpy as np

from polyattn.features.symbol_counts import DENSE_SYMBOLS
from polyattn.numerics.arrays import float64_holds, pieces
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.sequences import SequenceBatch
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows


def digest_sequences(batch: SequenceBatch, context: SequenceBatch | None = None) -> str:
    """SHA-256 over width, offsets and values (little-endian int64 and float64).

    Integers that float64 cannot hold are digested as they are.  With a context it is that of the
    two digests.  Of token ids of many symbols it is that of the ids.
    """
    if context is not None:
        both = f"polyattn context {digest_sequences(batch)} {digest_sequences(context)}"
        return hashlib.sha256(both.encode()).hexdigest()
    offsets = np.ascontiguousarray(batch.offsets, dtype="<i8").data
    if isinstance(batch.values, OneHotTokens) and batch.n_dims > DENSE_SYMBOLS:
        digest = hashlib.sha256(f"polyattn ids {batch.n_dims} ".encode())
        digest.update(offsets)
        digest.update(np.ascontiguousarray(batch.values.ids, dtype="<i8").data)
        return digest.hexdigest()
    digest = hashlib.sha256(f"polyattn sequences {batch.n_dims} ".encode())
    digest.update(offsets)
    for piece in pieces(batch.values):
        if float64_holds(piece):
            # Adding zero turns -0.0 into 0.0: the two are equal.
            kept = np.ascontiguousarray(piece, dtype="<f8") + 0.0
        else:
            kept = np.ascontiguousarray(piece, dtype=piece.dtype.newbyteorder("<"))
        digest.update(kept.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def digest_source(source: Rows | Moments | TriangularFactor) -> str:
    """SHA-256 of the sequences; of statistics over the counts and sums, not the form."""
    if isinstance(source, Rows):
        return digest_sequences(source.batch, source.context)
    record = source.content()
    described = sorted(record.metadata.items())
    digest = hashlib.sha256(f"polyattn {record.kind} {described}".encode())
    for name in sorted(record.arrays):
        digest.update(np.ascontiguousarray(record.arrays[name], dtype="<f8").data)
    return digest.hexdigest()
