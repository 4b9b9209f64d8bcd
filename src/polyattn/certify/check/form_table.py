"""The table of the features of any form, for the checker alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.check.features import LARGEST_PRIME
from polyattn.certify.check.forms import FormFeatures
from polyattn.certify.check.measure import INPUT_ROUNDING, UNIT, MeasuredTable, Pair, bits_of
from polyattn.numerics.arrays import pieces
from polyattn.numerics.scaling import exponent_for
from polyattn.sequences import SequenceBatch, checked_before

# Inputs are moved by this share, with random signs, so many times.
MOVED, MOVES = 2.0**-21, 8


@dataclass(frozen=True, eq=False)
class FormTable(MeasuredTable):
    """Features S ⊗ u of all predicted positions."""

    seen: FormFeatures = field(kw_only=True)
    context: SequenceBatch | None = field(kw_only=True, default=None)

    @property
    def width(self) -> int:
        return self.seen.n_queries

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        return np.arange(self.seen.n_features)

    @cached_property
    def exponent(self) -> int:
        return exponent_for(self.seen.largest(self.batch, self.context)) or 0

    @property
    def terms(self) -> int:
        attended = self.batch if self.context is None else self.context
        # A decay multiplies as often as terms are added; a matrix adds up coordinates.
        return 4 * int(attended.lengths.max()) + 3 * self.seen.n_dims + 64

    @property
    def bits(self) -> int:
        form, attended = self.seen.form, self.batch if self.context is None else self.context
        longest = int(attended.lengths.max())
        numbers = [bits_of(self.batch.values), bits_of(attended.values)]
        matrices = [0]
        for name, batch in (("query", self.batch), ("key", attended), ("value", attended)):
            given = getattr(form, name)
            if isinstance(given, np.ndarray):
                matrices.append(bits_of(given) + len(given).bit_length())
            elif callable(given):
                mapped = (self.seen.seen(name, piece, None, 0) for piece in pieces(batch.values))
                numbers.extend(map(bits_of, mapped))
        # A decay m / 2^f to the power o < n is an integer over 2^(f (n - 1)).
        decays = max(decay.as_integer_ratio()[1].bit_length() - 1 for *_, decay in self.seen.scales)
        bits = 3 * (max(numbers) + max(matrices)) + decays * (longest - 1)
        # Means are multiplied by counts, which constants have then.
        return bits + 2 * longest.bit_length()

    def column_occurs(self, number: int) -> bool:
        if number >= len(self.seen.columns):
            return True
        name, at = self.seen.columns[number]
        attended = self.batch if self.context is None else self.context
        return any(
            np.any(self.seen.seen(name, piece, LARGEST_PRIME, 0)[:, at])
            for piece in pieces(attended.values)
        )

    def summaries(self, prime: int | None = None) -> Iterator[tuple[NDArray, NDArray]]:
        exponent = self.exponent if prime is None else 0
        return self.seen.summaries(self.batch, self.context, prime, exponent)

    def features_of(self, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
        return super().features_of(sums, queries)[:, self.seen.kept]

    def grid_of(self, vector: NDArray) -> NDArray:
        grid = np.zeros(self.seen.n_sums * self.seen.n_queries, dtype=vector.dtype)
        grid[self.seen.kept] = vector
        return grid.reshape(self.seen.n_sums, self.seen.n_queries)

    def vector_of(self, grid: NDArray) -> NDArray:
        return grid.reshape(-1)[self.seen.kept]

    def chosen(self, numbers: NDArray[np.int64]) -> Self:
        context = None if self.context is None else self.context.chosen(numbers)
        return replace(self, batch=self.batch.chosen(numbers), context=context)

    def explained(self, direction: NDArray[np.float64], moving: NDArray[np.bool_]) -> float:
        """The share of rows whose <direction, psi> rounding of some coordinates could have made.

        How outputs depend on the inputs is seen by moving them a little.
        """
        grid, rng = self.grid_of(direction), np.random.default_rng()
        outputs, sizes = self._outputs(grid), self._outputs(np.abs(grid), sizes=True)
        most = np.zeros(len(outputs))
        for _ in range(MOVES):
            batch = _moved(self.batch, moving[: self.batch.n_dims], rng)
            context = self.context
            if context is not None:
                context = _moved(context, moving[self.batch.n_dims :], rng)
            others = replace(self, batch=batch, context=context)
            # In the units of this table.
            vars(others)["exponent"] = self.exponent
            most = np.maximum(most, np.abs(others._outputs(grid) - outputs) / MOVED)
        allowed = INPUT_ROUNDING * most
        return float(np.mean(np.maximum(np.abs(outputs), UNIT * sizes) <= allowed))

    def _outputs(self, grid: NDArray, sizes: bool = False) -> NDArray[np.float64]:
        rows = self.seen.summaries(self.batch, self.context, None, self.exponent, sizes)
        return np.concatenate([np.sum(sums @ grid * queries, axis=1) for sums, queries in rows])

    def _with_sizes(self) -> Iterator[tuple[Pair, Pair]]:
        sizes = self.seen.summaries(self.batch, self.context, None, self.exponent, sizes=True)
        for rows, sized in zip(self.summaries(), sizes, strict=True):
            sums, queries = (np.ldexp(each, -_exponents(each)) for each in rows)
            largest, seen = (
                np.ldexp(size, -_exponents(each)) ** 2
                for each, size in zip(rows, sized, strict=True)
            )
            yield (sums, queries), (largest, seen)


def _moved(
    batch: SequenceBatch, which: NDArray[np.bool_], rng: np.random.Generator
) -> SequenceBatch:
    if not isinstance(batch.values, np.ndarray):
        seed = int(rng.integers(1 << 62))
        return checked_before(batch.values.moved(MOVED * which, seed), batch.offsets)
    signs = rng.choice([-MOVED, MOVED], batch.values.shape) * which
    return SequenceBatch(batch.values * (1.0 + signs), batch.offsets)


def _exponents(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return np.frexp(np.where(largest > 0, largest, 1.0))[1]
