"""Pairs of tokens where positions turn queries and query tokens cannot be tiny beside others.

Behind a normalisation tokens have a largest norm, and beside biases logits of large ones saturate.
A query token x' and its copies then have logits of their own, and the weight of a token moved by
delta is

    sigmoid(z + t),      z = [x', 1] A(o) delta,      t = t(x') quadratic in x', whatever delta.

Moves forwards and backwards give p = sigmoid(z + t) and q = sigmoid(-z + t), so that a head is the
one unmixing for which (logit p - logit q) / 2 is linear in x'.  Heads are counted, and starts come
from Jacobians, by the combination

    (effect(delta) + effect(-delta) + delta S) / 2
        = sum_i [sigmoid(z_i + t_i) + sigmoid(z_i - t_i)] / 2 c_i,

which has t in second order only, for query tokens that are small beside delta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from polyattn.softmax.queries.pairs import Pairs

# Sizes of query tokens at most, and of differences, relative to the largest norm: where noise
# matters differences are up to 1.6 times larger.  And of points at which Jacobians are measured,
# relative to query tokens: there t must be small.
PARTS, WITH_NOISE, BASE_SIZE = (0.2, 0.55), (0.2, 0.4), 0.2


# Differences are so many times squared larger than query tokens, beside biases and without a
# largest norm.
RATIO_WITH_BIAS = 4.0


@dataclass
class TurnedPairs(Pairs):
    """Pairs that are moved forwards and backwards, for each query token."""

    def effect(
        self, points: NDArray, delta: NDArray, moved: int = 1, resting: int = 1
    ) -> NDArray[np.float64]:
        """The combination (Q, e) of effects of both moves.  Cost: 2 Q queries."""
        return self._combined(self.measured(points, delta, moved, resting), delta)

    def measured(
        self, points: NDArray, delta: NDArray, moved: int = 1, resting: int = 1
    ) -> NDArray[np.float64]:
        """Effects (Q, 2 e) of moves forwards, and backwards."""
        deltas = np.broadcast_to(delta, points.shape)
        both = (self.forward_effect(points, sign * deltas, moved, resting) for sign in (1, -1))
        return np.concatenate(list(both), axis=1)

    def weighing(self, measured: NDArray) -> list[NDArray[np.float64]]:
        """sum_i sigmoid(z_i + t_i) c_i and sum_i sigmoid(-z_i + t_i) c_i, both (Q, e)."""
        forwards, backwards = np.split(measured, 2, axis=-1)
        return [forwards, -backwards]

    def logits(
        self, points: NDArray, deltas: NDArray, values: NDArray, resting: int
    ) -> NDArray[np.float64]:
        """x' A_i(o) delta (B, Q, H), from both moves: what copies add to logits cancels."""
        first, second = self._both_logits(points, deltas, values, resting)
        return (first - second) / 2

    def own_logits(self, points: NDArray, deltas: NDArray, values: NDArray) -> NDArray[np.float64]:
        """t (B, Q, H): the logit of the token before the query, if it rests, less that of this."""
        first, second = self._both_logits(points, deltas, values, 1)
        return (first + second) / 2

    def _both_logits(
        self, points: NDArray, deltas: NDArray, values: NDArray, resting: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        n, m = len(deltas), len(points)
        measured = self.measured(
            np.tile(points, (n, 1)), np.repeat(deltas, m, axis=0), resting=resting
        ).reshape(n, m, -1)
        unmix = np.linalg.pinv(values)
        first, second = (
            np.asarray(logit(np.clip(part @ unmix, 1e-12, 1 - 1e-12)))
            for part in self.weighing(measured)
        )
        return first, second

    def vary(self, attempt: int) -> None:
        """Take other points for Jacobians next: far from zero or near, where t is smaller."""
        self.base_size *= (0.25, 16.0, 0.25, 0.0625, 16.0, 1.0)[attempt]

    def _combined(self, measured: NDArray, delta: NDArray) -> NDArray[np.float64]:
        forwards, backwards = np.split(measured, 2, axis=1)
        return (forwards + backwards + delta @ self.total.value) / 2
