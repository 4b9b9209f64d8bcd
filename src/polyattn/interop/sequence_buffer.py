"""Sequences that come in small portions, handed on in large ones."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# So many numbers (8 MB) are handed on together: sums are the faster the more rows they take.
PORTION_NUMBERS = 1 << 20


class TakesUpdates(Protocol):
    """What can be fed: statistics, a source that grows, or anything else with this method."""

    def update(self, X: Any, Y: Any) -> Any:
        """Add sequences X and their targets Y."""


class SequenceBuffer:
    """Sequences and targets that are given to ``into.update(X, Y)`` in their order.

    X is an array (B, n, d), or a list of arrays (n_i, d) where lengths differ; Y has the same
    form with e in place of d, or is an array (B, e) in mode ``last``.
    Cost: memory for one portion, however many there are.
    """

    def __init__(self, into: TakesUpdates, mode: str) -> None:
        self.into, self.mode = into, mode
        self.n_sequences = 0  # that were ever added
        self._n_numbers = 0
        self._tokens: list[NDArray[np.float64]] = []
        self._targets: list[NDArray[np.float64]] = []

    def add(self, tokens: NDArray[np.float64], targets: NDArray[np.float64]) -> None:
        """One sequence (n, d) with its targets (n, e), or (e,) in mode ``last``."""
        self._tokens.append(tokens)
        self._targets.append(targets)
        self.n_sequences += 1
        self._n_numbers += tokens.size + targets.size

    def hand_on(self, everything: bool = False) -> None:
        """Give what has come to ``into``, once it is enough for a portion or everything is due."""
        if not self._tokens or (self._n_numbers < PORTION_NUMBERS and not everything):
            return
        tokens, targets = self._tokens, self._targets
        # Emptied first: what is refused is not offered a second time.
        self._tokens, self._targets, self._n_numbers = [], [], 0
        Y = np.stack(targets) if self.mode == "last" else _together(targets)
        self.into.update(_together(tokens), Y)


def _together(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64] | list[NDArray]:
    return np.stack(arrays) if len({len(each) for each in arrays}) == 1 else arrays
