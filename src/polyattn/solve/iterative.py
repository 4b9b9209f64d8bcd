"""The iterative road: conjugate gradients on the normal equations, matrix-free (CGLS).

For problems where neither p x p nor N x N numbers fit.  Every pass reads the data once and
needs memory for a few sets of coefficients only.  Started from zero the iterates stay in the row
space, so with ridge = 0 they converge to the minimiser of smallest norm.  There is no
preconditioner: it would change which minimiser "smallest norm" means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import apply_coef, correlate
from polyattn.features.pairs import feature_weights
from polyattn.scaling import exponent_for, largest_magnitude, scaled
from polyattn.solve.outcome import Solution
from polyattn.solve.primal import as_coef, residual_pass
from polyattn.stats.rows import Rows

# Stop when the gradient has fallen by this factor, or after so many passes.
GRADIENT_REDUCTION, MAX_PASSES = 1e-12, 500


def solve_iterative(rows: Rows, ridge: float) -> Solution:
    """The minimiser by CGLS, all outputs side by side; says so when it has not converged."""
    theta = np.zeros((rows.n_features, rows.n_outputs))
    gradient, _ = residual_pass(theta, rows)
    # The whole problem is multiplied by a power of two, so that squares neither vanish nor burst.
    unit = -(exponent_for(largest_magnitude([gradient])) or 0)
    gradient = scaled(gradient, unit)
    direction = gradient
    power = first_power = np.sum(gradient**2, axis=0)
    active = power > 0
    passes = 0
    while np.any(active) and passes < MAX_PASSES:
        curvature = scaled(_gram_product(direction, rows) + ridge * direction, unit)
        length = _ratio(power, np.sum(direction * curvature, axis=0), active)
        theta = theta + length * direction
        gradient = gradient - length * curvature
        new_power = np.sum(gradient**2, axis=0)
        direction = gradient + _ratio(new_power, power, active) * direction
        power, passes = new_power, passes + 1
        active = power > GRADIENT_REDUCTION**2 * first_power
    _, residual_power = residual_pass(theta, rows)
    note = f" It took {passes} passes over the data."
    if np.any(active):
        reached = float(np.sqrt(np.max(power[active] / first_power[active])))
        note = (
            f" The iteration stopped after {passes} passes with the gradient reduced to "
            f"{reached:.1e} of its start: this is an approximation. A positive ridge or tokens "
            "of similar scale would speed it up."
        )
    return Solution(theta, None, residual_power, float("nan"), ridge, note)


def _gram_product(theta: NDArray, rows: Rows) -> NDArray[np.float64]:
    """sum phi phi^T theta in one pass."""
    s = feature_weights(rows.width)[:, None]
    coef = as_coef(theta, rows.width)
    product = np.zeros((coef.shape[1], coef.shape[2], len(coef)))
    for block in rows.blocks():
        outputs = apply_coef(coef, block.pairs, block.queries)
        product += correlate(block.pairs, block.queries, outputs)
    return product.reshape(theta.shape) / s


def _ratio(above: NDArray, below: NDArray, active: NDArray) -> NDArray[np.float64]:
    return np.where(active & (below > 0), above / np.where(below > 0, below, 1.0), 0.0)
