"""Standard errors of heads at one difference, by propagation of the noise of outputs.

With rows (Q, k), sigmoids Sigma (Q, H) and values C (H, e), K = C^+ (e, H), an error N (Q, e) of
the outputs moves the least-squares heads, to first order, by

    (da_i, dC K[:, i]) = G_i^+ N K[:, i],   G_i = [diag(sigma_i') rows, Sigma],
    dC = (dC K) C + Sigma^+ N (1 - K C),

which is linear in N: variances of its entries, independent, add up with squared coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

# Triangular factors with smaller diagonals, relative to the largest, are taken for singular.
SINGULAR = 1e-13


@dataclass(frozen=True)
class HeadEquations:
    """The equations of all heads of one difference near columns (H, k) and values C (H, e).

    sigmoids : (Q + 1, H), of Q query tokens and of the sum of values;  unmix : C^+ (e, H)
    inverses : G_i^+ (H, k + H, Q + 1);  of_values : Sigma^+ (H, Q + 1)
    """

    sigmoids: NDArray[np.float64]
    values: NDArray[np.float64]
    unmix: NDArray[np.float64]
    inverses: NDArray[np.float64]
    of_values: NDArray[np.float64]

    @classmethod
    def at(
        cls,
        design: NDArray,
        columns: NDArray,
        values: NDArray,
        weight: float,
        ridge: float = 0.0,
    ) -> HeadEquations | None:
        """With one equation more: the sum of the values, times ``weight``.

        Unknowns that move all answers by less than ``ridge`` of their share hardly change in a
        step.  None where the equations do not determine the heads.
        """
        n_heads, k = columns.shape
        design = np.broadcast_to(design, (n_heads, *design.shape[-2:]))
        sigmoids = expit(np.einsum("hqk,hk->qh", design, columns))
        slopes = sigmoids * (1 - sigmoids)
        sigmoids = np.vstack([sigmoids, np.full((1, n_heads), weight)])
        n = len(sigmoids)
        equations = np.zeros((n_heads, n, k + n_heads))
        equations[:, : len(slopes), :k] = slopes.T[:, :, None] * design
        equations[:, :, k:] = sigmoids
        scale = np.linalg.norm(equations, axis=1)
        if n < k + n_heads or not np.all(scale > 0) or not np.all(np.isfinite(values)):
            return None
        equations /= scale[:, None, :]
        if ridge > 0:
            small = np.broadcast_to(ridge * np.eye(k + n_heads), (n_heads, *[k + n_heads] * 2))
            equations = np.concatenate([equations, small], axis=1)
        q, r = np.linalg.qr(equations)
        diagonal = np.abs(np.diagonal(r, axis1=1, axis2=2))
        if np.any(diagonal.min(axis=1) <= SINGULAR * diagonal.max(axis=1)):
            return None
        inverses = np.linalg.solve(r, np.swapaxes(q[:, :n], 1, 2)) / scale[:, :, None]
        return cls(sigmoids, values, np.linalg.pinv(values), inverses, np.linalg.pinv(sigmoids))

    @property
    def n_slopes(self) -> int:
        """k, the unknowns of a column."""
        return self.inverses.shape[1] - len(self.values)

    @property
    def freedom(self) -> float:
        """The part of squared errors that a fit leaves in the residuals."""
        n_heads, n_outputs = self.values.shape
        fitted = min(n_heads, n_outputs) * self.n_slopes + n_heads * n_outputs
        return max(1 - fitted / (len(self.sigmoids) * n_outputs), 1 / len(self.sigmoids))

    def step(self, residual: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Changes of columns (H, k) and values (H, e) that explain a residual (Q, e) best."""
        mixed = residual @ self.unmix
        moved = np.einsum("hpq,qh->hp", self.inverses, mixed)
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


def spread_over_rows(variances: NDArray, basis: NDArray) -> NDArray[np.float64]:
    """Variances (H, D) of basis (D, k) or (H, D, k) times coefficients of variances (H, k).

    Beside the basis, which was estimated, too, errors are taken for as large as within it.
    """
    within = np.einsum("...dk,...k->...d", basis**2, variances)
    beside = 1 - np.sum(basis**2, axis=-1)
    return within + np.maximum(beside, 0.0) * variances.mean(axis=-1, keepdims=True)
