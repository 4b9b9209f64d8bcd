"""Mean, standard deviation and range of each coordinate of tokens, of parts that are merged.

Squares of numbers beyond 1e±154 leave float64: every coordinate is divided by a power of two, which
is exact, before its deviations are squared, and deviations are kept as roots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.numerics.arrays import pieces
from polyattn.numerics.scaling import EPS

Array = NDArray[np.float64]

# A coordinate whose numbers differ by so many roundings of the largest is constant.
CONSTANT_ROUNDINGS = 16


@dataclass(frozen=True, eq=False)
class CoordinateSums:
    """What is known of some tokens, coordinate by coordinate.

    weight : the sum of the weights of tokens
    mean, std : (d,), weighted; the deviation is that of the tokens themselves, divided by N
    low, high : (d,), the smallest and the largest number
    n_tokens : tokens of positive weight; others are as good as absent
    """

    weight: float
    mean: Array
    std: Array
    low: Array
    high: Array
    n_tokens: int

    @classmethod
    def of(cls, values: Any, weights: Array | None = None) -> CoordinateSums | None:
        """Of tokens (n, d), one weight each; None where no weight is positive.

        Cost: two looks at each number, in blocks that fit the cache.
        """
        found: CoordinateSums | None = None
        start = 0
        for block in pieces(values):
            own = None if weights is None else weights[start : start + len(block)]
            start += len(block)
            more = _of_block(block.astype(np.float64), own)
            found = more if found is None else found.merged(more)
        return found

    def merged(self, other: CoordinateSums | None) -> CoordinateSums:
        """Of the tokens of both, up to rounding as if they had been looked at together."""
        if other is None:
            return self
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        exponents = _exponents(low, high)
        weight = self.weight + other.weight
        if not np.isfinite(weight):
            raise OutOfRange(
                "the sum of sample_weight over all tokens does not fit float64; divide the weights "
                "by a constant."
            )
        own, share = self.weight / weight, other.weight / weight
        means = [np.ldexp(each.mean, -exponents) for each in (self, other)]
        stds = [np.ldexp(each.std, -exponents) for each in (self, other)]
        apart = means[1] - means[0]
        power = own * stds[0] ** 2 + share * stds[1] ** 2 + own * share * apart**2
        return CoordinateSums(
            weight,
            np.clip(np.ldexp(means[0] + share * apart, exponents), low, high),
            np.ldexp(np.sqrt(power), exponents),
            low,
            high,
            self.n_tokens + other.n_tokens,
        )

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """(d,) Whether all numbers of a coordinate are the same, up to rounding."""
        exponents = _exponents(self.low, self.high)
        apart = np.ldexp(self.high, -exponents) - np.ldexp(self.low, -exponents)
        return np.asarray(apart <= CONSTANT_ROUNDINGS * EPS)


def _of_block(block: Array, weights: Array | None) -> CoordinateSums | None:
    if weights is not None:
        counted = weights > 0
        block, weights = block[counted], weights[counted]
    if not len(block):
        return None
    low, high = block.min(axis=0), block.max(axis=0)
    exponents = _exponents(low, high)
    total = float(len(block)) if weights is None else float(weights.sum())
    shares = np.full(len(block), 1.0 / total) if weights is None else weights / total
    # From the middle of the range, so that a large mean takes no digits from small deviations.
    scaled = np.ldexp(block, -exponents)
    middle = 0.5 * (np.ldexp(low, -exponents) + np.ldexp(high, -exponents))
    scaled -= middle
    mean = shares @ scaled
    scaled -= mean
    rest = shares @ scaled
    power = shares @ scaled**2 - rest**2
    return CoordinateSums(
        total,
        np.clip(np.ldexp(middle + (mean + rest), exponents), low, high),
        np.ldexp(np.sqrt(np.maximum(power, 0.0)), exponents),
        low,
        high,
        len(block),
    )


def _exponents(low: Array, high: Array) -> NDArray[np.intp]:
    """Powers of two that make the largest number of each coordinate lie between 1/2 and 1."""
    return np.asarray(np.frexp(np.maximum(np.abs(low), np.abs(high)))[1])
