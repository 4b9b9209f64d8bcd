"""What theory says of the test error: of given coefficients, of a fit, and in the limit.

A prompt of l examples has the features  x ⊗ h,  h = [d mean(y_i x_i), mean(y_i^2)], with inputs
N(0, I/d) and labels <w, x> + noise of variance rho.  For a task w let s = |w|^2/d + rho.  All
expectations below are over tasks [derivation: docs/derivations/in_context_learning_curves.md].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from polyattn.data import in_context_regression
from polyattn.numerics.random_state import RandomState, require_generator

# Rows that expectations are taken over, and how fixed points are found.
N_ROWS, MOST_STEPS, TOLERANCE = 1 << 14, 1000, 1e-7


@dataclass(frozen=True, eq=False)
class PromptMoments:
    """A = E[w h^T] (d, d + 1), B = E[h h^T] (d + 1, d + 1), E|w|^2 and rho, of some tasks."""

    cross: NDArray[np.float64]
    second: NDArray[np.float64]
    power: float
    rho: float

    @classmethod
    def of_tasks(cls, tasks: NDArray, rho: float, n_examples: int) -> PromptMoments:
        """For tasks (k, d) that are equally likely: exact."""
        sizes = np.mean(tasks**2, axis=1) + rho
        return cls._of(
            tasks.T @ tasks / len(tasks), float(np.mean(sizes)),
            np.asarray(sizes @ tasks / len(tasks)), float(np.mean(sizes**2)), rho, n_examples,
        )  # fmt: skip

    @classmethod
    def gaussian(cls, covariance: NDArray, rho: float, n_examples: int) -> PromptMoments:
        """For tasks N(0, covariance): exact."""
        d = len(covariance)
        size = float(np.trace(covariance)) / d + rho
        square = size**2 + 2 * float(np.sum(covariance**2)) / d**2
        return cls._of(covariance, size, np.zeros(d), square, rho, n_examples)

    @classmethod
    def _of(
        cls, R: NDArray, size: float, sized: NDArray, square: float, rho: float, n_examples: int
    ) -> PromptMoments:
        """From R = E w w^T, E s, E s w and E s^2, for prompts of l examples."""
        d, n = len(R), n_examples
        second = np.empty((d + 1, d + 1))
        second[:d, :d] = (1 + 1 / n) * R + (d / n) * size * np.eye(d)
        second[:d, d] = second[d, :d] = (1 + 2 / n) * sized
        second[d, d] = (1 + 2 / n) * square
        return cls(np.column_stack([R, sized]), second, float(np.trace(R)), rho)

    @property
    def n_dims(self) -> int:
        """d, the coordinates of an input."""
        return len(self.cross)

    def error_of(self, gamma: NDArray) -> float:
        """E (y - x^T Gamma h)^2 for coefficients Gamma (d, d + 1), on prompts of these tasks.

        rho + (E|w|^2 - 2 tr Gamma^T A + tr Gamma B Gamma^T) / d.  The paper's formula for
        tasks N(0, C) is this one without terms of order 1/l and 1/d in B.
        """
        signal, size = np.sum(gamma * self.cross), np.sum((gamma @ self.second) * gamma)
        return float(self.rho + (self.power - 2 * signal + size) / self.n_dims)


def paper_error_of(gamma: NDArray, covariance: NDArray, rho: float, alpha: float) -> float:
    """e(Gamma) of the paper for test tasks N(0, covariance) [letey2025: the test error].

    rho + tr(C)/d - (2/d) tr(Gamma^T A) + (1/d) tr(Gamma B Gamma^T), A = [C, 0],
    B = diag(C + (s / alpha) I, s^2), s = tr(C)/d + rho.
    """
    d = len(covariance)
    power = float(np.trace(covariance)) / d
    size, square = power + rho, gamma[:, :d]
    quadratic = np.sum((square @ covariance) * square) + size / alpha * np.sum(square**2)
    quadratic += size**2 * np.sum(gamma[:, d] ** 2)
    return float(rho + power - 2 / d * np.sum(square * covariance) + quadratic / d)


def expected_error(
    tasks: NDArray, tests: Sequence[PromptMoments], n_prompts: int, n_examples: int, rho: float,
    ridge: float, random_state: RandomState = 0,
) -> list[float]:  # fmt: skip
    """The errors on ``tests`` that a fit to n prompts of these tasks (k, d) is expected to have.

    The sum of squares is penalised by (n/d) ridge |Gamma|^2.  A row x ⊗ h pulls at the fit with
    1/(1 + v), v = (d/n) |x|^2 h^T K h its leverage without itself:

        D = E[|x|^2 h h^T / (1 + v)],     K = (D + ridge)^-1,
        mean of the fit  G = E[|x|^2 w h^T / (1 + v)] K,
        its covariance   I ⊗ V,   V = (d/n) K E[|x|^2 h h^T r^2 / (1 + v)^2] K,
        r^2 = rho + |x|^2 (|w - G h|^2 / d + h^T V h).

    Expectations over rows are means over some drawn rows, of what differs between rows alone.
    """
    rows = _Rows.draw(tasks, n_examples, rho, require_generator(random_state))
    d, eye = tasks.shape[1], np.eye(tasks.shape[1] + 1)
    share = d / n_prompts
    # For rows that are all alike v is a number, and D is B / (1 + v).
    D = rows.moments.second / (1 + rows.equal_leverage(share, ridge))
    for _ in range(MOST_STEPS):
        K = np.linalg.inv(D + ridge * eye)
        pull = 1 / (1 + share * rows.size * rows.quadratic(K))
        last, D = D, rows.mean(rows.size * pull, rows.seen, rows.moments.second)
        if np.max(np.abs(D - last)) <= TOLERANCE * np.max(np.abs(D)):
            break
    K = np.linalg.inv(D + ridge * eye)
    mean = rows.mean(rows.size * pull, rows.weights, rows.moments.cross) @ K
    missed = np.sum((rows.weights - rows.seen @ mean.T) ** 2, axis=1) / d
    V = np.zeros_like(D)
    for _ in range(MOST_STEPS):
        square = rho + rows.size * (missed + rows.quadratic(V))
        last = V
        V = share * K @ rows.mean(rows.size * square * pull**2, rows.seen, rows.moments.second) @ K
        if np.max(np.abs(V - last)) <= TOLERANCE * np.max(np.abs(V)):
            break
    return [test.error_of(mean) + float(np.sum(test.second * V)) for test in tests]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of some tasks: w and h (rows, d and d + 1), |x|^2 (rows,), and their exact moments."""

    weights: NDArray[np.float64]
    seen: NDArray[np.float64]
    size: NDArray[np.float64]
    moments: PromptMoments

    @classmethod
    def draw(cls, tasks: NDArray, n_examples: int, rho: float, rng: np.random.Generator) -> _Rows:
        d = tasks.shape[1]
        drawn = in_context_regression(
            N_ROWS, n_examples, np.eye(d) / d, float(np.sqrt(rho)), rng, tasks=tasks,
            summarised=True,
        )  # fmt: skip
        label = drawn.X[:, 0, d:]
        seen = np.hstack([d * label * drawn.X[:, 0, :d], label**2])
        size = np.sum(drawn.X[:, 1, :d] ** 2, axis=1)
        return cls(drawn.weights, seen, size, PromptMoments.of_tasks(tasks, rho, n_examples))

    def quadratic(self, matrix: NDArray) -> NDArray[np.float64]:
        """h^T M h of each row."""
        return np.asarray(np.einsum("ij,ij->i", self.seen @ matrix, self.seen))

    def mean(self, factor: NDArray, left: NDArray, known: NDArray) -> NDArray[np.float64]:
        """E[factor left h^T], where E[left h^T] is known: only what varies is averaged."""
        middle = float(np.mean(factor))
        varying = (left * (factor - middle)[:, None]).T @ self.seen / len(self.seen)
        return np.asarray(middle * known + varying, dtype=np.float64)

    def equal_leverage(self, share: float, ridge: float) -> float:
        """v = share tr B (B / (1 + v) + ridge)^-1: the leverage if all rows had the same."""
        powers = np.linalg.eigvalsh(self.moments.second)

        def excess(v: float) -> float:
            return v - share * float(np.sum(powers / (powers / (1 + v) + ridge)))

        return float(brentq(excess, 0.0, 2 * share * float(np.sum(powers)) / ridge))
