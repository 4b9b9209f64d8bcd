"""Heads separated for one difference: effects are mixtures of sigmoids of linear functions.

With delta fixed, effects at query tokens x_1..x_Q are Y = Sigma C, Sigma[q, i] =
sigmoid(row_q a_i), row_q = [x_q, 1], a_i = A_i delta (D,), C (H, e) the rows c_i.  When these are
independent, Y has rank H, and head i is the one m_i with

    Y m_i = sigmoid(rows a_i),      (delta S) m_i = 1,

H - 1 + D unknowns for Q equations, with no other head in them.  The heads are solved for one by one
(all at the same time), from a start near them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.least_squares import minimise, spread


@dataclass(frozen=True)
class Mixing:
    """How effects of one difference are mixed.

    values : array (H, e), the rows c_i
    unmix : array (e, H), effects @ unmix = sigmoids
    slopes : array (H, k), a_i in the basis that was given
    residual : largest rms deviation of a head from its sigmoid
    doubt : relative error of values and slopes that the residuals suggest, of the worst head
    """

    values: NDArray[np.float64]
    unmix: NDArray[np.float64]
    slopes: NDArray[np.float64]
    residual: float
    doubt: float


def solve_mixing(
    effects: NDArray[np.float64],
    total: NDArray[np.float64],
    design: NDArray[np.float64],
    start: NDArray[np.float64],
) -> Mixing | None:
    """The mixing near the rows ``start`` (H, e), whose lengths do not matter.

    Parameters
    ----------
    effects : array (Q, e)
        Effects at the query tokens.
    total : array (e,)
        delta S, the sum of the c_i.
    design : array (H, Q, k) or (Q, k)
        Rows of the query tokens, in a basis of k columns, which may be one per head.
    start : array (H, e)
        Directions near the c_i.

    Returns None when two heads run into one solution or the start has fewer directions than heads.
    """
    n_heads = len(start)
    space = np.linalg.svd(effects, full_matrices=False)[2][:n_heads].T
    size = float(np.linalg.norm(total)) or 1.0
    mixed, whole = effects @ space / size, total @ space / size
    rows = start @ space
    if np.linalg.cond(rows) > 1e10:
        return None
    lengths = np.linalg.solve(rows.T, whole)
    unmix = np.linalg.inv(lengths[:, None] * rows) if np.all(lengths) else None
    if unmix is None or not np.all(np.isfinite(unmix)):
        return None
    unmix, slopes, residual, doubt = _solve_heads(mixed, whole, design, unmix.T)
    if np.linalg.cond(unmix) > 1e12:
        return None
    values = np.linalg.inv(unmix) @ space.T * size
    return Mixing(values, space @ unmix / size, slopes, residual, doubt)


def logits(sigmoids: NDArray) -> NDArray[np.float64]:
    """log(p / (1 - p)), with p kept within rounding of (0, 1)."""
    inside = np.clip(sigmoids, 1e-12, 1 - 1e-12)
    return np.log(inside) - np.log1p(-inside)


def slopes_of(sigmoids: NDArray, design: NDArray) -> NDArray[np.float64]:
    """Slopes (H, k) of the logits of (Q, H) over design (H, Q, k), weighted by their worth."""
    weights = np.clip(sigmoids * (1 - sigmoids), 1e-6, None)
    weighted = weights.T[:, :, None] * design
    right = (weights * logits(sigmoids)).T
    q, r = np.linalg.qr(weighted)
    ridge = 1e-14 * np.abs(r).max(axis=(1, 2), keepdims=True) * np.eye(r.shape[-1])
    projected = np.swapaxes(q, 1, 2) @ right[:, :, None]
    return np.linalg.solve(r + ridge, projected)[:, :, 0]


def _solve_heads(
    mixed: NDArray, whole: NDArray, design: NDArray, start: NDArray
) -> tuple[NDArray, NDArray, float, float]:
    """Unmixing (H, H) in columns, slopes (H, k), residual and doubt, from rows ``start`` (H, H)."""
    n_heads, n_slopes = len(start), design.shape[-1]
    # m = start + free @ null keeps m . whole = 1.
    null = np.linalg.svd(whole[None, :])[2][1:]
    along = mixed @ null.T
    design = np.broadcast_to(design, (n_heads, len(mixed), n_slopes))
    column_size = np.linalg.norm(design, axis=1)
    column_size = np.where(column_size > 0, column_size, 1.0)
    scaled = design / column_size[:, None, :]
    begin = np.concatenate(
        [np.zeros((n_heads, n_heads - 1)), slopes_of(mixed @ start.T, scaled)], axis=1
    )

    def evaluate(theta: NDArray, which: NDArray) -> tuple[NDArray, NDArray]:
        free, slopes = theta[:, : n_heads - 1], theta[:, n_heads - 1 :]
        mixture = (start[which] + free @ null) @ mixed.T
        sigmoids = expit(np.einsum("hqk,hk->hq", scaled[which], slopes))
        jacobian = np.empty((len(theta), len(mixed), n_heads - 1 + n_slopes))
        jacobian[:, :, : n_heads - 1] = along
        jacobian[:, :, n_heads - 1 :] = -(sigmoids * (1 - sigmoids))[:, :, None] * scaled[which]
        return mixture - sigmoids, jacobian

    theta, norms = minimise(evaluate, begin)
    deviations = spread(evaluate(theta, np.arange(n_heads))[1], norms)
    unmix = (start + theta[:, : n_heads - 1] @ null).T
    doubt = max(
        relative_size(deviations[:, n_heads - 1 :], theta[:, n_heads - 1 :]),
        relative_size(deviations[:, : n_heads - 1], unmix.T),
    )
    slopes = theta[:, n_heads - 1 :] / column_size
    return unmix, slopes, float(norms.max() / np.sqrt(len(mixed))), doubt


def relative_size(deviations: NDArray, numbers: NDArray) -> float:
    """The largest norm of a row of deviations, relative to that of the numbers; inf if unknown."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.maximum(np.linalg.norm(numbers, axis=1), np.finfo(float).tiny)
        largest = float((np.linalg.norm(deviations, axis=1) / sizes).max())
    return largest if np.isfinite(largest) else float("inf")
