"""What all statistics accumulate: counts, powers of two, what is in them, and what rounding did.

Sums add in any order.  Beside them stands what certificates need to know of their rounding:
``more_roundings``, the operations on the longest way into a sum that are no additions of rows, and
``subtracted`` (p + e,), what was added to sums of squares and taken out again, both counted: of
features, and of outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files import fields
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.form.stored import FORM_FIELDS
from polyattn.numerics import scaling
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sizes_in_words import data_sizes_in_words
from polyattn.sources.contents import Contents
from polyattn.stats.magnitudes import Magnitudes
from polyattn.stats.rows import Rows
from polyattn.stats.stored import ADDED, LARGEST, SHAPE
from polyattn.stats.target_spread import TargetSpread


class Accumulated(OfLayout, ABC):
    """Sums over rows in powers-of-two units, with counts; subclasses say which sums."""

    def __init__(self, layout: Layout, n_outputs: int) -> None:
        self.layout = layout
        self.n_outputs = n_outputs
        self.n_rows = 0
        self.n_positive = 0  # rows of positive weight
        self.n_sequences = 0
        self.total_weight = 0.0
        self.max_length = 0
        self.max_context_length = 0
        self.min_length: int | None = None  # unknown, or nothing was added yet
        # Powers of two taken out of tokens and targets (None: nothing but zeros so far).
        self.token_exponent: int | None = None
        self.target_exponent: int | None = None
        # Largest magnitudes so far of all columns, 1 for the constant, and of outputs (e,).
        self.coordinate_sizes = np.zeros(layout.n_columns)
        self.output_sizes = np.zeros(n_outputs)
        self.contents = Contents()
        self.down_weighted = False  # by ``forget``
        self.more_roundings = 0
        self.subtracted: NDArray[np.float64] | None = None
        self.subtracted_weight = 0.0
        # None: sums of older releases do not know the means of their targets.
        self.target_spread: TargetSpread | None = TargetSpread.empty(n_outputs)
        self._magnitudes = Magnitudes(layout)
        self._begin()

    @property
    def data_sizes(self) -> str:
        """What is in them: "300 sequences, 4 tokens of 50 coordinates"; older files know less."""
        longest = self.max_length or None
        return data_sizes_in_words(self.n_sequences, self.n_dims, self.min_length, longest)

    @property
    def n_roundings(self) -> int:
        """The additions and other operations on the longest way of a row into the sums."""
        return self.n_rows + self.more_roundings

    @property
    def cancellation(self) -> float:
        """By how much subtraction magnified relative errors of any sum of squares; at least 1."""
        powers = self._powers()
        seen = powers > 0
        return float(np.max(self._known_powers()[seen] / powers[seen], initial=1.0))

    def _powers(self) -> NDArray[np.float64]:
        """Sums of squares of features and outputs (p + e,), scaled."""
        return np.concatenate([self.scaled_feature_powers(), self._target_powers()])

    def _known_powers(self) -> NDArray[np.float64]:
        """The same of all that was ever added or taken out: what rounding is relative to."""
        return self._powers() + (0.0 if self.subtracted is None else self.subtracted)

    @single_threaded_blas()
    def add_rows(self, rows: Rows) -> Self:
        """Add rows that are validated already, and have no identity."""
        self._add_rows(rows)
        self.contents.unnamed = True
        return self

    def _add_rows(self, rows: Rows) -> None:
        self._join_units(rows)
        scaled = rows.with_exponents(self.token_exponent, self.target_exponent)
        self._accumulate(scaled)
        self._magnitudes.add(scaled, self.scaled_feature_powers())
        self._add_spread(TargetSpread.of(scaled))
        self._count(rows)

    @single_threaded_blas()
    def absorb(self, other: Self) -> None:
        """Add other statistics, which cannot be used afterwards; refused where they overlap.

        Cost: no memory beside that of both.
        """
        self._require_same_kind(other)
        self.contents.require_disjoint(other.contents)
        self._require_joinable(other)
        # What the other needs to know of this one, before this one changes.
        mine = (self.coordinate_sizes, self.output_sizes)
        self._join_units(other)
        other._take_units(*(np.maximum(a, b) for a, b in zip(mine, other._sizes, strict=True)))
        self._absorb(other)
        self._magnitudes.absorb(other._magnitudes)
        self._add_spread(other.target_spread)
        if other.subtracted is not None:
            self.subtracted = other.subtracted + (
                0.0 if self.subtracted is None else self.subtracted
            )
        self.subtracted_weight += other.subtracted_weight
        self.more_roundings = max(self.more_roundings, other.more_roundings)
        self.down_weighted |= other.down_weighted
        self._count(other)
        self.contents.absorb(other.contents)

    def _forget(self, factor: float) -> None:
        """Multiply all that is there by ``factor``: one rounding more, or two of a root."""
        if factor == 1.0 or self.n_rows == 0:
            return
        self._down_weigh(factor)
        self._magnitudes.down_weigh(factor)
        if self.target_spread is not None:
            self.target_spread = self.target_spread.down_weighed(factor)
        if self.subtracted is not None:
            self.subtracted = self.subtracted * factor
        self.subtracted_weight *= factor
        self.total_weight *= factor
        self.more_roundings += 2
        self.down_weighted = True

    def _require_same_kind(self, other: Self) -> None:
        different = [
            f"{key} {getattr(self, key)} and {getattr(other, key)}"
            for key in (*SHAPE, *FORM_FIELDS)
            if getattr(self, key) != getattr(other, key)
        ]
        if different:
            raise InvalidInput(
                f"only statistics of the same kind merge; these have {', '.join(different)}."
            )

    def _add_spread(self, more: TargetSpread | None) -> None:
        known = None if more is None or self.target_spread is None else self.target_spread
        self.target_spread = None if known is None or more is None else known.with_more(more)

    def _count(self, other: Rows | Self) -> None:
        if self.n_rows == 0 or other.n_rows == 0:
            self.min_length = other.min_length if self.n_rows == 0 else self.min_length
        elif self.min_length is not None:
            shortest = other.min_length
            self.min_length = None if shortest is None else min(self.min_length, shortest)
        for key in ADDED:
            setattr(self, key, getattr(self, key) + getattr(other, key))
        for key in LARGEST:
            setattr(self, key, max(getattr(self, key), getattr(other, key)))

    @property
    def _sizes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.coordinate_sizes, self.output_sizes

    def _require_joinable(self, other: Rows | Self, forget: float = 1.0) -> None:
        """Refuse data whose sums do not fit together with these, multiplied by ``forget``."""
        if not self.n_rows:
            return
        coordinates = np.maximum(self.coordinate_sizes, other.coordinate_sizes)
        outputs = np.maximum(self.output_sizes, other.output_sizes)
        # Rows alone were checked; in other units than its own, a shard of small tokens and
        # small weights may vanish.
        compared = np.append(coordinates, 1.0) if self.layout.has_constant else coordinates
        scaling.require_comparable(compared, outputs)
        weights = (forget * self.total_weight, other.total_weight)
        counts = (self.n_positive, other.n_positive)
        heaviest = max(w / max(count, 1) for w, count in zip(weights, counts, strict=True))
        scaling.require_weighable(heaviest, compared, outputs)

    def _join_units(self, other: Rows | Self) -> None:
        """Go over to the powers of two for the data of both, if their sums fit together."""
        self._require_joinable(other)
        self._take_units(
            np.maximum(self.coordinate_sizes, other.coordinate_sizes),
            np.maximum(self.output_sizes, other.output_sizes),
        )

    def _take_units(self, coordinates: NDArray, outputs: NDArray) -> None:
        """Go over to the powers of two for data of these sizes."""
        token = scaling.token_exponent(coordinates)
        target = scaling.exponent_for(float(outputs.max(initial=0.0)))
        # Sums of zero tokens may hold the constants of skip and intercept.
        tokens = (self.token_exponent or 0) - (token or 0)
        targets = (self.target_exponent or 0) - (target or 0)
        if tokens or targets:
            # Exact, but for what underflows.
            self._rescale(tokens, targets)
            self._magnitudes.rescale(tokens)
            if self.target_spread is not None:
                self.target_spread = self.target_spread.rescaled(targets)
            if self.subtracted is not None:
                exponents = np.repeat([6 * tokens, 2 * targets], [self.n_features, self.n_outputs])
                self.subtracted = np.ldexp(self.subtracted, exponents)
        self.token_exponent, self.target_exponent = token, target
        self.coordinate_sizes, self.output_sizes = coordinates, outputs

    @abstractmethod
    def _accumulate(self, rows: Rows) -> None:
        """Add the rows, which are read at this object's powers of two."""

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Add statistics at the same powers of two."""

    @abstractmethod
    def _down_weigh(self, factor: float) -> None:
        """Multiply the sums by ``factor``."""

    @abstractmethod
    def scaled_feature_powers(self) -> NDArray[np.float64]:
        """sum psi^2 (p,) of the scaled tokens."""

    @abstractmethod
    def _target_powers(self) -> NDArray[np.float64]:
        """sum y^2 (e,) of the scaled targets."""

    @abstractmethod
    def _rescale(self, tokens: int, targets: int) -> None:
        """Multiply the tokens seen so far by 2**tokens and the targets by 2**targets."""

    @abstractmethod
    def _begin(self) -> None:
        """Sums over no rows."""

    @property
    @abstractmethod
    def _numbers(self) -> int:
        """How many numbers the sums take."""

    @classmethod
    @abstractmethod
    def _stored(cls, layout: Layout, n_outputs: int, largest: float) -> dict[str, fields.Check]:
        """The checks of the arrays in a file; no sum of squares can exceed ``largest``."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        """The sums by name."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        """Take copies of the sums of another object."""
