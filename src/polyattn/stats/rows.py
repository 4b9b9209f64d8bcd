"""The regression problem behind a fit: one row per predicted position, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import OutOfRange, require_flag
from polyattn.features.pairs import n_features, n_pairs
from polyattn.features.summaries import Tokens, summary_blocks
from polyattn.progress import report
from polyattn.scaling import column_magnitudes, exponent_for, largest_magnitude
from polyattn.sequences import CHECK_BLOCK, SequenceBatch, Sequences, as_batch
from polyattn.targets import Targets, as_targets, as_weights

# Summaries of up to this many numbers (32 MB) are kept, so that a second pass is free.
KEPT_NUMBERS = 1 << 22

# Coordinates may differ in size by this power of two: its sixth power is still above 2**-1000.
COMPARABLE_EXPONENT = 160


@dataclass(frozen=True)
class RowBlock:
    """Rows first..stop.  Queries and targets carry the square root of the row's weight.

    The features are linear in the query, so weighted sums need no further thought.
    """

    first: int
    stop: int
    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]
    targets: NDArray[np.float64]  # (e, rows)


@dataclass(frozen=True)
class Rows:
    """Validated sequences, targets and weights, with the powers of two taken out of them."""

    batch: SequenceBatch
    targets: NDArray  # (n_rows, e), as given
    sequence_weights: NDArray[np.float64] | None
    mode: str
    bias: bool
    token_exponent: int | None
    target_exponent: int | None
    # Summaries of small data are kept for the next pass (not taken along by ``replace``).
    _kept: list[RowBlock] = field(init=False, repr=False, compare=False, default_factory=list)

    @classmethod
    def build(
        cls,
        X: Sequences,
        Y: Targets | None,
        mode: str,
        bias: bool,
        sample_weight: ArrayLike | None = None,
        n_dims: int | None = None,
        n_outputs: int | None = None,
    ) -> Rows:
        """Validate everything once; ``n_dims`` and ``n_outputs`` are required sizes, if known.

        ``Y=None`` gives rows of zero outputs, for statistics of the inputs alone.
        """
        bias = require_flag("bias", bias)
        batch = as_batch(X, n_dims=n_dims)
        if Y is None:
            targets = np.empty((batch.n_rows(mode), 0))
        else:
            targets = as_targets(Y, batch, mode, n_outputs)
        weights = as_weights(sample_weight, batch)
        sizes = column_magnitudes(_pieces(batch.values), batch.n_dims)
        _require_comparable(np.append(sizes, 1.0) if bias else sizes)
        largest = float(sizes.max())
        return cls(
            batch,
            targets,
            weights,
            mode,
            bias,
            exponent_for(max(largest, 1.0) if bias else largest),
            exponent_for(largest_magnitude(_pieces(targets))),
        )

    @property
    def n_rows(self) -> int:
        """The number of predicted positions."""
        return len(self.targets)

    @property
    def n_dims(self) -> int:
        """Coordinates per token as given."""
        return self.batch.n_dims

    @property
    def width(self) -> int:
        """Coordinates per token as the layer sees them: the constant of ``bias`` included."""
        return self.n_dims + self.bias

    @property
    def n_outputs(self) -> int:
        """e, the target coordinates."""
        return self.targets.shape[1]

    @property
    def n_features(self) -> int:
        """p, the number of cubic features."""
        return n_features(self.width)

    @property
    def tokens(self) -> Tokens:
        """The scaled tokens, ready to be summarised."""
        return Tokens(self.batch, self.bias, self.token_exponent or 0)

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """The weight of each predicted position (n_rows,), or None."""
        if self.sequence_weights is None or self.mode == "last":
            return self.sequence_weights
        return np.repeat(self.sequence_weights, self.batch.lengths)

    @property
    def n_positive(self) -> int:
        """The number of predicted positions of positive weight: the others say nothing."""
        weights = self.row_weights
        return self.n_rows if weights is None else int(np.count_nonzero(weights))

    @property
    def total_weight(self) -> float:
        """The sum of the weights of all predicted positions."""
        weights = self.row_weights
        return float(self.n_rows) if weights is None else float(weights.sum())

    def with_exponents(self, token: int | None, target: int | None) -> Rows:
        """The same rows read at other powers of two, so that they add to other statistics."""
        if (token, target) == (self.token_exponent, self.target_exponent):
            return self
        return replace(self, token_exponent=token, target_exponent=target)

    def part(self, first: int, stop: int) -> Rows:
        """The rows of sequences first..stop."""
        start, end = (
            (first, stop)
            if self.mode == "last"
            else (int(self.batch.offsets[first]), int(self.batch.offsets[stop]))
        )
        weights = self.sequence_weights
        return replace(
            self,
            batch=self.batch.part(first, stop),
            targets=self.targets[start:end],
            sequence_weights=None if weights is None else weights[first:stop],
        )

    def blocks(self, block_rows: int | None = None) -> Iterator[RowBlock]:
        """All rows in order; ``block_rows`` rows at a time, or as the caches like it."""
        numbers = self.n_rows * (n_pairs(self.width) + self.width + self.n_outputs)
        if block_rows is not None or numbers > KEPT_NUMBERS:
            return self._read_blocks(block_rows)
        if not self._kept:
            self._kept.extend(self._read_blocks(None))
        return iter(self._kept)

    def _read_blocks(self, block_rows: int | None) -> Iterator[RowBlock]:
        weights = self.row_weights
        roots = None if weights is None else np.sqrt(weights)
        for block in summary_blocks(self.tokens, self.mode, block_rows):
            queries, targets = block.queries, self.scaled_targets(block.first, block.stop)
            if roots is not None:
                queries = queries * roots[block.first : block.stop]
                targets = targets * roots[block.first : block.stop]
            yield RowBlock(block.first, block.stop, block.pairs, queries, targets)
            report(block.stop, self.n_rows)

    def scaled_targets(self, first: int, stop: int) -> NDArray[np.float64]:
        """Targets of some rows without weights, (e, rows), divided by their power of two."""
        block = self.targets[first:stop].T.astype(np.float64, order="C")
        return np.ldexp(block, -self.target_exponent) if self.target_exponent else block


def _require_comparable(sizes: NDArray[np.float64]) -> None:
    """Refuse coordinates so different in size that products of six underflow beside others."""
    known = sizes[sizes > 0]
    if len(known) and known.min() < np.ldexp(known.max(), -COMPARABLE_EXPONENT):
        raise OutOfRange(
            f"the coordinates of X (the constant of bias included) are of sizes from "
            f"{known.min():.1e} to {known.max():.1e}; sums of their sixth-degree products do not "
            "fit float64. Rescale the coordinates so that they are of similar size."
        )


def _pieces(array: NDArray) -> Iterator[NDArray]:
    step = max(1, CHECK_BLOCK // max(1, array.shape[1]))
    return (array[i : i + step] for i in range(0, len(array), step))
