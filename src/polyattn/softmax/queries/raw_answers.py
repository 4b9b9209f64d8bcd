"""What answers show of themselves, whatever they are taken for: their format, and a bound.

Both are those of the black box as it answers, before an input that it adds is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.precision import significant_bits

# Numbers that tell the format: the first ones.
N_NUMBERS = 4096

# Different answers that are all as large as the largest are clipped, when there are so many.
N_CLIPPED = 16


@dataclass
class RawAnswers:
    """The first numbers of the answers of a black box, and those that are as large as any."""

    numbers: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    largest: float = 0.0
    at_largest: set[bytes] = field(default_factory=set)
    n_largest: int = 0

    @property
    def bits(self) -> int:
        """Significant bits of the answers, as far as these tell them."""
        return significant_bits(self.numbers)

    @property
    def bound(self) -> float | None:
        """The largest answer, where so many are equal to it that answers are clipped there."""
        return self.largest if self.n_largest >= N_CLIPPED and self.largest > 0 else None

    def add(self, rows: NDArray[np.float64]) -> None:
        """Take note of last rows (B, e) of answers."""
        if len(self.numbers) < N_NUMBERS:
            self.numbers = np.concatenate([self.numbers, rows.ravel()])[:N_NUMBERS]
        largest = float(np.abs(rows).max())
        if largest > self.largest:
            self.largest, self.n_largest, self.at_largest = largest, 0, set()
        if largest < self.largest:
            return
        for row in rows[np.any(np.abs(rows) == largest, axis=1)]:
            # Queries that are repeated have the same answers, and so have large tokens of several
            # sizes behind a normalisation.
            self.n_largest += len(row) == 1 or row.tobytes() not in self.at_largest
            self.at_largest.add(row.tobytes())
