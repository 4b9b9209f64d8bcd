"""Sums by explicit features: the way for narrow tokens.

Features and targets of a block stand in one matrix, and one symmetric rank-k update gives all
three sums: (p + e)^2 flops per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import cubic_features
from polyattn.features.pairs import n_features
from polyattn.numerics.blas import add_square
from polyattn.numerics.parallel import deal, map_pieces
from polyattn.stats.rows import RowBlock
from polyattn.stats.sums import Sums

# Numbers in one matrix of features: about the second-level cache of a core.
EXPLICIT_NUMBERS = 1 << 18
MIN_ROWS = 64


class ExplicitSums(Sums):
    """Sums by symmetric rank-k updates; ``gram`` (p, p) is the matrix itself."""

    def __init__(self, n_dims: int, n_outputs: int) -> None:
        super().__init__(n_dims, n_outputs)
        p = n_features(n_dims)
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
        width = min(longest, max(MIN_ROWS, EXPLICIT_NUMBERS // height))
        # Fresh memory costs more than the products in it: one matrix serves all.
        memory = np.empty(height * width)
        for block in blocks:
            for start in range(0, block.stop - block.first, width):
                some = slice(start, start + width)
                targets = block.targets[:, some]
                rows = memory[: height * targets.shape[1]].reshape(height, targets.shape[1])
                cubic_features(block.pairs[:, some], block.queries[:, some], out=rows[:p])
                rows[p:] = targets
                add_square(total, rows)
        return total
