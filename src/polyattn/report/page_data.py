"""The data that a page is given: checked, and few enough of them to draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.form.context import as_context
from polyattn.form.layout import Layout
from polyattn.sequences import SequenceBatch, Sequences, as_batch
from polyattn.stats.rows import Rows
from polyattn.targets import Targets, as_targets, as_weights


@dataclass(frozen=True, eq=False)
class PageData:
    """Sequences, the layer that they are for, and their targets (rows, e) if known.

    ``weights``: one per sequence; without them every predicted position counts once.
    ``context``: what the sequences attend to, where these are others.
    """

    batch: SequenceBatch
    layout: Layout
    targets: NDArray | None = None
    weights: NDArray | None = None
    context: SequenceBatch | None = None

    @classmethod
    def of(
        cls,
        X: Sequences | None,
        Y: Targets | None,
        layout: Layout,
        n_outputs: int | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> PageData | None:
        """What was given, checked; None without sequences."""
        if X is None:
            beside = {"Y": Y, "sample_weight": sample_weight, "context": context}
            for name, given in beside.items():
                if given is not None:
                    raise InvalidInput(f"{name} was given without X; give its sequences too.")
            return None
        batch = as_batch(X, n_dims=layout.n_dims)
        attended = as_context(context, batch, layout.form, layout)
        targets = None if Y is None else as_targets(Y, batch, layout.form.mode, n_outputs)
        weights = as_weights(sample_weight, batch)
        if weights is not None and not np.any(weights):
            raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
        return cls(batch, layout, targets, weights, attended)

    @property
    def mode(self) -> str:
        """Which positions are predicted."""
        return self.layout.form.mode

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

    def rows(self) -> Rows:
        """The inputs with their weights, as the layer sees them."""
        form = self.layout.form
        return Rows.build(self.batch, None, form, self.weights, self.context, layout=self.layout)

    def outputs(self, function: Callable[..., Any]) -> NDArray[np.float64]:
        """The outputs (rows, e) of a layer at all predicted positions."""
        given = (self.batch,) if self.context is None else (self.batch, self.context)
        outputs = function(*given)
        return np.concatenate(outputs) if isinstance(outputs, list) else np.asarray(outputs)

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
        context = None if self.context is None else self.context.chosen(chosen)
        return PageData(batch, self.layout, targets, weights, context), chosen

    def places(self, chosen: NDArray[np.intp]) -> list[str]:
        """The rows of a sample in words: the sequence, and the token where each has several."""
        if self.mode == "last":
            return [f"sequence {i}" for i in chosen]
        return [f"sequence {i}, token {t}" for i in chosen for t in range(len(self.batch[int(i)]))]


def norms(array: NDArray, axis: int | tuple[int, int] = -1) -> NDArray[np.float64]:
    """Euclidean norms along these axes, also where squares are beyond float64."""
    with np.errstate(over="ignore"):
        return np.asarray(np.hypot.reduce(array, axis), dtype=np.float64)


def spread(count: int, most: int) -> NDArray[np.intp]:
    """Up to ``most`` evenly spaced indices of 0..count, both ends included."""
    return np.unique(np.round(np.linspace(0, count - 1, min(count, most))).astype(np.intp))
