"""The data that a page is given: checked, and few enough of them to draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch, Sequences, as_batch
from polyattn.stats.rows import Rows
from polyattn.targets import Targets, as_targets, as_weights


@dataclass(frozen=True, eq=False)
class PageData:
    """Sequences, the positions that are predicted, and their targets (rows, e) if known.

    ``weights``: one per sequence; without them every predicted position counts once.
    """

    batch: SequenceBatch
    mode: str
    targets: NDArray | None = None
    weights: NDArray | None = None

    @classmethod
    def of(
        cls,
        X: Sequences | None,
        Y: Targets | None,
        mode: str,
        n_dims: int,
        n_outputs: int | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> PageData | None:
        """What was given, checked; None without sequences."""
        if X is None:
            for name, given in (("Y", Y), ("sample_weight", sample_weight)):
                if given is not None:
                    raise InvalidInput(f"{name} was given without X; give its sequences too.")
            return None
        batch = as_batch(X, n_dims=n_dims)
        targets = None if Y is None else as_targets(Y, batch, mode, n_outputs)
        weights = as_weights(sample_weight, batch)
        if weights is not None and not np.any(weights):
            raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
        return cls(batch, mode, targets, weights)

    @property
    def n_rows(self) -> int:
        """How many positions are predicted."""
        return self.batch.n_rows(self.mode)

    @property
    def row_weights(self) -> NDArray | None:
        """The weights of all predicted positions."""
        if self.weights is None or self.mode == "last":
            return self.weights
        return np.repeat(self.weights, self.batch.lengths)

    def rows(self, bias: bool) -> Rows:
        """The inputs with their weights, for layers with or without a constant."""
        return Rows.build(self.batch, None, self.mode, bias, self.weights)

    def sample(self, most_rows: int) -> tuple[PageData, NDArray[np.intp]]:
        """Evenly spaced sequences of up to so many rows (at least one), and which they are.

        Where there are weights, of those of positive weight.
        """
        n_sequences = len(self.batch)
        counted = np.arange(n_sequences) if self.weights is None else np.flatnonzero(self.weights)
        wanted = max(1, min(len(counted), most_rows * n_sequences // self.n_rows))
        chosen = counted[np.arange(wanted) * len(counted) // wanted]
        if wanted == n_sequences:
            return self, chosen
        batch = self.batch.chosen(chosen)
        weights = None if self.weights is None else self.weights[chosen]
        targets = self.targets
        if targets is not None and self.mode == "last":
            targets = targets[chosen]
        elif targets is not None:
            offsets = self.batch.offsets
            targets = np.concatenate([targets[offsets[i] : offsets[i + 1]] for i in chosen])
        return PageData(batch, self.mode, targets, weights), chosen

    def places(self, chosen: NDArray[np.intp]) -> list[str]:
        """The rows of a sample in words: the sequence, and the token where each has several."""
        if self.mode == "last":
            return [f"sequence {i}" for i in chosen]
        return [f"sequence {i}, token {t}" for i in chosen for t in range(len(self.batch[int(i)]))]


def rows_of(function: Callable[[Any], Any], batch: SequenceBatch) -> NDArray[np.float64]:
    """The outputs (rows, e) of a layer at all predicted positions."""
    outputs = function(batch)
    return np.concatenate(outputs) if isinstance(outputs, list) else np.asarray(outputs)


def norms(array: NDArray, axis: int | tuple[int, int] = -1) -> NDArray[np.float64]:
    """Euclidean norms along these axes, also where squares are beyond float64."""
    with np.errstate(over="ignore"):
        return np.asarray(np.hypot.reduce(array, axis), dtype=np.float64)


def spread(count: int, most: int) -> NDArray[np.intp]:
    """Up to ``most`` evenly spaced indices of 0..count, both ends included."""
    return np.unique(np.round(np.linspace(0, count - 1, min(count, most))).astype(np.intp))
