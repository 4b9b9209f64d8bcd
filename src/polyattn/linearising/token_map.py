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
        """Add tokens (m, d + 1) and what belongs to them, of m e numbers in all."""
        self.gram += tokens.T @ tokens
        self.cross += tokens.T @ outputs.reshape(len(tokens), -1)

    def solve(self, right: Array | None = None) -> Array:
        """W (d + 1, e) with the least squared error, or the same for another right side.

        Tokens that span less than all coordinates have a W of about the least norm.
        """
        sizes = self.gram.diagonal()
        penalty = TOKEN_RIDGE * sizes + 1e-12 * max(float(sizes.max()), np.finfo(np.float64).tiny)
        factor = cho_factor(self.gram + np.diag(penalty), lower=True)
        return np.asarray(cho_solve(factor, self.cross if right is None else right))
