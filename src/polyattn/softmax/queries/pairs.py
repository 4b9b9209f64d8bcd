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

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Oracle, SumOfValues
from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.precision import ROUGH

# Random pairs that are tried at each size.
N_TRIALS = 4

# tanh(z/2) / (z/2) averaged over the trials is about this at the size that is chosen.
GROWTH = 0.8

# Sizes stay within 2**-LIMIT .. 2**LIMIT; where attention has no effect there, larger ones are
# tried in steps of this factor, as far as products of two of them fit float64.
LIMIT, FAR_STEP, FAR_LIMIT = 40, 20, 500


@dataclass
class Pairs:
    """The black box, queried with pairs of tokens; ``calibrate`` sets the sizes of these.

    rng : decides all tokens
    floor : error of an effect beyond the noise, as measured where there should be none
    point_size, delta_size : norms of query tokens and differences at which logits are of order one
    flat : whether attention has no effect on any token that was tried
    largest_tried : exponent of the largest size without effect, where larger ones are not answered
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
        return np.concatenate([points, np.ones((len(points), int(self.bias)))], axis=1)

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
        return outputs - points @ self.total.value - self.total.bias

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


def calibrate(pairs: Pairs) -> None:
    """Set the sizes that keep logits of order one.  Cost: 8 queries per size that is tried."""
    points, deltas = (unit_rows(pairs.rng, N_TRIALS, pairs.n_dims) for _ in range(2))
    twice = np.concatenate([deltas, deltas])

    def slope(point: float, delta: float) -> tuple[float, bool]:
        """The part of the effect that is odd in x', per sizes, and whether it exceeds the noise."""
        pairs.output_size = 0.0
        effects = pairs.effect(np.concatenate([point * points, -point * points]), delta * twice)
        odd = float(np.linalg.norm(effects[:N_TRIALS] - effects[N_TRIALS:])) / 2
        noise = 20 * pairs.error
        if pairs.total.noise > ROUGH:
            # Room for more would leave saturated sizes alone, where answers have few digits.
            noise = 5 * pairs.level(effects, np.concatenate([point * points, -point * points]))
        return odd / point / delta / delta, odd > noise * np.sqrt(effects.size)

    together = _largest_linear(lambda size: slope(size, size))
    if together is not None:
        alone = _largest_linear(lambda size: slope(size, together), start=together) or together
        pairs.output_size = 0.0
        # What is left where nothing should be: a token beside its copy.
        pairs.floor = float(np.abs(pairs.effect(2 * alone * points, np.zeros(pairs.n_dims))).max())
        pairs.point_size, pairs.delta_size = alone, together
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
    slope: Callable[[float], tuple[float, bool]], start: float = 1.0
) -> float | None:
    """The largest size, within a factor of two, at which the slope is still that of small sizes.

    The slope falls with the size.  A slope below GROWTH of the one at a quarter of the size, or one
    that cannot be seen although smaller sizes show it, is saturated.
    """
    # Too small sizes show nothing, nor do wholly saturated ones.
    exponents = (exponent for far in range(0, LIMIT, 4) for exponent in sorted({-far, far}))
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
    while size < start * 2.0**LIMIT:
        larger, _ = slope(2 * size)
        if larger < GROWTH**0.5 * value:
            break
        size, value = 2 * size, max(value, larger)
    return size
