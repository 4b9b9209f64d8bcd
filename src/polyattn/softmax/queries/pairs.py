"""Sequences of two tokens, possibly repeated: what they show of the heads, and of which size.

For a query token x', r copies of x' + delta and s copies of x' (the last one is the query),

    effect = F - x' S - b = sum_i sigmoid(z_i + log(r / s)) c_i,
    z_i = [x', 1] A_i delta,      c_i = delta V_i,      sum_i c_i = delta S,

where A_i (D, d) is attn without the invisible column, D = d + 1 with biases and d without.

As long as the part of the effect that is odd in x' grows in proportion to |x'| |delta|, no head
that matters is saturated.  The largest such sizes are found first: both together, then |x'| alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Oracle, SumOfValues
from polyattn.softmax.queries.outcomes import Stopped

# Random pairs that are tried at each size.
N_TRIALS = 4

# tanh(z/2) / (z/2) averaged over the trials is about this at the size that is chosen.
GROWTH = 0.8

# Sizes stay within 2**-LIMIT .. 2**LIMIT; where attention has no effect there, larger ones are
# tried in steps of this factor, as far as products of two of them fit float64.
LIMIT, FAR_STEP, FAR_LIMIT = 40, 20, 500

# Where tokens have a largest norm: what query tokens have of it at most, and what the two sizes
# have.  Query tokens of 1.5 sizes and differences of 1.1 (1.6 where noise matters) fit, at an angle
# of at least 90 degrees.
MOST_OF_POINTS, MOST_OF_POINT, MOST_OF_DELTA, MOST_WITH_NOISE = 0.75, 0.5, 0.58, 0.4

# Noise above this is worth more queries, and wider differences.
NOISY = 1e-12

# The norm of tokens at the border of what is answered, relative to the largest one.
BORDER = 1 - 2.0**-20


@dataclass
class Pairs:
    """The black box, queried with pairs of tokens; ``calibrate`` sets the sizes of these.

    rng : decides all tokens
    floor : error of an effect beyond the noise, as measured where there should be none
    point_size, delta_size : norms of query tokens and differences at which logits are of order one
    flat : whether attention has no effect on any token that was tried
    largest_tried : exponent of the largest size without effect, where larger ones are not answered
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
        norm = min(size * self.point_size, MOST_OF_POINTS * self.oracle.largest)
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
        if not isfinite(self.oracle.largest):
            return self.forward_effect(points, deltas, moved, resting)
        effects = np.empty((len(points), self.oracle.n_outputs))
        back = np.einsum("qd,qd->q", points, deltas) > 0
        if not np.all(back):
            effects[~back] = self.forward_effect(points[~back], deltas[~back], moved, resting)
        if np.any(back):
            left = self.forward_effect(points[back], -deltas[back], resting, moved)
            effects[back] = left + deltas[back] @ self.total.value
        return effects

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
        if isfinite(self.oracle.largest):
            norms = np.linalg.norm(X, axis=2, keepdims=True)
            border = BORDER * self.oracle.largest
            outside = (norms > border) | (spreads == spreads.max())[:, None, None]
            X *= np.where(outside, border / norms, 1.0)
        return X

    @property
    def error(self) -> float:
        """Size of the error of an effect."""
        return max(self.total.noise * self.output_size, self.floor)


def unit_rows(rng: np.random.Generator, n_rows: int, n_dims: int) -> NDArray[np.float64]:
    """Random rows (n_rows, n_dims) of norm one."""
    rows = rng.standard_normal((n_rows, n_dims))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def calibrate(pairs: Pairs) -> None:
    """Set the sizes that keep logits of order one.  Cost: 8 queries per size that is tried."""
    points, deltas = (unit_rows(pairs.rng, N_TRIALS, pairs.n_dims) for _ in range(2))
    twice = np.concatenate([deltas, deltas])

    def slope(point: float, delta: float) -> tuple[float, bool]:
        """The part of the effect that is odd in x', per sizes, and whether it exceeds the noise."""
        pairs.output_size = 0.0
        effects = pairs.effect(np.concatenate([point * points, -point * points]), delta * twice)
        odd = float(np.linalg.norm(effects[:N_TRIALS] - effects[N_TRIALS:])) / 2
        return odd / point / delta / delta, odd > 20 * (pairs.error * np.sqrt(effects.size))

    ratio, largest = pairs.ratio, pairs.oracle.largest
    most = MOST_OF_POINT * largest
    together = _largest_linear(lambda size: slope(size / ratio, size * ratio), most=most)
    if together is not None:
        point, delta = together / ratio, together * ratio
        if ratio == 1.0:
            point = _largest_linear(lambda size: slope(size, delta), point, most) or point
        if isfinite(most):
            most = (MOST_WITH_NOISE if pairs.total.noise > NOISY else MOST_OF_DELTA) * largest
            delta = _largest_linear(lambda size: slope(point, size), delta, most) or delta
        pairs.output_size, still = 0.0, np.zeros(pairs.n_dims)
        # What is left where nothing should be: a token beside its copy.
        twice_as_large = min(2 * point, MOST_OF_POINTS * largest) * points
        pairs.floor = float(np.abs(pairs.effect(twice_as_large, still)).max())
        pairs.point_size, pairs.delta_size = point, delta
        return
    if isfinite(most):
        pairs.point_size, pairs.delta_size, pairs.flat = most, most, True
        return
    # Attention has no effect up to 2**LIMIT; it is flat if it has none beyond, either.
    dtype, tried = pairs.oracle.output_dtype, LIMIT
    most = min(FAR_LIMIT, np.finfo(dtype).maxexp // 2) if dtype.kind == "f" else FAR_LIMIT
    for exponent in range(LIMIT + FAR_STEP, most + 1, FAR_STEP):
        try:
            if slope(2.0**exponent, 2.0**exponent)[1]:
                pairs.point_size = pairs.delta_size = 2.0**exponent
                return
        except Stopped as stop:
            if stop.outcome.name != "oracle_failed":
                raise
            pairs.largest_tried = tried
            break
        tried = exponent
    pairs.flat = True


def _largest_linear(
    slope: Callable[[float], tuple[float, bool]], start: float = 1.0, most: float = inf
) -> float | None:
    """The largest size, within a factor of two, at which the slope is still that of small sizes.

    None is tried above ``most``.

    The slope falls with the size.  A slope below GROWTH of the one at a quarter of the size, or one
    that cannot be seen although smaller sizes show it, is saturated.
    """
    # Too small sizes show nothing, nor do wholly saturated ones.
    if isfinite(most):
        start = most
    exponents = (exponent for far in range(0, LIMIT, 4) for exponent in sorted({-far, far}))
    exponents = (exponent for exponent in exponents if start * 2.0**exponent <= most)
    tried = ((start * 2.0**exponent, *slope(start * 2.0**exponent)) for exponent in exponents)
    found = next(((size, value) for size, value, visible in tried if visible), None)
    if found is None:
        return None
    size, value = found
    while True:
        smaller, still_visible = slope(size / 4)
        if not still_visible or value >= GROWTH * smaller:
            break
        size, value = size / 4, smaller
        if size < start * 2.0**-LIMIT:
            raise Stopped("saturated", "Attention is saturated at every size that was tried.")
    while size < start * 2.0**LIMIT and 2 * size <= most:
        larger, _ = slope(2 * size)
        if larger < GROWTH**0.5 * value:
            break
        size, value = 2 * size, max(value, larger)
    return size
