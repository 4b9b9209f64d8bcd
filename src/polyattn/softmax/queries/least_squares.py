"""Levenberg-Marquardt for many small problems of one shape at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.parallel import single_threaded_blas
from polyattn.softmax.recorder import require_time

# theta (B, p), which problems (B',) -> residuals (B', m) and Jacobians (B', m, p)
Evaluate = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]

# A step that leaves more than this of the residual brings no progress, one that changes unknowns by
# less than this is rounding, and unknowns of order one that grow beyond the last diverge.
STALLED, PRECISION, FARTHEST = 0.999, 1e-14, 1e30

# Steps with more damping than this may be short because of it: where logits are small, what
# separates heads is a small part of the residual.
UNDAMPED = 1e-8


@single_threaded_blas()
def minimise(
    evaluate: Evaluate, start: NDArray[np.float64], n_steps: int = 40
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimisers (B, p) of the sums of squares near ``start``, and their residual norms (B,).

    Each problem has its own damping; it is at rest when a step changes it by rounding alone, when
    undamped steps bring no more progress, or when no damping does.
    Cost: a QR of (m + p) x p per problem and step.
    """
    theta = start.copy()
    n_problems, n_unknowns = theta.shape
    damping = np.full(n_problems, 1e-3)
    active = np.arange(n_problems)
    residual, jacobian = evaluate(theta, active)
    norms = np.linalg.norm(residual, axis=1)
    for _ in range(n_steps if n_unknowns else 0):
        require_time()
        # The step minimises |J step + r|^2 + damping |scale step|^2, scale = column norms.
        scale = np.linalg.norm(jacobian, axis=1)
        scale = np.where(scale > 0, scale, 1.0)
        # Below this the damping would vanish beside rounding and singular Jacobians divide by zero.
        ridge = np.sqrt(np.maximum(damping[active], 1e-26))[:, None, None] * np.eye(n_unknowns)
        q, r = np.linalg.qr(np.concatenate([jacobian / scale[:, None, :], ridge], axis=1))
        right = -np.einsum("bmp,bm->bp", q[:, : residual.shape[1]], residual)
        step = np.linalg.solve(r, right[:, :, None])[:, :, 0] / scale
        trial = theta[active] + step
        new_residual, new_jacobian = evaluate(trial, active)
        new_norms = np.linalg.norm(new_residual, axis=1)
        better = (new_norms < norms[active]) & (np.abs(trial).max(axis=1) < FARTHEST)
        change = np.abs(step).max(axis=1) / np.maximum(np.abs(theta[active]).max(axis=1), 1e-300)
        stalled = (
            (new_norms > STALLED * norms[active]) & (damping[active] < UNDAMPED) & (change < 1e-6)
        )
        theta[active[better]] = trial[better]
        norms[active[better]] = new_norms[better]
        damping[active] *= np.where(better, 0.1, 10.0)
        residual[better], jacobian[better] = new_residual[better], new_jacobian[better]
        going = ~(stalled | (change <= PRECISION)) & (damping[active] < 1e8) & (norms[active] > 0)
        active, residual, jacobian = active[going], residual[going], jacobian[going]
        if not len(active):
            break
    return theta, norms


def spread(jacobian: NDArray, norms: NDArray) -> NDArray[np.float64]:
    """Standard deviations (B, p) of minimisers with Jacobians (B, m, p) and residual norms (B,).

    Residuals are taken for independent noise; what the Jacobian does not determine is infinite.
    """
    n_problems, n_equations, n_unknowns = jacobian.shape
    noise = norms / np.sqrt(max(1, n_equations - n_unknowns))
    scale = np.linalg.norm(jacobian, axis=1)
    deviations = np.full((n_problems, n_unknowns), np.inf)
    for item in np.flatnonzero(np.all(scale > 0, axis=1)):
        triangle = np.linalg.qr(jacobian[item] / scale[item], mode="r")
        if np.abs(np.diag(triangle)).min() > 1e-15:
            inverse = np.linalg.inv(triangle)
            deviations[item] = noise[item] * np.linalg.norm(inverse, axis=1) / scale[item]
    return deviations
