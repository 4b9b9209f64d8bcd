"""Sequences of one length as blocks (B, n, d), ready for products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.features.summaries import Tokens
from polyattn.scaling import exponent_for, largest_magnitude
from polyattn.sequences import SequenceBatch

# Tokens that are processed together.
BLOCK_TOKENS = 1 << 14


def equal_blocks(tokens: Tokens) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Runs of neighbouring sequences of one length, as (first, stop, X (B, n, d))."""
    offsets, lengths = tokens.batch.offsets, tokens.batch.lengths
    borders = np.flatnonzero(np.diff(lengths)) + 1
    for run, next_run in zip([0, *borders], [*borders, len(lengths)], strict=True):
        step = max(1, BLOCK_TOKENS // int(lengths[run]))
        for first in range(int(run), int(next_run), step):
            stop = min(first + step, int(next_run))
            block = tokens.read(slice(offsets[first], offsets[stop]))
            X = np.ascontiguousarray(block.T)
            yield first, stop, X.reshape(stop - first, -1, tokens.n_dims)


def ordinary_tokens(batch: SequenceBatch, bias: bool) -> Tokens:
    """Tokens of order one: those of extreme size are divided by a power of two."""
    largest = largest_magnitude([batch.values])
    return Tokens(batch, bias, exponent_for(max(largest, 1.0) if bias else largest) or 0)
