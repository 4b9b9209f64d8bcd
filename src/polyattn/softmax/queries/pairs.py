"""Sequences of two tokens, possibly repeated: what they show of the heads.

For a query token x', r copies of x' + delta and s copies of x' (the last one is the query),

    effect = F - x' S - b = sum_i sigmoid(z_i + log(r / s)) c_i,
    z_i = [x', 1] A_i delta,      c_i = delta V_i,      sum_i c_i = delta S,

where A_i (D, d) is attn without the invisible column, D = d + 1 with biases and d without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Oracle


@dataclass
class Pairs:
    """The black box, queried with pairs of tokens.

    sum_value : array (d, e), S
    sum_bias : array (e,), b; zero without biases
    noise : relative error of an output
    rng : decides all tokens
    floor : error of an effect beyond the noise, as measured where there should be none
    point_size, delta_size : norms of query tokens and differences at which logits are of order
        one (see ``calibrate``)
    """

    oracle: Oracle
    bias: bool
    sum_value: NDArray[np.float64]
    sum_bias: NDArray[np.float64]
    noise: float
    rng: np.random.Generator
    output_size: float = 0.0
    floor: float = 0.0
    point_size: float = 1.0
    delta_size: float = 1.0

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return self.oracle.n_dims

    @property
    def n_rows(self) -> int:
        """D, the rows of attn that are visible."""
        return self.n_dims + self.bias

    def random_points(self, count: int, size: float = 1.0) -> NDArray[np.float64]:
        """Random query tokens (count, d) of norm ``size``, in calibrated sizes."""
        return size * self.point_size * unit_rows(self.rng, count, self.n_dims)

    def random_delta(self) -> NDArray[np.float64]:
        """A random difference (d,) of the calibrated norm."""
        return self.delta_size * unit_rows(self.rng, 1, self.n_dims)[0]

    def rows(self, points: NDArray) -> NDArray[np.float64]:
        """Query tokens (Q, d) as the rows (Q, D) that meet attn."""
        if not self.bias:
            return points
        return np.concatenate([points, np.ones((len(points), 1))], axis=1)

    def effect(
        self, points: NDArray, delta: NDArray, moved: int = 1, resting: int = 1
    ) -> NDArray[np.float64]:
        """Effects (Q, e) at query tokens (Q, d) of moving ``moved`` copies by delta (d,) or (Q, d).

        ``resting`` copies of the query token stay.  Cost: Q queries of moved + resting tokens.
        """
        X = np.repeat(points[:, None, :], moved + resting, axis=1)
        X[:, :moved] += np.broadcast_to(delta, points.shape)[:, None, :]
        outputs = self.oracle(X)
        self.output_size = max(self.output_size, float(np.abs(outputs).max()))
        return outputs - points @ self.sum_value - self.sum_bias

    def sum_of(self, delta: NDArray) -> NDArray[np.float64]:
        """sum_i c_i = delta S, known without a query."""
        return delta @ self.sum_value

    def measure_floor(self, points: NDArray) -> None:
        """Measure what is left where nothing should be: a token beside its copy."""
        self.floor = float(np.abs(self.effect(points, np.zeros(self.n_dims))).max())

    @property
    def error(self) -> float:
        """Size of the error of an effect."""
        return max(self.noise * self.output_size, self.floor)


def unit_rows(rng: np.random.Generator, n_rows: int, n_dims: int) -> NDArray[np.float64]:
    """Random rows (n_rows, n_dims) of norm one."""
    rows = rng.standard_normal((n_rows, n_dims))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
