"""ClassCounts: how often each class was taken for which, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Predicted against true classes.

    labels : K names
    counts : integers (K, K); row: the true class, column: the one predicted
    shares : (K, K), the same as shares of all weight
    """

    labels: tuple[str, ...]
    counts: NDArray[np.intp]
    shares: NDArray[np.float64]

    @classmethod
    def of(
        cls, labels: tuple[str, ...], true: NDArray, predicted: NDArray, weights: NDArray
    ) -> ClassCounts:
        """From class numbers (rows,) with their weights (rows,), which are not all zero."""
        count = len(labels)
        counts = np.zeros((count, count), dtype=np.intp)
        shares = np.zeros((count, count))
        np.add.at(counts, (true, predicted), 1)
        np.add.at(shares, (true, predicted), weights / weights.max())
        return cls(labels, counts, shares / shares.sum())

    @property
    def accuracy(self) -> float:
        """The share that is right."""
        return float(np.trace(self.shares))

    @property
    def frequent(self) -> int:
        """The most frequent true class; the first of several, up to rounding."""
        return int(np.argmax(np.round(self.shares.sum(axis=1), 12)))

    @property
    def majority(self) -> float:
        """The share that is right for who always says the most frequent class."""
        return float(self.shares[self.frequent].sum())

    @property
    def beats_majority(self) -> bool:
        """Whether more is right than by always saying the most frequent class, beyond rounding."""
        return self.accuracy > self.majority + 1e-12

    @property
    def recall(self) -> list[float | None]:
        """Of each class the share that was found; None where there is none of it."""
        return _divided(np.diagonal(self.shares), self.shares.sum(axis=1))

    @property
    def precision(self) -> list[float | None]:
        """Of what was called so, the share that is; None where nothing was."""
        return _divided(np.diagonal(self.shares), self.shares.sum(axis=0))

    @property
    def row_shares(self) -> NDArray[np.float64]:
        """How the weight of each true class is spread over predicted ones; zero without any."""
        total = self.shares.sum(axis=1, keepdims=True)
        return np.divide(self.shares, total, out=np.zeros_like(self.shares), where=total > 0)

    def mistakes(self, most: int) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: true class, predicted class, how often."""
        wrong = self.counts - np.diag(np.diagonal(self.counts))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        found = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [(self.labels[i], self.labels[j], int(wrong[i, j])) for i, j in found if wrong[i, j]]


def _divided(parts: NDArray, wholes: NDArray) -> list[float | None]:
    return [
        float(part / whole) if whole > 0 else None
        for part, whole in zip(parts, wholes, strict=True)
    ]
