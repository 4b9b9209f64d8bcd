"""What the forward passes of both layers share: tokens of order one, block after block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.features.summaries import Tokens
from polyattn.numerics.arrays import pieces
from polyattn.numerics.scaling import column_magnitudes, exponent_for, largest_magnitude, spread
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Tokens that are processed together.
BLOCK_TOKENS = 1 << 14

# Products that are fewer powers of two apart do not underflow.
MOST_SPREAD = 900


def outputs_by_block(
    tokens: Tokens, mode: str, n_outputs: int, attend: Callable[[NDArray], NDArray]
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of all predicted positions.

    attend : from sequences X (B, n, d) of one length to their outputs (B, e) or (B, n, e)
    """
    batch = tokens.batch
    outputs = np.empty((batch.n_rows(mode), n_outputs))
    for first, stop, X in equal_blocks(tokens):
        start, end = (first, stop) if mode == "last" else batch.offsets[[first, stop]]
        outputs[start:end] = attend(X).reshape(end - start, -1)
        report(int(end), len(outputs))
    return outputs


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
            yield first, stop, X.reshape(stop - first, -1, tokens.width)


def ordinary_tokens(
    batch: SequenceBatch, bias: bool, *matrices: NDArray, degree: int = 3
) -> Tokens:
    """Tokens of order one: those of extreme size are divided by a power of two.

    Refused where they differ so much in size, and the ``matrices`` that multiply them so much the
    other way, that products of this ``degree`` underflow which count.
    """
    most = MOST_SPREAD / degree
    if any(spread(np.abs(matrix)) > most for matrix in matrices):
        sizes = column_magnitudes(pieces(batch.values), batch.n_dims)
        between = spread(np.append(sizes, 1.0) if bias else sizes)
        if between > most:
            raise OutOfRange(
                f"the coordinates of X differ in size by a factor of about 2**{between:.0f}, and "
                "so do the layer's entries; their products do not fit float64. Give tokens whose "
                "coordinates are of similar size, and a layer in these units."
            )
    largest = largest_magnitude([batch.values])
    return Tokens(batch, bias, exponent_for(max(largest, 1.0) if bias else largest) or 0)
