"""The three sums behind the moments, and the plain way to accumulate them, for narrow tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.cubic import cubic_features
from polyattn.features.pairs import n_features, n_pairs
from polyattn.numerics.blas import add_square
from polyattn.numerics.parallel import deal, map_pieces
from polyattn.stats.rows import RowBlock

# Numbers in one matrix of features: about the second-level cache of a core.
EXPLICIT_NUMBERS = 1 << 18
MIN_ROWS = 64


class Sums(ABC):
    """sum psi psi^T, sum psi y^T and sum y y^T over rows.

    ``gram`` holds the first in a layout of the subclass; it adds and scales like the matrix.
    """

    gram: NDArray[np.float64]

    def __init__(self, width: int, n_outputs: int) -> None:
        self.width = width
        self.n_outputs = n_outputs
        self.cross = np.zeros((n_pairs(width), width, n_outputs))
        self.targets = np.zeros((n_outputs, n_outputs))

    @abstractmethod
    def add(self, blocks: Sequence[RowBlock]) -> None:
        """Add the rows of some blocks, on as many threads as BLAS may use."""

    @abstractmethod
    def diagonal(self) -> NDArray[np.float64]:
        """sum psi^2 (p,)."""

    @abstractmethod
    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum psi psi^T as a fresh symmetric matrix (p, p), features times ``factors`` (p,)."""

    @abstractmethod
    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """A symmetric matrix (p, p) in the layout in which ``arrays`` gives ``gram``."""

    def absorb(self, other: Sums) -> None:
        """Add sums of the same layout."""
        self.gram += other.gram
        self.cross += other.cross
        self.targets += other.targets

    def rescale(self, tokens: int, targets: int) -> None:
        """Multiply the tokens seen so far by 2**tokens and the targets by 2**targets."""
        np.ldexp(self.gram, 6 * tokens, out=self.gram)
        np.ldexp(self.cross, 3 * tokens + targets, out=self.cross)
        np.ldexp(self.targets, 2 * targets, out=self.targets)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The sums by name."""
        return {"gram": self.gram, "cross": self.cross, "targets": self.targets}

    def restore(self, arrays: dict[str, NDArray]) -> None:
        """Take copies of ``arrays`` of sums in the same layout."""
        for name in ("gram", "cross", "targets"):
            setattr(self, name, shaped_like(getattr(self, name), arrays[name]))


def shaped_like(own: NDArray[np.float64], stored: NDArray) -> NDArray[np.float64]:
    """A float64 copy of a stored array, which must have the shape of our own."""
    if stored.shape != own.shape or stored.dtype != np.float64:
        raise InvalidInput(
            f"stored sums have shape {stored.shape} and dtype {stored.dtype}; "
            f"expected float64 of shape {own.shape}."
        )
    return np.array(stored, order="K")


class ExplicitSums(Sums):
    """Sums by symmetric rank-k updates; ``gram`` (p, p) is the matrix itself.

    Features and targets of a block stand in one matrix, and one update gives all three sums:
    (p + e)^2 flops per row.
    """

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__(width, n_outputs)
        p = n_features(width)
        self.gram = np.zeros((p, p))

    def add(self, blocks: Sequence[RowBlock]) -> None:
        p = len(self.gram)
        lower, *others = map_pieces(self._lower_half, deal(blocks))
        for other in others:
            lower += other
        total = np.tril(lower) + np.tril(lower, -1).T
        self.gram += total[:p, :p]
        self.cross += total[:p, p:].reshape(self.cross.shape)
        self.targets += total[p:, p:]

    def diagonal(self) -> NDArray[np.float64]:
        return self.gram.diagonal()

    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        # One factor after the other: their product may leave the range of float64.
        matrix = self.gram * factors
        matrix *= factors[:, None]
        return matrix

    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        return matrix

    def _lower_half(self, blocks: list[RowBlock]) -> NDArray[np.float64]:
        """sum [psi; y] [psi; y]^T of some blocks, right on and below the diagonal."""
        p = len(self.gram)
        height = p + self.n_outputs
        total = np.zeros((height, height))
        longest = max(block.stop - block.first for block in blocks)
        step = min(longest, max(MIN_ROWS, EXPLICIT_NUMBERS // height))
        # Fresh memory costs more than the products in it: one matrix serves all.
        memory = np.empty(height * step)
        for block in blocks:
            for start in range(0, block.stop - block.first, step):
                some = slice(start, start + step)
                targets = block.targets[:, some]
                rows = memory[: height * targets.shape[1]].reshape(height, targets.shape[1])
                cubic_features(block.pairs[:, some], block.queries[:, some], out=rows[:p])
                rows[p:] = targets
                add_square(total, rows)
        return total
