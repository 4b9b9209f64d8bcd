"""Damping and stopping of Levenberg–Marquardt descent.

A step solves (H + damping diag(H)) step = gradient.  Large damping makes it short and safe, small
damping makes it Newton's: the damping falls after a step that lowered the error and rises after
one that did not, and descent ends when several steps together gained little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve


@dataclass(frozen=True)
class Damping:
    """Where damping starts and how it moves: by a factor, and never below the least."""

    first: float = 1e-3
    factor: float = 8.0
    least: float = 1e-15
    again: float = 1e-10  # at least this for a step that failed

    def lowered(self, damping: float) -> float:
        """The damping after a step that lowered the error."""
        return max(damping / self.factor, self.least)

    def raised(self, damping: float) -> float:
        """The damping after a step that did not."""
        return max(damping * self.factor, self.again)


@dataclass(frozen=True)
class Rest:
    """When descent has come to rest: ``patience`` steps gained less than ``gain``, relatively."""

    patience: int
    gain: float

    def reached(self, errors: Sequence[float]) -> bool:
        """Whether the errors after each step, the first one before any, have come to rest."""
        if len(errors) <= self.patience:
            return False
        return errors[-1 - self.patience] - errors[-1] < self.gain * errors[-1]


def damped_step(
    hessian: NDArray[np.float64], sizes: NDArray[np.float64] | float, gradient: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """(hessian + diag(sizes))^-1 gradient; None where rounding made it indefinite."""
    damped = hessian.copy()
    damped[np.diag_indices_from(damped)] += sizes
    try:
        factor = cho_factor(damped, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return np.asarray(cho_solve(factor, gradient, check_finite=False))
