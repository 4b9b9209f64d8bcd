"""error_trend: whether the errors of a layer over one step grow along the sequences.

A forecast goes on where the sequences end.  If errors are larger there than before, their mean
over all positions is too small for what follows, and what the layer learned may not hold there.
The errors of each sequence are cut in two halves, and these in blocks of neighbours, which need
not be independent.  Errors grow if the logarithms of the mean squares of blocks rise along the
sequences, by a line of least squares: a single burst in one of them is no trend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

# Fewer blocks in a half say nothing of how far their mean can be off; few of one sequence are long,
# and hardly depend on each other where errors stay alike for many steps.
LEAST_BLOCKS, MOST_BLOCKS = 4, 6

# Errors grow if chance shows such a rise in so few forecasts only, and by more than this factor.
CHANCE, LEAST_GROWTH = 1e-3, 1.2

# Mean squares of blocks, in that of all, below which nothing but rounding is seen.
ROUNDING = 1e-24


@dataclass(frozen=True)
class ErrorTrend:
    """Root mean squares of one-step errors in both halves, in units of the spread.

    overall, earlier, later : of all of them, of the first and of the second half, (e,)
    grows : in which coordinates they grow by more than chance, (e,)
    length : how many steps a half has in the mean
    """

    overall: NDArray[np.float64]
    earlier: NDArray[np.float64]
    later: NDArray[np.float64]
    grows: NDArray[np.bool_]
    length: float

    def levels(self, n_steps: int) -> NDArray[np.float64]:
        """Factors (n_steps, e) from errors of all positions to those of the steps that follow.

        Of errors that grow: on the straight line through the middles of both halves.  Of others
        the later ones count if they are the larger; never fewer than all.
        """
        known = np.where(self.overall > 0.0, self.overall, 1.0)
        ahead = 0.5 + np.arange(1, n_steps + 1)[:, None] / self.length
        rise = np.where(self.grows, self.later - self.earlier, 0.0)
        wanted = np.maximum(self.overall, self.later) + ahead * rise
        return np.where(self.overall > 0.0, wanted / known, 1.0)

    @property
    def sentence(self) -> str:
        """What is doubtful about going on; empty where errors do not grow."""
        if not self.grows.any():
            return ""
        ratios = np.where(self.grows, self.later / np.maximum(self.earlier, 1e-300), 0.0)
        worst = int(np.argmax(ratios))
        which = "" if len(ratios) == 1 else f" of coordinate {worst}"
        return (
            f"The errors{which} over one step grow along the sequences, from "
            f"{self.earlier[worst]:.2g} to {self.later[worst]:.2g} standard deviations, so that "
            "those of a forecast beyond them are in doubt. Where they grow with the tokens, "
            "forecast logarithms of these."
        )


def error_trend(errors: list[NDArray[np.float64]], spread: NDArray[np.float64]) -> ErrorTrend:
    """The trend of errors (k, e) of some sequences, in the order of their tokens."""
    squares = [(each / spread) ** 2 for each in errors]
    overall = np.concatenate(squares).mean(axis=0)
    long = [each for each in squares if len(each) >= 2]
    halves = [len(each) // 2 for each in long]
    first = [each[:half] for each, half in zip(long, halves, strict=True)]
    # Of an odd number the one in the middle belongs to neither.
    last = [each[-half:] for each, half in zip(long, halves, strict=True)]
    blocks = [_block_means(first), _block_means(last)]
    if min(map(len, blocks)) < LEAST_BLOCKS:
        size, never = np.sqrt(overall), np.zeros(len(spread), dtype=bool)
        return ErrorTrend(size, size, size, never, 1.0)
    earlier, later = (np.concatenate(each).mean(axis=0) for each in (first, last))
    places = np.concatenate([_places(first), 0.5 + _places(last)])
    grows = (later > LEAST_GROWTH**2 * earlier) & _rises(places, np.concatenate(blocks))
    return ErrorTrend(
        np.sqrt(overall), np.sqrt(earlier), np.sqrt(later), grows, float(np.mean(halves))
    )


def _n_blocks(length: int) -> int:
    return min(MOST_BLOCKS, max(1, round(np.sqrt(length))))


def _block_means(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Means (blocks, e) over neighbours, of sqrt(k) blocks of each part (k, e) at most."""
    means = [
        block.mean(axis=0) for part in parts for block in np.array_split(part, _n_blocks(len(part)))
    ]
    return np.array(means)


def _places(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Where the blocks of a half stand, from 0 to 0.5."""
    counts = [_n_blocks(len(part)) for part in parts]
    return np.concatenate([(np.arange(count) + 0.5) / (2 * count) for count in counts])


def _rises(places: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.bool_]:
    """In which coordinates a line through the logarithms of means (blocks, e) rises."""
    largest = means.max(axis=0)
    units = np.where(largest > 0.0, largest, 1.0)
    logs = np.log(np.maximum(means / units, ROUNDING))
    logs, x = logs - logs.mean(axis=0), places - places.mean()
    slopes = x @ logs / (x @ x)
    freedom = len(x) - 2
    noise = np.sum((logs - x[:, None] * slopes) ** 2, axis=0) / freedom / (x @ x)
    # The upper quantile of Student's t, which is symmetric.
    limit = -float(stdtrit(freedom, CHANCE / len(slopes)))
    return np.asarray(slopes > limit * np.sqrt(noise))
