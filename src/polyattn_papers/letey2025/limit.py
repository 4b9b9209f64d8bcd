"""The curve of the paper: the test error for d -> infinity, in closed form.

Notation as in ``theory``; the deterministic equivalents are those of Marchenko and Pastur (1967)
and Silverstein (1995) [derivation: docs/derivations/in_context_learning_curves.md].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq


def limit_error(
    train: NDArray, test: NDArray, tau: float, alpha: float, kappa: float, rho: float
) -> float:
    """The test error for d -> infinity without a ridge: the curve of the paper, tau != 1.

    n = tau d^2 prompts of l = alpha d examples, k = kappa d tasks N(0, ``train``); test tasks are
    N(0, ``test``), both (d, d).  With R the second moment of k tasks, F = (R + nu)^-1 and
    nu = xi + s/alpha, all of ``expected_error`` are traces of F and F^2, whose limits depend on
    covariances alone (``resolvent``).
    """
    size = float(np.trace(train)) / len(train) + rho
    xi = 0.0 if tau > 1 else _ridge_of_interpolation(train, tau, kappa, size / alpha)
    nu = xi + size / alpha
    F, F2 = resolvent(train, kappa, nu)
    d = len(train)
    M, M2 = float(np.trace(F)) / d, float(np.trace(F2)) / d
    noise = (float(np.trace(test)) / d + rho) / alpha
    kept = 1 - 2 * nu * M + nu**2 * M2
    own = rho + nu**2 * (M - nu * M2) + size / alpha * kept
    own /= tau - (1 - 2 * xi * M + xi**2 * M2)
    seen, seen2 = float(np.sum(test * F)) / d, float(np.sum(test * F2)) / d
    bias = rho + nu**2 * seen2 + noise * kept
    return bias + own * (seen - xi * seen2 + noise * (M - xi * M2))


def resolvent(
    covariance: NDArray, kappa: float, nu: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Limits of (R + nu)^-1 and (R + nu)^-2 for R = W^T W / k, W of k = kappa d tasks N(0, C).

    (a C + nu)^-1 with  a = 1 - (1 - nu M)/kappa,  M = tr(a C + nu)^-1 / d  [Marchenko, Pastur
    1967; Silverstein 1995]; the other is minus its derivative by nu.
    """
    powers, axes = np.linalg.eigh(covariance)
    powers = np.maximum(powers, 0.0)

    def excess(delta: float) -> float:
        return delta - float(np.mean(powers / (powers / (1 + delta) + nu))) / kappa

    # a = 1/(1 + delta), where the excess of delta rises from below zero.
    a = 1 / (1 + brentq(excess, 0.0, 2 * float(np.mean(powers)) / (kappa * nu)))
    first = 1 / (a * powers + nu)
    M, mixed = np.mean(first), np.mean(powers * first**2)
    M2 = (np.mean(first**2) + M * mixed / kappa) / (1 + nu * mixed / kappa)
    second = first**2 * (1 + (M - nu * M2) / kappa * powers)
    return (axes * first) @ axes.T, (axes * second) @ axes.T


def _ridge_of_interpolation(train: NDArray, tau: float, kappa: float, floor: float) -> float:
    """xi > 0 with  xi M(xi + floor) = 1 - tau: fewer prompts than coefficients act as a ridge."""

    def excess(xi: float) -> float:
        return xi * float(np.trace(resolvent(train, kappa, xi + floor)[0])) / len(train) - 1 + tau

    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high))
