"""The spread of targets around their mean: what a fit is held against.

Of weights w and targets y with the mean  mu = sum w y / sum w,  kept for each output, the least
squared error of any constant is

    sum w (y - mu)^2

Taken as  sum w y^2 - (sum w) mu^2  it would lose every digit where targets are large beside their
spread.  So means and centred sums are kept and merged (Chan, Golub, LeVeque 1983, "Algorithms for
computing the sample variance"): of two sets of weights a and b

    spread  =  spread_a + spread_b + (a b / (a + b)) (mu_a - mu_b)^2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.files.fields import Check, array
from polyattn.numerics.arrays import even_ranges

if TYPE_CHECKING:
    from polyattn.stats.rows import Rows

# Numbers that are looked at together.
READ_NUMBERS = 1 << 18

# Of a difference of two spreads at least this share must be left: half of its digits.
LEAST_SHARE = 2.0**-26

# Scaled targets are far below this, the square of which is far inside float64.
LARGEST_MEAN = 2.0**125

ARRAYS = ("target_means", "target_spreads")


@dataclass(frozen=True, eq=False)
class TargetSpread:
    """Means of targets (e,) and sums of their squared distances from these, (e,), both scaled.

    weight : the sum of the weights of all rows
    """

    weight: float
    means: NDArray[np.float64]
    spreads: NDArray[np.float64]

    @classmethod
    def empty(cls, n_outputs: int) -> TargetSpread:
        """That of no rows."""
        return cls(0.0, np.zeros(n_outputs), np.zeros(n_outputs))

    @classmethod
    def of(cls, rows: Rows) -> TargetSpread:
        """That of rows, in their units: one pass over the targets."""
        if not rows.n_outputs:
            return cls.empty(0)
        return cls.of_parts(rows.scaled_targets, rows.n_rows, rows.n_outputs, rows.row_weights)

    @classmethod
    def of_parts(
        cls,
        read: Callable[[int, int], NDArray],
        n_rows: int,
        n_outputs: int,
        weights: NDArray | None,
    ) -> TargetSpread:
        """That of targets (e, stop - first) that ``read(first, stop)`` gives, weights (n_rows,)."""
        total = cls.empty(n_outputs)
        for first, stop in even_ranges(n_rows, max(1, READ_NUMBERS // n_outputs)):
            some = None if weights is None else weights[first:stop]
            total = total.with_more(cls.of_targets(read(first, stop), some))
        return total

    @classmethod
    def of_targets(cls, targets: NDArray, weights: NDArray | None = None) -> TargetSpread:
        """That of targets (e, rows) with these weights (rows,)."""
        if weights is None:
            weights = np.ones(targets.shape[1])
        total = float(weights.sum())
        if total == 0.0:
            return cls.empty(len(targets))
        # The largest share is at most one: products with targets stay in their range.
        shares = weights / total
        means = targets @ shares
        # The second round takes out what rounding left; of equal targets it leaves nothing.
        means = means + (targets - means[:, None]) @ shares
        centred = targets - means[:, None]
        rest = centred @ shares
        spreads = total * np.maximum(centred**2 @ shares - rest**2, 0.0)
        return cls(total, means, spreads)

    def with_more(self, other: TargetSpread) -> TargetSpread:
        """That of both, the same in either order."""
        if self.weight == 0.0 or other.weight == 0.0:
            return other if self.weight == 0.0 else self
        light, heavy = sorted((self, other), key=lambda each: each.weight)
        whole, apart = light.weight + heavy.weight, light.means - heavy.means
        # From the heavier mean on: of equal means it is that mean, to the last bit.
        means = heavy.means + apart * (light.weight / whole)
        if light.weight == heavy.weight:
            means = (light.means + heavy.means) / 2
        between = apart**2 * (light.weight * (heavy.weight / whole))
        return TargetSpread(whole, means, self.spreads + other.spreads + between)

    def without(self, part: TargetSpread, weight: float) -> TargetSpread | None:
        """That of the others, of this weight; None where too few digits of it would be left."""
        if not weight > 0.0 or part.weight == 0.0:
            return self if part.weight == 0.0 else None
        apart = self.means - part.means
        means = self.means + apart * (part.weight / weight)
        between = apart**2 * (part.weight * (self.weight / weight))
        spreads = self.spreads - part.spreads - between
        if np.any(spreads < LEAST_SHARE * self.spreads):
            return None
        return TargetSpread(weight, means, spreads)

    def down_weighed(self, factor: float) -> TargetSpread:
        """That of the same rows, all weights multiplied by a factor."""
        return TargetSpread(self.weight * factor, self.means, self.spreads * factor)

    def rescaled(self, targets: int) -> TargetSpread:
        """That of the same targets, multiplied by 2**targets."""
        means, spreads = np.ldexp(self.means, targets), np.ldexp(self.spreads, 2 * targets)
        return TargetSpread(self.weight, means, spreads)

    @property
    def risk(self) -> float:
        """The weighted mean over rows of ||y - mu||^2, scaled."""
        return float(np.sum(self.spreads)) / self.weight if self.weight else 0.0

    @property
    def power(self) -> float:
        """The weighted mean over rows of ||y||^2, scaled: the risk of predicting zero."""
        return self.risk + float(np.sum(self.means**2))

    @staticmethod
    def stored(n_outputs: int, largest: float) -> dict[str, Check]:
        """The checks of the arrays that a file may hold; no sum of squares exceeds ``largest``."""
        return {
            "target_means": array((n_outputs,), least=-LARGEST_MEAN, most=LARGEST_MEAN),
            "target_spreads": array((n_outputs,), least=0.0, most=largest),
        }

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The content by name; nothing where there are no targets."""
        if not len(self.means):
            return {}
        return dict(zip(ARRAYS, (self.means, self.spreads), strict=True))

    @classmethod
    def restored(
        cls, arrays: dict[str, NDArray], weight: float, n_outputs: int
    ) -> TargetSpread | None:
        """The content of a file; None where it is of an older release, which kept no means."""
        if n_outputs == 0 or weight == 0.0:
            return cls(weight, np.zeros(n_outputs), np.zeros(n_outputs))
        if any(name not in arrays for name in ARRAYS):
            return None
        return cls(weight, *(np.array(arrays[name]) for name in ARRAYS))
