"""TokenSums: least squares of outputs on single tokens, as sums that stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

Array = NDArray[np.float64]

# The penalty of a linear map, relative to the diagonal of its normal matrix: rounding alone.
TOKEN_RIDGE = 1e-6


class TokenSums:
    """sum x x^T and sum x y^T of tokens x (d + 1), a constant 1 among them, and outputs y (e,)."""

    def __init__(self, width: int, n_outputs: int) -> None:
        self.gram, self.cross = np.zeros((width, width)), np.zeros((width, n_outputs))

    def add(self, tokens: Array, outputs: Array) -> None:
        """Add tokens (B, T, d + 1) and what belongs to them, (B, T, e)."""
        flat = tokens.reshape(-1, tokens.shape[2])
        self.gram += flat.T @ flat
        self.cross += flat.T @ outputs.reshape(len(flat), -1)

    def solve(self, right: Array | None = None) -> Array:
        """W (d + 1, e) with the least squared error, or the same for another right side.

        Tokens that span less than all coordinates have a W of about the least norm.
        """
        sizes = np.sqrt(self.gram.diagonal())
        inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
        # With a unit diagonal: no unit of a coordinate counts.
        scaled = self.gram * inverse * inverse[:, None]
        scaled.flat[:: len(scaled) + 1] += TOKEN_RIDGE + (sizes == 0.0)
        wanted = inverse[:, None] * (self.cross if right is None else right)
        found = cho_solve(cho_factor(scaled, lower=True), wanted)
        return np.asarray(inverse[:, None] * found)
