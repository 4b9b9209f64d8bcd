"""How far an iteration may be from the least objective, proved.

With the gradient g (half of the true one) and H = sum phi phi^T + ridge, the objective exceeds its
minimum by g^T H^+ g, so by at most

    ||g||^2 / ridge,                               with a ridge;
    ||L^T g||^2 / lambda_min(L^T H L),             in whitened coordinates, if there are no others;
    the objective itself,                          which no minimum is below zero.

A random step (``least_eigenvalue``) bounds lambda_min.  Rounding of the gradient is added to it.
See docs/derivations/iteration.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from polyattn.numerics.scaling import EPS

# How often a random step may be shorter along some direction than is assumed.
FAILURE = 1e-6

# Rounding of sums of products, in units of EPS beside what is added up.
ROUNDING = 16.0


@dataclass(frozen=True)
class Excess:
    """Bounds (e,) of the excess of each output, in the units of its equations.

    by_ridge : by the ridge alone; infinite without one
    by_step : by a random step, which is wrong in ``FAILURE`` of all cases; infinite without one
    """

    by_ridge: NDArray[np.float64]
    by_step: NDArray[np.float64]

    @property
    def least(self) -> NDArray[np.float64]:
        """The smaller one."""
        return np.minimum(self.by_ridge, self.by_step)

    @property
    def is_random(self) -> bool:
        """Whether the random step has a part in the smaller one."""
        return bool(np.any(self.by_step < self.by_ridge))


@dataclass(frozen=True)
class Sizes:
    """What the rounding of a gradient depends on.

    norms : (p,), about the norms of the features, in the coordinates of theta
    spread : the root of sum 1 / K over its largest value, in whitened coordinates
    n_terms : tokens that are added up for a sum
    """

    norms: NDArray[np.float64]
    spread: float
    n_terms: int

    def of_outputs(self, theta: NDArray) -> NDArray[np.float64]:
        """Rounding of outputs of theta (p, e), their norm over all rows: beside |theta| |phi|."""
        return ROUNDING * EPS * self.n_terms**0.5 * (self.norms @ np.abs(theta))

    def of_gradient(
        self, theta: NDArray, residual: NDArray, largest: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rounding of gradients at theta (p, e) with residuals of norm (e,): plain, and whitened.

        Products with residuals round beside |phi| |r|; along whitened directions of few data that
        is magnified.  ``largest``: eigenvalue of H, whitened.
        """
        unit, outputs = ROUNDING * EPS * self.n_terms**0.5, self.of_outputs(theta)
        plain = float(np.linalg.norm(self.norms)) * (outputs + unit * residual)
        whitened = largest**0.5 * outputs + unit * residual * self.spread
        return plain, whitened


def excess(
    lengths: tuple[NDArray, NDArray],
    rounding: tuple[NDArray, NDArray],
    ridge: float,
    least: float,
) -> Excess:
    """The bounds for gradients of such lengths (e,), plain and whitened, with their rounding.

    ridge : the penalty, or 0
    least : a lower bound of the whitened spectrum, or 0
    """
    plain, whitened = (one + other for one, other in zip(lengths, rounding, strict=True))
    nothing = np.full(len(plain), np.inf)
    return Excess(
        plain**2 / ridge if ridge > 0 else nothing,
        whitened**2 / least if least > 0 else nothing,
    )


def least_eigenvalue(ritz: NDArray, length: float) -> float:
    """A lower bound of the smallest eigenvalue, by a standard normal step that became so short.

    ritz : all Ritz values of the descents that led it back

    Descents leave p(lambda) = prod (1 - lambda / ritz) of the step along each eigenvector.  That
    of the smallest eigenvalue began longer than FAILURE sqrt(pi / 2), but for one case of
    1 / FAILURE, and is not longer than ``length`` now.  Below the least Ritz value p falls from
    one, so that lambda is at least where p = length / (FAILURE sqrt(pi / 2)).
    """
    left = length / (FAILURE * np.sqrt(np.pi / 2.0))
    if not (len(ritz) and ritz.min() > 0 and 0 <= left < 1):
        return 0.0
    smallest = float(ritz.min())
    goal = np.log(max(left, 1e-3))

    def above(part: float) -> float:
        return float(np.sum(np.log1p(-part * (smallest / ritz))) - goal)

    # A little less, for what the root is not exact.
    return smallest * max(0.0, float(brentq(above, 0.0, 1.0 - 1e-9, xtol=1e-9)) - 1e-8)
