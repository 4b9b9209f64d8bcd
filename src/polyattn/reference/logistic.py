"""Log-loss of a layer by its definition, and its minimiser by Newton's method with all matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Halvings of a step, and steps, before giving up.
MOST = 200


def chances(outputs: NDArray) -> NDArray[np.float64]:
    """Probabilities (K,) of one row of outputs: softmax, or of one output f 1 / (1 + exp(-f))."""
    logits = np.array([0.0, outputs[0]]) if len(outputs) == 1 else np.asarray(outputs)
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def objective(
    theta: NDArray, features: NDArray, labels: NDArray, weights: NDArray, ridge: float
) -> float:
    """sum_i -w_i log(chance of label i) + ridge ||theta||^2; features (rows, p), theta (p, e)."""
    total = ridge * float(np.sum(theta**2))
    for phi, label, weight in zip(features, labels, weights, strict=True):
        total -= weight * float(np.log(chances(phi @ theta)[label]))
    return total


def minimiser(
    features: NDArray, labels: NDArray, weights: NDArray, ridge: float
) -> NDArray[np.float64]:
    """theta (p, e) of the least objective, ridge > 0; e = 1 for two classes, else their number.

    The second derivative is sum_i w_i (phi_i phi_i^T) ⊗ (diag(c) - c c^T) + 2 ridge, of two
    classes with c (1 - c) in the place of the matrix of chances.
    """
    n_classes = int(labels.max()) + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    theta = np.zeros((features.shape[1], n_outputs))
    for _ in range(MOST):
        gradient = 2 * ridge * theta
        hessian = 2 * ridge * np.eye(theta.size)
        for phi, label, weight in zip(features, labels, weights, strict=True):
            c = chances(phi @ theta)
            wanted = np.eye(n_classes)[label]
            slope, curve = c - wanted, np.diag(c) - np.outer(c, c)
            if n_outputs == 1:
                slope, curve = slope[1:], curve[1:, 1:]
            gradient = gradient + weight * np.outer(phi, slope)
            hessian += weight * np.kron(np.outer(phi, phi), curve)
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(theta.shape)
        before = objective(theta, features, labels, weights, ridge)
        for _ in range(MOST):
            if objective(theta - step, features, labels, weights, ridge) <= before:
                break
            step = step / 2
        theta = theta - step
        if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(theta):
            break
    return theta
