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

# Answers of two outputs, or of two signs, are clipped where of each so many are as large as any.
N_CLIPPED = 4


@dataclass
class RawAnswers:
    """The first numbers of answers, and how many are as large as any, for every output and sign.

    asked : the sequences that these answer, up to a factor
    """

    numbers: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    largest: float = 0.0
    n_largest: NDArray[np.int_] = field(default_factory=lambda: np.zeros((2, 0), dtype=int))
    asked: set[bytes] = field(default_factory=set)

    @property
    def bits(self) -> int:
        """Significant bits of the answers, as far as these tell them."""
        return significant_bits(self.numbers)

    @property
    def bound(self) -> float | None:
        """The largest answer, where so many are as large that answers are clipped there."""
        several = np.sum(self.n_largest >= N_CLIPPED) >= 2
        return self.largest if several and self.largest > 0 else None

    def add(self, X: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take note of the last rows (B, e) of answers to X (B, n, d)."""
        if len(self.numbers) < N_NUMBERS:
            self.numbers = np.concatenate([self.numbers, rows.ravel()])[:N_NUMBERS]
        largest = float(np.abs(rows).max())
        if largest > self.largest or not self.n_largest.size:
            self.largest, self.asked = largest, set()
            self.n_largest = np.zeros((2, rows.shape[1]), dtype=int)
        if largest < self.largest or self.bound is not None:
            return
        for sequence, row in zip(X, rows, strict=True):
            if float(np.abs(row).max()) == largest:
                # Queries that are repeated have the same answers, and so have tokens of several
                # sizes behind a normalisation.
                key = (sequence / (float(np.abs(sequence).max()) or 1.0)).tobytes()
                if key not in self.asked:
                    self.n_largest += [row == largest, row == -largest]
                self.asked.add(key)
