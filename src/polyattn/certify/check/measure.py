"""Sizes, spectra and directions in float64, for the checker alone.

For ranks and directions every row is multiplied by a power of two that brings its Gram matrix
and its query to size one: features are cubic, and one row of large tokens would hide all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.check.features import BLOCK_NUMBERS, Table
from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

UNIT = 2.0**-53

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]

# What rounding may have done to a coordinate, twice what provers allow themselves.
INPUT_ROUNDING = 2.0**-45


class MeasuredTable(Table):
    """What float64 says about a table of features, tokens divided by 2**exponent."""

    @cached_property
    def sizes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Per feature the roots of sum psi^2 (1 where zero) and of sum G_jj G_kk x_l^2.

        Of features that rounding may have made of zero both are the second.
        In other forms the second is that of the same sums without cancellation.
        """
        powers = magnitudes = np.zeros(1)
        for (grams, queries), (largest, seen) in self._with_sizes():
            powers = powers + self.vector_of((grams**2).T @ queries**2)
            magnitudes = magnitudes + self.vector_of(largest.T @ seen)
        terms = len(powers) + self.terms + 8
        lost = powers <= len(powers) * (terms * UNIT) ** 2 * magnitudes
        powers = np.where(lost, magnitudes, powers)
        roots = np.sqrt(np.where(powers > 0, powers, 1.0))
        return roots, np.sqrt(magnitudes)

    @property
    def limit(self) -> float:
        """What rounding may do to all features together, each divided by its root."""
        roots, magnitudes = self.sizes
        terms = len(roots) + self.terms + 8
        return terms * UNIT * float(np.linalg.norm(magnitudes / roots))

    @property
    def terms(self) -> int:
        """Roundings in a sum over a sequence."""
        return int(self.batch.lengths.max())

    @property
    def bits(self) -> int:
        """Bits of a feature at most, in units of the smallest power of two in the data."""
        return 3 * bits_of(self.batch.values) + int(self.batch.lengths.max()).bit_length()

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """sum psi psi^T (c, c)."""
        n_columns = len(self.columns)
        total = np.zeros((n_columns, n_columns))
        for block in self.features():
            total += block.T @ block
        return total

    def spectrum(self, dimension: int) -> tuple[float, float]:
        """The ends of the spectrum of Lambda_D on a space of this dimension, in plain units.

        All features are taken, so the spectrum begins with c - dimension zeros.
        """
        n_rows, n_columns = self.batch.n_rows(self.mode), len(self.columns)
        if n_rows < n_columns:
            # Few rows: their kernel has the same eigenvalues, but for zeros.
            rows = np.concatenate(list(self.features()))
            kernel = np.linalg.eigvalsh(rows @ rows.T / n_rows)
            values = np.concatenate([np.zeros(n_columns - n_rows), kernel])
        else:
            values = np.linalg.eigvalsh(self.gram / n_rows)
        ends = values[[n_columns - dimension, -1]]
        with np.errstate(over="ignore", under="ignore"):
            smallest, largest = np.ldexp(np.maximum(ends, 0.0), 6 * self.exponent)
        return float(smallest), float(largest)

    def least_eigenvalue(self, dimension: int) -> float:
        """The smallest eigenvalue after scaling all features to size one."""
        powers = self.gram.diagonal()
        roots = np.sqrt(np.where(powers > 0, powers, 1.0))
        values = np.linalg.eigvalsh(self.gram / roots / roots[:, None])
        return float(values[len(values) - dimension])

    def rank_range(self) -> tuple[int, int]:
        """The rank by singular values: at least and at most, as far as rounding can tell."""
        roots, _ = self.sizes
        factor: NDArray[np.float64] = np.zeros((0, len(roots)))
        kept: list[NDArray[np.float64]] = []
        for grams, queries in self._rows_of_size_one():
            kept.append(self.features_of(grams, queries) / roots)
            if sum(map(len, kept)) * len(roots) > max(BLOCK_NUMBERS, 4 * len(roots) ** 2):
                factor = np.asarray(np.linalg.qr(np.concatenate([factor, *kept]), mode="r"))
                kept.clear()
        values = np.linalg.svd(np.concatenate([factor, *kept]), compute_uv=False)
        # No singular value below that share of the largest is known to be there, and those within
        # a factor of four of the limit of rounding may count as zero or not.
        limit = max(0.25 * self.limit, 2.0**-48 * float(values[0]))
        least, most = (int(np.count_nonzero(values > doubt * limit)) for doubt in (4.0, 0.25))
        return least, most

    def effect(self, direction: NDArray[np.float64]) -> tuple[float, float]:
        """(norm over all rows of <direction, psi>, how large rounding alone may make it)."""
        roots, _ = self.sizes
        table, power = self.grid_of(direction), 0.0
        for grams, queries in self._rows_of_size_one():
            power += float(np.sum(np.sum(grams @ table * queries, axis=1) ** 2))
        # What counts as rounding: so many times what it may do to a sum of that many terms.
        allowed = 16.0 * self.limit * float(np.linalg.norm(roots * direction))
        return float(np.sqrt(power)), allowed

    def explained(self, direction: NDArray[np.float64], moving: NDArray[np.bool_]) -> float:
        """The share of rows whose <direction, psi> rounding of some coordinates could have made.

        ``moving`` (d,): the coordinates.  The form z -> <direction, psi> of a row with Gram G and
        query x has the slopes <direction, G (x) e_l> by the query alone, and 2 sum_j y_j M_jk by
        a token y attended to, M = sum_l direction[(j<=k), l] x_l, halves off the diagonal.
        """
        table, which = direction.reshape(-1, self.width), np.flatnonzero(moving)
        rows = good = 0
        for grams, queries in self._rows_of_size_one():
            whole, forms = self._square(grams), self._square(queries @ table.T)
            forms = (forms + np.einsum("rjj->rj", forms)[:, :, None] * np.eye(self.width)) / 2.0
            by_query = (grams @ table)[:, which] * queries[:, which]
            by_token = 2.0 * np.einsum("rjk,rk->rj", forms, queries)[:, which]
            moved = np.abs(by_query + by_token * queries[:, which])
            rest = whole - queries[:, :, None] * queries[:, None, :]
            squares = np.einsum("rij,rjk,rki->ri", forms, rest, forms, optimize=True)
            powers = np.einsum("rjj->rj", rest)
            moved = moved + 2.0 * np.sqrt(np.maximum(squares * powers, 0.0))[:, which]
            values = np.abs(np.sum(grams @ table * queries, axis=1))
            noise = UNIT * np.sum(np.abs(grams) @ np.abs(table) * np.abs(queries), axis=1)
            allowed = INPUT_ROUNDING * moved.sum(axis=1)
            good += int(np.count_nonzero(np.maximum(values, noise) <= allowed))
            rows += len(queries)
        return good / rows

    def share(self, direction: NDArray[np.float64]) -> float:
        """The largest |<direction, psi>| of a row, of what it would be without cancellation."""
        largest = 0.0
        for block in self.features():
            sizes = np.abs(block) @ np.abs(direction)
            shares = np.abs(block @ direction) / np.where(sizes > 0, sizes, 1.0)
            largest = max(largest, float(shares.max()))
        return largest

    def _square(self, rows: NDArray) -> NDArray[np.float64]:
        """Entries (rows, pairs) as symmetric matrices (rows, width, width); others are zero."""
        first, second = self.pairs
        matrices = np.zeros((len(rows), self.width, self.width))
        matrices[:, first, second] = matrices[:, second, first] = rows
        return matrices

    def _with_sizes(self) -> Iterator[tuple[Pair, Pair]]:
        """Rows of size one, and squares of what their rounding is relative to."""
        first, second = self.pairs
        # Where the diagonal entries G_jj and G_kk of each pair stand.
        first_at, second_at = (np.flatnonzero(first == second)[each] for each in (first, second))
        for grams, queries in self._rows_of_size_one():
            yield (grams, queries), (grams[:, first_at] * grams[:, second_at], queries**2)

    def _rows_of_size_one(self) -> Iterator[Pair]:
        for grams, queries in self.summaries():
            yield _of_size_one(grams), _of_size_one(queries)


def _of_size_one(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return np.ldexp(rows, -np.frexp(np.where(largest > 0, largest, 1.0))[1])


def bits_of(values: NDArray) -> int:
    """Bits of the largest of these numbers, in units of a power of two that divides them all."""
    highest, lowest = 1, 0
    for piece in pieces(values):
        numbers = piece.astype(np.float64)
        fractions = numbers[numbers != np.rint(numbers)]
        highest = max(highest, int(np.frexp(np.abs(numbers).max())[1]))
        if len(fractions):
            lowest = min(lowest, int(np.frexp(np.abs(fractions).min())[1]) - 53)
    return highest + 1 - lowest


def rounded_coordinates(batch: SequenceBatch) -> NDArray[np.bool_]:
    """Which coordinates (d,) hold floats that rounding may have made what they are.

    Not integers; not floats of one grid, multiples of 2^(e - b - 1) below 2^e for the b bits of
    the dtype; nor floats that leave their last bit unused.
    """
    values = batch.values
    if values.dtype.kind != "f":
        return np.zeros(batch.n_dims, dtype=bool)
    bits = np.finfo(values.dtype).nmant + 1
    sizes = np.max([np.abs(piece).max(axis=0) for piece in pieces(values)], axis=0)
    tops = np.frexp(sizes.astype(np.float64))[1]
    odd, off_grid = np.zeros((2, batch.n_dims), dtype=bool)
    for piece in pieces(values):
        numbers = piece.astype(np.float64)
        odd |= np.any(np.ldexp(np.frexp(numbers)[0], bits) % 2 == 1, axis=0)
        # What underflows in here is no integer either.
        steps = np.ldexp(numbers, np.minimum(bits + 1 - tops, 1000))
        off_grid |= np.any(steps != np.rint(steps), axis=0)
    return odd & off_grid
