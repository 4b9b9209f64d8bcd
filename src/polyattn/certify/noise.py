"""What noise on the targets leaves to the least risk: [yau2024: Lemma E.2], corrected.

Targets y = F*(X) + zeta with independent zeta of mean zero.  Least squares takes out of the noise
what the features can follow, its projection Pi zeta of rank r, so that the least risk of any layer
is mean ||zeta||^2 - ||Pi zeta||^2 / N.  With probability 1 - delta, t = log 1/delta,

    ||zeta|| <= b          ||Pi zeta||  <=  b (sqrt(r) + sqrt(8 t))
    Gaussian, sigma        N (least risk)  >=  sigma^2 (k - 2 sqrt(k t)),   k = (N - r) e

(docs/derivations/bounds.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyattn.errors import InvalidInput, require_confidence, require_integer, require_number

# More than square roots and logarithms are wrong by.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Noise:
    """What is known of the noise: its power and a bound, or the deviation of Gaussian noise."""

    power: float | None = None
    bound: float | None = None
    deviation: float | None = None
    n_outputs: int | None = None
    confidence: float = 0.99

    @property
    def is_given(self) -> bool:
        """Whether anything is known of it."""
        given = (self.power, self.bound, self.deviation, self.n_outputs)
        return any(each is not None for each in given)

    def least_risk(self, dimension: int, n_rows: int) -> float:
        """A lower bound of the least risk, with probability ``confidence``.

        dimension : at least the rank of the features of the data
        n_rows : the number of predicted positions, each with noise of its own
        """
        chance = 1.0 - require_confidence(self.confidence)
        if self.deviation is None:
            return max(0.0, self._of_bounded(-math.log(chance), dimension, n_rows))
        return max(0.0, self._of_gaussian(-math.log(chance), dimension, n_rows))

    def _of_bounded(self, t: float, dimension: int, n_rows: int) -> float:
        if self.power is None or self.bound is None:
            raise InvalidInput(
                "bounded noise needs both noise_power, the mean of its squared norm over the data, "
                "and noise_bound, which its norm never exceeds; Gaussian noise is given as noise."
            )
        power = require_number("noise_power", self.power)
        bound = require_number("noise_bound", self.bound)
        if power > bound * bound * (1.0 + ROUNDING):
            raise InvalidInput(
                "noise_power is a mean of squares, and at most the square of noise_bound; got "
                f"{self.power!r} and {self.bound!r}."
            )
        followed = bound * (math.sqrt(dimension) + math.sqrt(8.0 * t))
        return power - (1.0 + ROUNDING) * followed * followed / n_rows

    def _of_gaussian(self, t: float, dimension: int, n_rows: int) -> float:
        if self.power is not None or self.bound is not None:
            raise InvalidInput(
                "give either noise, the deviation of Gaussian noise, or noise_power and "
                "noise_bound of bounded noise."
            )
        deviation = require_number("noise", self.deviation)
        if self.n_outputs is None:
            raise InvalidInput(
                f"noise={deviation:g}, the deviation of Gaussian noise on each output, needs "
                "n_outputs beside it: on how many outputs it is. Give n_outputs, the columns of Y."
            )
        outputs = require_integer("n_outputs", self.n_outputs)
        freedom = max(0, n_rows - dimension) * outputs
        left = freedom - 2.0 * math.sqrt(freedom * t) * (1.0 + ROUNDING)
        return (1.0 - ROUNDING) * deviation * deviation * left / n_rows
