"""Standard errors of heads at one difference, by propagation of the noise of outputs.

With rows (Q, k), sigmoids Sigma (Q, H) and values C (H, e), K = C^+ (e, H), an error N (Q, e) of
the outputs moves the least-squares heads, to first order, by

    (da_i, dC K[:, i]) = G_i^+ N K[:, i],   G_i = [diag(sigma_i') rows, Sigma],
    dC = (dC K) C + Sigma^+ N (1 - K C),

which is linear in N: variances of its entries, independent, add up with squared coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

# Triangular factors with smaller diagonals, relative to the largest, are taken for singular.
SINGULAR = 1e-13

# Cholesky factors of Gram matrices with diagonals above this lose less than half of the digits.
WELL = 1e-4


@dataclass(frozen=True)
class HeadEquations:
    """The equations of all heads of one difference near columns (H, k) and values C (H, e).

    design : rows (Q, k), or (H, Q, k), of query tokens
    weight : of one equation more, the sum of the values
    ridge : unknowns that move all answers by less than this part hardly change in a step
    """

    design: NDArray[np.float64]
    columns: NDArray[np.float64]
    values: NDArray[np.float64]
    weight: float
    ridge: float = 0.0

    @cached_property
    def sigmoids(self) -> NDArray[np.float64]:
        """(Q + 1, H), the last row that of the sum of values."""
        n_heads = len(self.columns)
        logits = np.einsum("hqk,hk->qh", self._designs, self.columns)
        return np.vstack([expit(logits), np.full((1, n_heads), self.weight)])

    @cached_property
    def determined(self) -> bool:
        """Whether the equations determine the heads."""
        n_unknowns = self.n_slopes + len(self.values)
        if len(self.sigmoids) < n_unknowns or not np.all(np.isfinite(self.values)):
            return False
        positive = bool(np.all(self._scaled[1] > 0))
        return positive and (self._well or self._triangles is not None)

    @property
    def n_slopes(self) -> int:
        """k, the unknowns of a column."""
        return self.columns.shape[1]

    @property
    def _designs(self) -> NDArray[np.float64]:
        return np.broadcast_to(self.design, (len(self.columns), *self.design.shape[-2:]))

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All G_i (H, Q + 1, k + H) with columns of norm one, and these norms."""
        slopes = (self.sigmoids * (1 - self.sigmoids))[:-1]
        n_heads, k = self.columns.shape
        equations = np.zeros((n_heads, len(self.sigmoids), k + n_heads))
        equations[:, :-1, :k] = slopes.T[:, :, None] * self._designs
        equations[:, :, k:] = self.sigmoids
        scale = np.linalg.norm(equations, axis=1)
        equations /= np.where(scale > 0, scale, 1.0)[:, None, :]
        return equations, scale

    @cached_property
    def _gram(self) -> NDArray[np.float64]:
        """G_i^T G_i (H, k + H, k + H), scaled, with the ridge."""
        equations = self._scaled[0]
        n_unknowns = equations.shape[2]
        return np.swapaxes(equations, 1, 2) @ equations + self.ridge**2 * np.eye(n_unknowns)

    @cached_property
    def _well(self) -> bool:
        """Whether Gram matrices lose few enough digits: they are ten times as fast as QR."""
        try:
            triangles = np.linalg.cholesky(self._gram)
        except np.linalg.LinAlgError:
            return False
        return bool(np.diagonal(triangles, axis1=1, axis2=2).min() > WELL)

    @cached_property
    def _triangles(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """QR of all G_i, where none of them is singular."""
        equations, scale = self._scaled
        q, r = np.linalg.qr(equations)
        diagonal = np.abs(np.diagonal(r, axis1=1, axis2=2))
        enough = np.all(diagonal.min(axis=1) > SINGULAR * diagonal.max(axis=1))
        return (q, r) if enough and np.all(scale > 0) else None

    def _solved(self, right: NDArray | None = None) -> NDArray[np.float64]:
        """G_i^+ (H, k + H, Q + 1), or these times right (H, Q + 1, m)."""
        (left, scale), matrix = self._scaled, self._gram
        if not self._well and self._triangles is not None:
            left, matrix = self._triangles
        turned = np.swapaxes(left, 1, 2)
        found = np.linalg.solve(matrix, turned if right is None else turned @ right)
        return found / scale[:, :, None]

    @cached_property
    def unmix(self) -> NDArray[np.float64]:
        """C^+ (e, H)."""
        return np.asarray(np.linalg.pinv(self.values), dtype=np.float64)

    @cached_property
    def inverses(self) -> NDArray[np.float64]:
        """G_i^+ (H, k + H, Q + 1)."""
        return self._solved()

    @cached_property
    def of_values(self) -> NDArray[np.float64]:
        """Sigma^+ (H, Q + 1)."""
        return np.asarray(np.linalg.pinv(self.sigmoids), dtype=np.float64)

    @property
    def freedom(self) -> float:
        """The part of squared errors that a fit leaves in the residuals."""
        n_heads, n_outputs = self.values.shape
        fitted = min(n_heads, n_outputs) * self.n_slopes + n_heads * n_outputs
        return max(1 - fitted / (len(self.sigmoids) * n_outputs), 1 / len(self.sigmoids))

    def step(self, residual: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Changes of columns (H, k) and values (H, e) that explain a residual (Q, e) best."""
        mixed = residual @ self.unmix
        moved = self._solved(mixed.T[:, :, None])[:, :, 0]
        of_values = moved[:, self.n_slopes :].T @ self.values
        return moved[:, : self.n_slopes], of_values + self.of_values @ (
            residual - mixed @ self.values
        )

    def column_variances(self, variances: NDArray) -> NDArray[np.float64]:
        """Of the columns (H, k), from those of the outputs (Q, e)."""
        mixed = variances @ self.unmix**2
        return np.einsum("hpq,qh->hp", self.inverses[:, : self.n_slopes] ** 2, mixed)

    def value_variances(self, variances: NDArray) -> NDArray[np.float64]:
        """Of the values (H, e), from those of the outputs (e,), the same at all query tokens."""
        C, K, v = self.values, self.unmix, variances
        inner = K.T @ (v[:, None] * K)
        beside = K.T * v - inner @ C
        left = v - 2 * v * np.einsum("eh,he->e", K, C) + np.einsum("he,hk,ke->e", C, inner, C)
        found = np.empty_like(C)
        for head in range(len(C)):
            of_head = self.inverses[:, self.n_slopes + head]
            pairs = C.T @ ((of_head @ of_head.T) * inner)
            crossed = (of_head @ self.of_values[head])[:, None] * beside
            found[head] = np.einsum("ek,ke->e", pairs, C) + 2 * np.einsum("he,he->e", C, crossed)
            found[head] += left * (self.of_values[head] @ self.of_values[head])
        return np.maximum(found, 0.0)


def spread_over_rows(
    variances: NDArray, basis: NDArray, beside: float = 1.0
) -> NDArray[np.float64]:
    """Variances (H, D) of basis (D, k) or (H, D, k) times coefficients of variances (H, k).

    The basis was estimated, too: outside of it errors have ``beside`` times the variance of within.
    """
    within = np.einsum("...dk,...k->...d", basis**2, variances)
    outside = np.maximum(1 - np.sum(basis**2, axis=-1), 0.0)
    return within + beside * outside * variances.mean(axis=-1, keepdims=True)


def beside_basis(rank: int, n_differences: int) -> float:
    """Variance of columns outside of a basis of so many from n differences, relative to theirs.

    A column in the space of the others is a combination of them with squares of the coefficients
    that add up to about r / (n - r): so much of their errors it takes on.
    """
    return rank / max(n_differences - rank, 1)
