"""The columns of tokens in exact arithmetic: residues modulo a prime, integers, and their sizes.

Coordinates and matrices have exact residues, since every float64 is m 2^e.  What a function makes
of tokens is taken as the numbers that it returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import Residues, multiply
from polyattn.certify.exact.numbers import (
    FAR,
    Extents,
    is_integer_data,
    number_residues,
    python_integers,
    rounded_coordinates,
    shifted,
)
from polyattn.form.columns import Columns
from polyattn.form.token_maps import applied
from polyattn.numerics.arrays import even_ranges
from polyattn.sequences import SequenceBatch

# Tokens that a function is given together.
MAPPED_TOKENS = 1 << 16


@dataclass(frozen=True, eq=False)
class ExactTokens:
    """The columns that a layer sees of the tokens of a batch."""

    batch: SequenceBatch
    columns: Columns

    @property
    def only_coordinates(self) -> bool:
        """Whether the columns are coordinates, and perhaps the constant."""
        return not self.columns.maps

    @property
    def has_functions(self) -> bool:
        """Whether some columns are made by a function, which is taken at its word."""
        return any(not isinstance(given, np.ndarray) for _, given, _ in self.columns.maps)

    @property
    def are_small_integers(self) -> bool:
        """Whether all columns are coordinates that hold a power of two times small integers."""
        return self.only_coordinates and is_integer_data(self.batch)

    @cached_property
    def rounded(self) -> NDArray[np.bool_]:
        """Which coordinates (d,) look rounded; all of them, where a function computes."""
        if self.has_functions:
            return np.ones(self.batch.n_dims, dtype=bool)
        return rounded_coordinates(self.batch)

    @cached_property
    def extents(self) -> Extents:
        """Sizes of all columns: each is an integer times 2^lowest, of size below 2^highest."""
        own = Extents.of(self.batch)
        parts = [
            own if self.columns.coordinates is None else _chosen(own, self.columns.coordinates)
        ]
        for name, given, _ in self.columns.maps:
            if isinstance(given, np.ndarray):
                parts.append(_of_matrix(own, given))
                continue
            mapped = [
                applied(given, self.batch.values[start:stop], name)
                for start, stop in even_ranges(len(self.batch.values), MAPPED_TOKENS)
            ]
            parts.append(Extents.of(SequenceBatch.from_sequences(mapped)))
        if self.columns.constant:
            parts.append(Extents(*(np.array([each]) for each in (0, 1, 1.0, 0))))
        return Extents(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("lowest", "highest", "largest", "widths")
            )
        )

    def read(self, which: slice | NDArray[np.int64], prime: int | None) -> Residues:
        """The columns (n_columns, tokens) of the chosen tokens as residues, or as integers.

        Integers only of coordinates: each column is divided by 2^lowest.
        """
        chosen = self.batch.values[which]
        columns, picked = self.columns, self.columns.coordinates
        seen = np.ones((columns.n_columns, len(chosen)))
        own = chosen if picked is None else chosen[:, picked]
        at = own.shape[1]
        if prime is None:
            seen[:at] = shifted(own, self.extents.lowest[:at]).T
            return seen
        seen[:at] = number_residues(own, prime).T
        for name, given, width in columns.maps:
            if isinstance(given, np.ndarray):
                tokens = number_residues(chosen, prime)
                seen[at : at + width] = multiply(tokens, number_residues(given, prime), prime).T
            else:
                seen[at : at + width] = number_residues(applied(given, chosen, name), prime).T
            at += width
        return seen

    def integers(self, which: slice | NDArray[np.int64], small: bool) -> NDArray:
        """The columns (tokens, n_columns) divided by 2^lowest: int64 where ``small``."""
        chosen, lowest = self.batch.values[which], self.extents.lowest
        columns, picked = self.columns, self.columns.coordinates
        own = chosen if picked is None else chosen[:, picked]
        at = own.shape[1]

        def as_integers(numbers: NDArray, exponents: NDArray[np.int64]) -> NDArray:
            if small and self.only_coordinates:
                return shifted(numbers, exponents).astype(np.int64)
            return python_integers(numbers, exponents)

        parts = [as_integers(own, lowest[:at])]
        for name, given, width in columns.maps:
            wanted = lowest[at : at + width]
            if isinstance(given, np.ndarray):
                tokens, unit = Extents.of(self.batch).lowest, int(_matrix_exponents(given)[0].min())
                unit = unit if np.any(given) else 0
                product = python_integers(chosen, tokens) @ (
                    python_integers(given, np.full(width, unit)) << _shifts(tokens)
                )
                parts.append(_moved(product, int(tokens.min()) + unit - wanted))
            else:
                parts.append(python_integers(applied(given, chosen, name), wanted))
            at += width
        if columns.constant:
            parts.append(np.ones((len(chosen), 1), dtype=parts[0].dtype))
        return np.concatenate(parts, axis=1)


def _shifts(lowest: NDArray[np.int64]) -> NDArray[np.object_]:
    """How far each coordinate (d, 1) stands above the lowest power of two."""
    return np.array([int(each) for each in lowest - lowest.min()], dtype=object)[:, None]


def _moved(integers: NDArray[np.object_], exponents: NDArray[np.int64]) -> NDArray[np.object_]:
    """Integers (n, r) times 2^exponents (r,); what is divided leaves no remainder."""
    up, down = (
        np.array([max(0, int(sign * each)) for each in exponents], dtype=object) for sign in (1, -1)
    )
    return np.asarray((integers << up) >> down)


def _chosen(extents: Extents, which: NDArray[np.intp]) -> Extents:
    names = ("lowest", "highest", "largest", "widths")
    return Extents(*(getattr(extents, name)[which] for name in names))


def _matrix_exponents(matrix: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each entry (d, r) the power of two that it is a multiple of, and one above its size."""
    flat = Extents.of(SequenceBatch.from_array(matrix.reshape(1, 1, -1)))
    lowest = np.where(flat.largest == 0, FAR // 4, flat.lowest)
    highest = np.where(flat.largest == 0, -(FAR // 4), flat.highest)
    return lowest.reshape(matrix.shape), highest.reshape(matrix.shape)


def _of_matrix(own: Extents, matrix: NDArray) -> Extents:
    """Bounds for the columns x^T W from those of the coordinates of x."""
    low, high = _matrix_exponents(matrix)
    lowest = (own.lowest[:, None] + low).min(axis=0)
    highest = (own.highest[:, None] + high).max(axis=0) + len(matrix).bit_length()
    empty = ~np.any(matrix != 0, axis=0)
    lowest[empty] = highest[empty] = 0
    with np.errstate(over="ignore"):
        largest = own.largest @ np.abs(matrix)
    return Extents(lowest, highest, largest, np.full(len(lowest), 0, dtype=np.int64))
