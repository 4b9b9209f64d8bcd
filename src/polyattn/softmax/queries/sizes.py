"""Sizes of query tokens and differences at which logits are of order one.

As long as the part of the effect that is odd in x' grows in proportion to |x'| |delta|, no head
that matters is saturated.  The largest such sizes are found first: both together, then |x'| alone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import TypeAlias

import numpy as np

from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.pairs import MOST_OF_POINTS, NOISY, Pairs, unit_rows
from polyattn.softmax.queries.precision import ROUGH

# Random pairs that are tried at each size.
N_TRIALS = 4

# tanh(z/2) / (z/2) averaged over the trials is about this at the size that is chosen.
GROWTH = 0.8

# Sizes stay within 2**-LIMIT .. 2**LIMIT; where attention has no effect there, larger ones are
# tried in steps of this factor, as far as products of two of them fit float64.
LIMIT, FAR_STEP, FAR_LIMIT = 40, 20, 500

# Where tokens have a largest norm, what the two sizes have of it at most: query tokens of 1.5 sizes
# and differences of 1.1 (1.6 where noise matters) then fit, at an angle of at least 90 degrees.
MOST_OF_POINT, MOST_OF_DELTA, MOST_WITH_NOISE = 0.5, 0.58, 0.4

# Of sizes of query tokens and differences: the odd part of effects, relative to them, and whether
# it exceeds the noise.
Slope: TypeAlias = Callable[[float, float], tuple[float, bool]]


def calibrate(pairs: Pairs) -> None:
    """Set the sizes that keep logits of order one.  Cost: 8 queries per size that is tried."""
    points, deltas = (unit_rows(pairs.rng, N_TRIALS, pairs.n_dims) for _ in range(2))
    twice = np.concatenate([deltas, deltas])

    def slope(point: float, delta: float) -> tuple[float, bool]:
        pairs.output_size = 0.0
        effects = pairs.effect(np.concatenate([point * points, -point * points]), delta * twice)
        odd = float(np.linalg.norm(effects[:N_TRIALS] - effects[N_TRIALS:])) / 2
        noise = 20 * pairs.error
        if pairs.total.noise > ROUGH:
            # Room for more would leave saturated sizes alone, where answers have few digits.
            noise = 5 * pairs.level(effects, np.concatenate([point * points, -point * points]))
        return odd / point / delta / delta, odd > noise * np.sqrt(effects.size)

    limited = isfinite(pairs.oracle.token_limit)
    sizes = _limited_sizes(pairs, slope) if limited else _sizes(pairs.ratio, slope)
    if sizes is None and limited:
        pairs.point_size = pairs.delta_size = MOST_OF_POINT * pairs.oracle.token_limit
        pairs.flat = True
    elif sizes is None:
        _far_sizes(pairs, slope)
    else:
        point, delta = sizes
        pairs.output_size, still = 0.0, np.zeros(pairs.n_dims)
        # What is left where nothing should be: a token beside its copy.
        size = min(2 * point, MOST_OF_POINTS * pairs.oracle.token_limit)
        pairs.floor = float(np.abs(pairs.effect(size * points, still)).max())
        pairs.point_size, pairs.delta_size = point, delta


def _sizes(ratio: float, slope: Slope) -> tuple[float, float] | None:
    """Sizes of query tokens and differences; None when attention has no effect up to 2**LIMIT."""
    together = _largest_linear(lambda size: slope(size / ratio, size * ratio))
    if together is None or ratio != 1.0:
        return None if together is None else (together / ratio, together * ratio)
    alone = _largest_linear(lambda size: slope(size, together), start=together)
    return alone or together, together


def _limited_sizes(pairs: Pairs, slope: Slope) -> tuple[float, float] | None:
    """The same below the largest norm of a token."""
    largest = pairs.oracle.token_limit
    if pairs.parts is not None:
        most, delta = (part * largest for part in pairs.parts)
        point = _largest_linear(lambda size: slope(size, delta), most=most)
        return None if point is None else (point, delta)
    most = MOST_OF_POINT * largest
    together = _largest_linear(lambda size: slope(size, size), most=most)
    if together is None:
        return None
    point = _largest_linear(lambda size: slope(size, together), most=most) or together
    most = (MOST_WITH_NOISE if pairs.total.noise > NOISY else MOST_OF_DELTA) * largest
    return point, _largest_linear(lambda size: slope(point, size), most=most) or together


def _far_sizes(pairs: Pairs, slope: Slope) -> None:
    """Sizes beyond 2**LIMIT; attention is flat if it has no effect there, either."""
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
