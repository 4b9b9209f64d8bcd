"""The iterative solver: conjugate gradients on the normal equations, matrix-free (CGLS).

For problems where neither p x p nor N x N numbers fit: a pass reads the data once and needs memory
for a few sets of coefficients only.  Started from zero the iterates stay in the row space, so with
ridge = 0 they converge to the minimiser of smallest norm.  A preconditioner (powers of two near the
sizes of the features) changes what "smallest norm" means: it is used only where sizes differ so
much that nothing else converges, and the outcome says so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import apply_coef, correlate
from polyattn.features.pairs import feature_weights, n_pairs
from polyattn.numerics.scaling import exponent_for
from polyattn.solve.direct import column_scale
from polyattn.solve.primal import as_coef, residual_pass
from polyattn.solve.solution import Solution
from polyattn.stats.rows import Rows

# Stop when the gradient has fallen by this factor, or after so many passes.
GRADIENT_REDUCTION, MAX_PASSES = 1e-12, 500

# Features whose sizes differ by more than this are brought to similar size first.
COMPARABLE_SIZES = 1e6


def solve_iterative(rows: Rows, ridge: float) -> Solution:
    """The minimiser by CGLS, all outputs side by side; the note says whether it converged."""
    theta = np.zeros((rows.n_features, rows.n_outputs))
    gradient, _ = residual_pass(theta, rows)
    sizes, scale, note = _sizes(rows, ridge)
    # Each output is multiplied by a power of two, so that squares neither underflow nor overflow.
    gradient = gradient / scale
    unit = np.array([-(exponent_for(size) or 0) for size in np.abs(gradient).max(axis=0)])
    gradient = np.ldexp(gradient, unit)
    direction = gradient
    power = np.sum(gradient**2, axis=0)
    # The gradient is judged with all features at equal size: the largest would hide all others.
    judged = first = np.sum((gradient * (scale / sizes)) ** 2, axis=0)
    active = first > 0
    passes = 0
    while np.any(active) and passes < MAX_PASSES:
        step = direction / scale
        # sum phi phi^T step, in one pass over the data
        coef = as_coef(step, rows.width)
        product = np.zeros((coef.shape[1], coef.shape[2], len(coef)))
        for block in rows.blocks():
            outputs = apply_coef(coef, block.pairs, block.queries)
            product += correlate(block.pairs, block.queries, outputs)
        curved = product.reshape(step.shape) / feature_weights(rows.width)[:, None]
        curvature = np.ldexp((curved + ridge * step) / scale, unit)
        length = _ratio(power, np.sum(direction * curvature, axis=0), active)
        theta = theta + length * step
        gradient = gradient - length * curvature
        new_power = np.sum(gradient**2, axis=0)
        direction = gradient + _ratio(new_power, power, active) * direction
        power, passes = new_power, passes + 1
        judged = np.sum((gradient * (scale / sizes)) ** 2, axis=0)
        active = judged > GRADIENT_REDUCTION**2 * first
    _, residual_power = residual_pass(theta, rows)
    if np.any(active):
        reached = float(np.sqrt(np.max(judged[active] / first[active])))
        note += (
            f" The iteration stopped after {passes} passes with the gradient reduced to "
            f"{reached:.1e} of its start: this is an approximation. A positive ridge or tokens "
            "of similar scale would speed it up."
        )
    else:
        note += f" It took {passes} {'pass' if passes == 1 else 'passes'} over the data."
    return Solution(theta, None, residual_power, float("nan"), ridge, note)


def _sizes(rows: Rows, ridge: float) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Sizes of the features (p, 1), powers of two to divide them by, and what that changes."""
    powers = np.zeros((n_pairs(rows.width), rows.width, 1))
    for block in rows.blocks():
        powers += correlate(block.pairs**2, block.queries**2, np.ones((1, len(block.pairs.T))))
    norms = np.sqrt(powers.reshape(-1, 1)) / feature_weights(rows.width)[:, None]
    norms = np.hypot(norms, np.sqrt(ridge))
    sizes = column_scale(norms)
    positive = norms[norms > 0]
    spread = positive.max() / positive.min() if len(positive) else 1.0
    if spread <= COMPARABLE_SIZES:
        return sizes, np.ones_like(sizes), ""
    note = (
        f" The features differ in size by a factor of {spread:.0e}, so they were brought to equal "
        "size first: the norm that is smallest is that of the coefficients times these sizes."
    )
    return sizes, sizes, "" if ridge > 0 else note


def _ratio(above: NDArray, below: NDArray, active: NDArray) -> NDArray[np.float64]:
    return np.where(active & (below > 0), above / np.where(below > 0, below, 1.0), 0.0)
