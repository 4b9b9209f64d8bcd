"""Sequences of two tokens, possibly repeated: what they show of the heads.

For a query token x', r copies of x' + delta and s copies of x' (the last one is the query),

    effect = F - x' S - b = sum_i sigmoid(z_i + log(r / s)) c_i,
    z_i = [x', 1] A_i delta,      c_i = delta V_i,      sum_i c_i = delta S,

where A_i (D, d) is attn without the invisible column, D = d + 1 with biases and d without.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.precision import token_unit
from polyattn.softmax.queries.sum_of_values import SumOfValues

# Where tokens have a largest norm, what query tokens have of it at most.
MOST_OF_POINTS = 0.75

# The same of all tokens of noisy answers.
MOST_OF_TOKENS = 0.97

# Noise above this is worth more queries, and wider differences.
NOISY = 1e-12

# The norm of tokens at the border of what is answered, relative to the largest one.
BORDER = 1 - 2.0**-20


@dataclass
class Pairs:
    """The black box, queried with pairs of tokens; ``sizes.calibrate`` sets their sizes.

    rng : decides all tokens
    floor : error of an effect beyond the noise, as measured where there should be none
    point_size, delta_size : norms of query tokens and differences at which logits are of order one
    flat : whether attention has no effect on any token that was tried
    largest_tried : exponent of the largest size without effect, where larger ones are not answered
    parts : of the largest norm, what query tokens have at most, and what differences have
    base_size : norm of the points at which Jacobians are measured, in calibrated sizes: larger than
        where logits are of order one, so that weights differ
    ratio : differences are ratio^2 times larger than query tokens; with positions a large number
    """

    oracle: Oracle
    bias: bool
    total: SumOfValues
    rng: np.random.Generator
    output_size: float = 0.0
    floor: float = 0.0
    point_size: float = 1.0
    delta_size: float = 1.0
    flat: bool = False
    largest_tried: int | None = None
    ratio: float = 1.0
    parts: tuple[float, float] | None = None
    base_size: float = 2.5

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return self.oracle.n_dims

    @property
    def n_rows(self) -> int:
        """D, the rows of attn that are visible."""
        return self.n_dims + self.bias

    def random_points(self, count: int, size: float = 1.0) -> NDArray[np.float64]:
        """Random query tokens (count, d) of norm ``size``, in calibrated sizes, if they fit."""
        norm = min(size * self.point_size, MOST_OF_POINTS * self.oracle.token_limit)
        return norm * unit_rows(self.rng, count, self.n_dims)

    def random_delta(self) -> NDArray[np.float64]:
        """A random difference (d,) of the calibrated norm."""
        return self.delta_size * unit_rows(self.rng, 1, self.n_dims)[0]

    def rows(self, points: NDArray) -> NDArray[np.float64]:
        """Query tokens (Q, d) as the rows (Q, D) that meet attn."""
        return np.concatenate([points, np.ones((len(points), int(self.bias)))], axis=1)

    def effect(
        self, points: NDArray, delta: NDArray, moved: int = 1, resting: int = 1
    ) -> NDArray[np.float64]:
        """Effects (Q, e) at query tokens (Q, d) of moving ``moved`` copies by delta (d,) or (Q, d).

        ``resting`` copies of the query token stay.  Where tokens have a largest norm, they move
        backwards if forwards might be too far: sigmoid(z) = 1 - sigmoid(-z) shows the same.
        Cost: Q queries of moved + resting tokens.
        """
        deltas = np.broadcast_to(delta, points.shape)
        if not isfinite(self.oracle.token_limit):
            return self.forward_effect(points, deltas, moved, resting)
        effects = np.empty((len(points), self.oracle.n_outputs))
        back = np.einsum("qd,qd->q", points, deltas) > 0
        if not np.all(back):
            effects[~back] = self.forward_effect(points[~back], deltas[~back], moved, resting)
        if np.any(back):
            left = self.forward_effect(points[back], -deltas[back], resting, moved)
            effects[back] = left + deltas[back] @ self.total.value
        return effects

    def alone(self, points: NDArray, delta: NDArray) -> NDArray[np.float64]:
        """Rows (Q, D) of the tokens whose answers alone ``effect`` takes off: those after moves."""
        deltas = np.broadcast_to(delta, points.shape)
        if not isfinite(self.oracle.token_limit):
            return self.rows(points)
        back = np.einsum("qd,qd->q", points, deltas) > 0
        return self.rows(points - back[:, None] * deltas)

    def measured(self, points: NDArray, delta: NDArray) -> NDArray[np.float64]:
        """What heads are separated from: here the effects (Q, e)."""
        return self.effect(points, delta)

    def weighing(self, measured: NDArray) -> list[NDArray[np.float64]]:
        """Parts (Q, e) of what was measured that are sums of weights times c_i."""
        return [measured]

    def logits(
        self, points: NDArray, deltas: NDArray, values: NDArray, resting: int
    ) -> NDArray[np.float64]:
        """x' A_i(o) delta (B, Q, H) of Q points for each of B deltas; values (B, H, e) are known.

        The token that is moved stands o = ``resting`` places before the last.
        """
        n, m = len(deltas), len(points)
        effects = self.effect(
            np.tile(points, (n, 1)), np.repeat(deltas, m, axis=0), resting=resting
        ).reshape(n, m, -1)
        weights = np.clip(effects @ np.linalg.pinv(values), 1e-12, 1 - 1e-12)
        return np.asarray(logit(weights) + np.log(resting))

    def own_logits(self, points: NDArray, deltas: NDArray, values: NDArray) -> NDArray[np.float64]:
        """Logits (B, Q, H) that copies of query tokens have beside them: none matters here."""
        return np.zeros((len(deltas), len(points), values.shape[1]))

    def forward_effect(
        self, points: NDArray, deltas: NDArray, moved: int = 1, resting: int = 1
    ) -> NDArray[np.float64]:
        """Effects (Q, e) at query tokens (Q, d) of moves by deltas (Q, d), wherever they lead."""
        X = np.repeat(points[:, None, :], moved + resting, axis=1)
        X[:, :moved] += deltas[:, None, :]
        outputs = self.oracle(X)
        self.output_size = max(self.output_size, float(np.abs(outputs).max()))
        return outputs - points @ self.total.value - self.total.bias

    def random_sequences(self, spreads: NDArray, length: int) -> NDArray[np.float64]:
        """Random sequences (B, length, d): query tokens, and others around them.

        Their sizes are ``spreads`` (B,) in calibrated sizes.  Where tokens have a largest norm none
        is larger, and all tokens of the widest sequences are at the border.
        """
        n_dims, widths = self.n_dims, spreads[:, None, None] / np.sqrt(self.n_dims)
        sizes = self.point_size, self.delta_size
        if self.ratio != 1.0:
            sizes = (sqrt(sizes[0] * sizes[1]),) * 2
        points = self.rng.standard_normal((len(spreads), 1, n_dims)) * sizes[0] * widths
        moves = self.rng.standard_normal((len(spreads), length - 1, n_dims)) * sizes[1] * widths
        X = np.concatenate([points + moves, points], axis=1)
        if isfinite(self.oracle.token_limit):
            norms = np.linalg.norm(X, axis=2, keepdims=True)
            border = BORDER * self.oracle.token_limit
            outside = (norms > border) | (spreads == spreads.max())[:, None, None]
            X *= np.where(outside, border / norms, 1.0)
        return X

    def unit(self, *sizes: float) -> float:
        """The unit of which tokens are multiples, see ``token_unit``.

        0 behind a normalisation: tokens are not what the black box is given.
        """
        return 0.0 if isfinite(self.oracle.token_limit) else token_unit(*sizes)

    @property
    def largest_point(self) -> float:
        """The norm of query tokens up to which those moved by calibrated differences fit."""
        most = MOST_OF_TOKENS * self.oracle.token_limit
        return sqrt(most**2 - self.delta_size**2) if isfinite(most) else most

    @property
    def error(self) -> float:
        """Size of the error of an effect, at most."""
        return max(self.total.noise * self.output_size, self.floor)

    def level(self, effects: NDArray, points: NDArray) -> float:
        """The rms error of effects (Q, e) at query tokens (Q, d)."""
        return self.total.level(effects + points @ self.total.value + self.total.bias)


def unit_rows(rng: np.random.Generator, n_rows: int, n_dims: int) -> NDArray[np.float64]:
    """Random rows (n_rows, n_dims) of norm one."""
    rows = rng.standard_normal((n_rows, n_dims))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
