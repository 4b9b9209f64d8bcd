"""The rows of data sequence by sequence: features in the coordinates of the norm, and targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import features
from polyattn.features.summaries import default_block_rows
from polyattn.stats.rows import Rows


@dataclass(frozen=True)
class SequenceRows:
    """One sequence; in mode last, many of one row each, the first of them ``number``."""

    number: int
    features: NDArray[np.float64]  # (n, p)
    targets: NDArray[np.float64]  # (n, e)
    outside: float = 0.0  # power of the targets that no feature reaches


def sequence_rows(rows: Rows) -> Iterator[SequenceRows]:
    """The sequences one by one; in mode last, whose rows stand alone, many at a time."""
    step = default_block_rows(rows.layout) if rows.mode == "last" else 1
    s = rows.layout.feature_weights[:, None]
    for first in range(0, len(rows.batch), step):
        part = rows.part(first, min(first + step, len(rows.batch)))
        (block,) = part.blocks(part.n_rows)
        psi = features(rows.layout, block.sums, block.queries)
        yield SequenceRows(first, (psi / s).T, block.targets.T)
