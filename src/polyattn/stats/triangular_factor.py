"""TriangularFactor: the R of a QR factorisation of all rows.  Factors merge as Grams do."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.errors import InvalidInput
from polyattn.features.products import features
from polyattn.files.fields import Check, array, require
from polyattn.form.layout import Layout
from polyattn.stats.rows import Rows
from polyattn.stats.statistics import Statistics

# About this many numbers are factored together, and at least twice as many rows as columns.
BLOCK_NUMBERS = 1 << 18


class TriangularFactor(Statistics):
    """R with R^T R = sum [psi; y] [psi; y]^T, without ever squaring the condition number.

    Stack two factors, factor again, and the result is the factor of both data sets.  Small
    eigenvalues survive: where a Gram loses everything below 1e-16 of the largest eigenvalue,
    R keeps it down to 1e-32.

    Cost: about four times the flops of ``Moments``; memory a few times (p + e)^2 numbers.
    """

    kind = "triangular_factor"

    def _begin(self) -> None:
        self._factor = np.zeros((0, self.n_features + self.n_outputs))

    def scaled_factor(self) -> NDArray[np.float64]:
        """R of the features, (min(rows, p), p) upper triangular, scaled tokens."""
        return self._factor[: self.n_features, : self.n_features]

    def scaled_projection(self) -> NDArray[np.float64]:
        """Q^T y, (min(rows, p), e), scaled targets."""
        return self._factor[: self.n_features, self.n_features :]

    def scaled_residual_power(self) -> float:
        """sum ||y||^2 outside the span of the features, scaled targets."""
        return float(np.sum(self._factor[self.n_features :, self.n_features :] ** 2))

    def _accumulate(self, rows: Rows) -> None:
        columns = self.n_features + self.n_outputs
        for block in rows.blocks(max(BLOCK_NUMBERS // columns, 2 * columns)):
            psi = features(self.layout, block.sums, block.queries)
            self._stack(np.concatenate([psi, block.targets]).T)

    def _absorb(self, other: TriangularFactor) -> None:
        self._stack(other._factor)

    def __sub__(self, other: object) -> TriangularFactor:
        raise InvalidInput(
            "nothing can be taken out of a triangular factor: the small singular values that it "
            "keeps would be lost. Make it again from the data that remain, or use Moments."
        )

    def _down_weigh(self, factor: float) -> None:
        self._factor *= sqrt(factor)

    def _stack(self, more: NDArray) -> None:
        stacked = np.concatenate([self._factor, more])
        if len(stacked) == 0:
            return  # LAPACK refuses empty matrices
        work, _ = lapack.dgeqrf_lwork(*stacked.shape)
        factored, _, _, _ = lapack.dgeqrf(
            np.asfortranarray(stacked), lwork=int(work.real), overwrite_a=1
        )
        self._factor = np.triu(factored[: min(stacked.shape)])

    def scaled_feature_powers(self) -> NDArray[np.float64]:
        return np.sum(self._factor[:, : self.n_features] ** 2, axis=0)

    def _target_powers(self) -> NDArray[np.float64]:
        return np.sum(self._factor[:, self.n_features :] ** 2, axis=0)

    def _rescale(self, tokens: int, targets: int) -> None:
        p = self.n_features
        self._factor[:, :p] = np.ldexp(self._factor[:, :p], 3 * tokens)
        self._factor[:, p:] = np.ldexp(self._factor[:, p:], targets)

    @property
    def _numbers(self) -> int:
        return (self.n_features + self.n_outputs) ** 2

    @classmethod
    def _stored(cls, layout: Layout, n_outputs: int, largest: float) -> dict[str, Check]:
        root, columns = sqrt(largest), layout.n_features + n_outputs
        return {"factor": array((None, columns), least=-root, most=root)}

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"factor": self._factor}

    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        factor, columns = arrays["factor"], self._factor.shape[1]
        require(len(factor) <= columns, "arrays.factor", f"of at most {columns} rows", len(factor))
        below = int(np.count_nonzero(np.tril(factor, -1)))
        require(below == 0, "arrays.factor", "zero below its diagonal", f"{below} numbers there")
        self._factor = np.array(factor)
