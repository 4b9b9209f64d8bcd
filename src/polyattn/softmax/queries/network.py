"""All heads of one difference together: a network of H sigmoids, by Levenberg-Marquardt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.least_squares import minimise, spread
from polyattn.softmax.queries.mixing import relative_size


def solve_network(
    rows: NDArray[np.float64],
    tau: NDArray[np.float64],
    effects: NDArray[np.float64],
    total: NDArray[np.float64],
    start: HeadsAt,
) -> tuple[HeadsAt, float]:
    """Heads near ``start`` with sum_i sigmoid(rows a_i + tau) c_i = effects, and the rms residual.

    rows (Q, D), tau (Q,), effects (Q, e); the sum of the c_i, total (e,), is one more equation.
    Works for any number of outputs; those that are combinations of H others are left out.
    Cost: H (D + min(e, H)) unknowns n, O(Q min(e, H) n^2) per step.
    """
    n_heads, n_rows = start.columns.shape
    space = np.linalg.svd(np.vstack([effects, total]), full_matrices=False)[2][:n_heads].T
    beside = float(np.linalg.norm(effects - effects @ space @ space.T))
    effects, total, values = effects @ space, total @ space, start.values @ space
    n_outputs = len(total)
    row_size = np.linalg.norm(rows, axis=0)
    row_size = np.where(row_size > 0, row_size, 1.0)
    size = max(float(np.abs(effects).max()), 1e-300)
    scaled, data = rows / row_size, effects / size
    n_slopes = n_heads * n_rows
    begin = np.concatenate([(start.columns * row_size).ravel(), values.ravel() / size])

    def evaluate(theta: NDArray, _which: NDArray) -> tuple[NDArray, NDArray]:
        slopes = theta[0, :n_slopes].reshape(n_heads, n_rows)
        values = theta[0, n_slopes:].reshape(n_heads, n_outputs)
        sigmoids = expit(scaled @ slopes.T + tau[:, None])
        slope = sigmoids * (1 - sigmoids)
        by_row = np.einsum("qi,ie,qd->qeid", slope, values, scaled)
        by_value = np.einsum("qi,ef->qeif", sigmoids, np.eye(n_outputs))
        jacobian = np.zeros((1, data.size + n_outputs, theta.shape[1]))
        jacobian[0, : data.size, :n_slopes] = by_row.reshape(data.size, -1)
        jacobian[0, : data.size, n_slopes:] = by_value.reshape(data.size, -1)
        jacobian[0, data.size :, n_slopes:] = np.tile(np.eye(n_outputs), n_heads)
        residual = np.concatenate(
            [(sigmoids @ values - data).ravel(), values.sum(axis=0) - total / size]
        )
        return residual[None], jacobian

    theta, norms = minimise(evaluate, begin[None], n_steps=60)
    deviations = spread(evaluate(theta, np.arange(1))[1], norms)[0]
    doubt = max(
        relative_size(part.reshape(n_heads, -1), whole.reshape(n_heads, -1))
        for part, whole in zip(
            np.split(deviations, [n_slopes]), np.split(theta[0], [n_slopes]), strict=True
        )
    )
    columns = theta[0, :n_slopes].reshape(n_heads, n_rows) / row_size
    values = theta[0, n_slopes:].reshape(n_heads, n_outputs) * size @ space.T
    residual = np.hypot(float(norms[0]) * size, beside) / np.sqrt(data.size)
    return HeadsAt(start.delta, columns, values, doubt), float(residual)
