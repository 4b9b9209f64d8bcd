"""Sizes of query tokens and differences at which the logits are of order one.

Attention acts through tanh(z / 2) / 2, z bilinear in the query token and the difference.  As long
as the part of the effect that is odd in x' grows in proportion to |x'| |delta|, no head that
matters is saturated.  The largest such sizes are sought: first both together, then |x'| alone,
since with large biases delta must stay small while x' need not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Stopped
from polyattn.softmax.queries.pairs import Pairs, unit_rows

# Random pairs that are tried at each size.
N_TRIALS = 4

# tanh(z/2) / (z/2) averaged over the trials is about this at the size that is chosen.
GROWTH = 0.8

# Sizes stay within 2**-LIMIT .. 2**LIMIT; where attention has no effect there, larger ones are
# tried in steps of this factor, as far as products of two of them fit float64.
LIMIT, FAR_STEP, FAR_LIMIT = 40, 20, 500


@dataclass(frozen=True)
class Sizes:
    """Norms of query tokens and of differences.

    flat : whether attention has no effect on any token that was tried
    largest_tried : the exponent of the largest size at which attention had no effect
    complete : whether none larger could have an effect that the answers can hold
    """

    point: float
    delta: float
    flat: bool = False
    largest_tried: int = LIMIT
    complete: bool = True

    @property
    def extreme(self) -> bool:
        """Whether attention has an effect only on tokens so large that the units should change."""
        return not self.flat and self.delta >= 2.0**LIMIT


def calibrate(pairs: Pairs) -> Sizes:
    """Sizes that keep logits of order one; ``pairs`` uses them from now on.

    Cost: 8 queries per size that is tried.
    """
    points, deltas = (unit_rows(pairs.rng, N_TRIALS, pairs.n_dims) for _ in range(2))

    def both(size: float) -> tuple[float, bool]:
        odd, visible = _odd_part(pairs, size * points, size * deltas)
        return odd / size / size / size, visible

    together = _largest_linear(both)
    if together is None:
        return _beyond(pairs, both)

    def point_alone(size: float) -> tuple[float, bool]:
        odd, visible = _odd_part(pairs, size * points, together * deltas)
        return odd / size, visible

    alone = _largest_linear(point_alone, start=together) or together
    pairs.output_size = 0.0
    pairs.measure_floor(2 * alone * points)
    pairs.point_size, pairs.delta_size = alone, together
    return Sizes(alone, together)


def _beyond(pairs: Pairs, slope: Callable[[float], tuple[float, bool]]) -> Sizes:
    """Sizes beyond 2**LIMIT at which attention has an effect; flat where none has."""
    dtype = pairs.oracle.output_dtype
    range_of_answers = np.finfo(dtype).maxexp if dtype.kind == "f" else 2 * FAR_LIMIT
    most = min(FAR_LIMIT, range_of_answers // 2)
    tried = LIMIT
    for exponent in range(LIMIT + FAR_STEP, most + 1, FAR_STEP):
        try:
            _, visible = slope(2.0**exponent)
        except Stopped as stop:
            if stop.name != "oracle_failed":
                raise
            return Sizes(1.0, 1.0, flat=True, largest_tried=tried, complete=False)
        if visible:
            pairs.point_size = pairs.delta_size = 2.0**exponent
            return Sizes(2.0**exponent, 2.0**exponent)
        tried = exponent
    return Sizes(1.0, 1.0, flat=True, largest_tried=tried)


def _odd_part(pairs: Pairs, points: NDArray, deltas: NDArray) -> tuple[float, bool]:
    """Norm of the part of the effect that is odd in x', and whether it exceeds the noise."""
    pairs.output_size = 0.0
    effects = pairs.effect(np.concatenate([points, -points]), np.concatenate([deltas, deltas]))
    odd = float(np.linalg.norm(effects[: len(points)] - effects[len(points) :])) / 2
    floor = pairs.error * np.sqrt(effects.size)
    return odd, odd > 20 * floor


def _largest_linear(
    slope: Callable[[float], tuple[float, bool]], start: float = 1.0
) -> float | None:
    """The largest size, within a factor of two, at which the slope is still that of small sizes.

    The slope falls with the size.  A slope below GROWTH of the one at a quarter of the size, or one
    that cannot be seen although smaller sizes show it, is saturated.
    """
    found = _first_visible(slope, start)
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


def _first_visible(
    slope: Callable[[float], tuple[float, bool]], start: float
) -> tuple[float, float] | None:
    """A size with a visible slope: too small sizes show nothing, nor do wholly saturated ones."""
    for exponent in range(0, LIMIT, 4):
        for size in sorted({start * 2.0**-exponent, start * 2.0**exponent}):
            value, visible = slope(size)
            if visible:
                return size, value
    return None
