"""Relations: what a coefficient T[a, j, k, l] may depend on when symbols are exchangeable.

Two coefficients share a **relation**, and so their value, if the attributes of a, j, k, l are the
same, and so is what can be said about their parts without knowing how many values there are:

- names and whole values: which they are;
- symbols: which of them are equal;
- positions on a line: steps from the first position, or "far before" / "far after" beyond
  ``max_offset``; and the first position itself if it is a landmark;
- positions on a circle: steps from the first position the shorter way round, or "far".

Two exceptions make constants of numbers: a landmark of a line (above), and a landmark among
symbols that is written and occurs nowhere else, since it cannot have been copied from anywhere.

On a circle of P <= 2 max_offset values, +P/2 and -P/2 are one place: it is called +P/2.  Larger
circles tell the two apart, so relations learned on a small one say nothing about -P/2.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, SYMBOLS, Sort
from polyattn.programs.learning.rules.facts import SchemaLayout

# The largest code must fit a signed 64-bit integer.
MAX_CODE = 2**63 - 1


class Relations:
    """Codes of relations between coordinates; the same relation has the same code at all sizes.

    schema : whose coordinates are related; ``at`` another size the codes stay as they are
    max_offset : the largest number of steps that is not "far"
    """

    def __init__(self, schema: Schema, max_offset: int = 3) -> None:
        self._layout, self._max_offset = SchemaLayout((schema,)), max_offset
        n_kinds, sorts = len(self._layout.kinds), self._layout.sorts.values()
        self._width = max(len(kind.sorts) for kind in self._layout.kinds)
        n_named = max((len(sort.named) for sort in sorts), default=0)
        n_landmarks = max((sort.landmarks for sort in sorts), default=0)
        # Digits of a slot: nothing; names; own or earlier slot; landmarks; offsets with both fars.
        self._slot_digit = 1 + n_named
        self._landmark_digit = self._slot_digit + 4 * self._width
        self._middle_digit = self._landmark_digit + n_landmarks + max_offset + 1
        self._radix = self._middle_digit + max_offset + 2
        if n_kinds**4 * self._radix ** (4 * self._width) > MAX_CODE:
            raise InvalidInput(
                f"{n_kinds} kinds of values with up to {self._width} parts have more relations "
                "than 64 bits can number; use fewer parts for an attribute."
            )
        self._set_coordinates(schema)

    def at(self, schema: Schema) -> Relations:
        """The relations of coordinates of a schema of any sizes."""
        sized = copy(self)
        sized._layout = SchemaLayout((schema,))
        if sized._layout.kinds != self._layout.kinds:
            raise InvalidInput("a schema with other attributes has other relations.")
        sized._set_coordinates(schema)
        return sized

    def _set_coordinates(self, schema: Schema) -> None:
        """For each coordinate (d,) its group, and for its parts (d, w) their sorts and names.

        A sort is a number; names are 1, 2, ..., and all else is 0.  A group is a kind and the
        names among its parts: relations that write coordinates of different groups differ.
        """
        sorts, layout = list(self._layout.sorts), self._layout
        self._kinds, self._parts = layout.coordinates(schema)
        sort_of = np.full((len(layout.kinds), self._width), -1)
        for number, kind in enumerate(layout.kinds):
            sort_of[number, : len(kind.sorts)] = [sorts.index(name) for name in kind.sorts]
        self._sorts = sort_of[self._kinds]
        # Where there is no sort, its number -1 finds the last entry: nothing is a name.
        first_name = np.array([*(layout.n_numbered[name] for name in sorts), MAX_CODE])
        self._names = np.maximum(1 + self._parts - first_name[self._sorts], 0)
        self.groups = self._kinds.copy()
        for names in self._names.T:
            self.groups = self.groups * self._slot_digit + names

    def code(self, a: NDArray, j: NDArray, k: NDArray, last: NDArray) -> NDArray[np.int64]:
        """The codes of T[a, j, k, l] for arrays of coordinates that broadcast.

        Guarantee: symmetric in j and k; equal at all sizes for the same relation.
        Cost: O(16 w^2) operations for each, with w parts.
        """
        a, j, k, last = np.broadcast_arrays(a, j, k, last)
        swap = self._kinds[j] > self._kinds[k]
        first, second = np.where(swap, k, j), np.where(swap, j, k)
        code = self._ordered(a, last, first, second)
        alike = (self._kinds[first] == self._kinds[second]) & (first != second)
        if alike.any():
            other = self._ordered(a[alike], last[alike], second[alike], first[alike])
            code[alike] = np.minimum(code[alike], other)
        return code

    def _ordered(self, *roles: NDArray) -> NDArray[np.int64]:
        """Codes for given order of write, query, read, match: anchors come from the first."""
        code = np.zeros(roles[0].shape, dtype=np.int64)
        for role in roles:
            code = code * len(self._layout.kinds) + self._kinds[role]
        slots = [
            Slot(self._sorts[role, at], self._parts[role, at], self._names[role, at])
            for role in roles
            for at in range(self._width)
        ]
        for number, slot in enumerate(slots):
            digit = slot.name
            for at, sort in enumerate(self._layout.sorts.values()):
                numbered = (slot.sort == at) & (slot.name == 0)
                if numbered.any():
                    find = self._symbol if sort.kind == SYMBOLS else self._position
                    digit = np.where(numbered, find(slots, number, at, sort), digit)
            code = code * self._radix + digit
        return code

    def _symbol(self, slots: list[Slot], number: int, at: int, sort: Sort) -> NDArray[np.int64]:
        """The first slot with the same symbol, or which landmark was written out of nothing."""
        value = slots[number].value
        same = [(slot.sort == at) & (slot.value == value) for slot in slots]
        first = self._slot_digit + np.argmax(same[: number + 1], axis=0)
        if number >= self._width:  # not a part of what is written
            return first
        constant = (value < sort.landmarks) & ~np.any(same[self._width :], axis=0)
        return np.where(constant, self._landmark_digit + value, first)

    def _position(self, slots: list[Slot], number: int, at: int, sort: Sort) -> NDArray[np.int64]:
        """Steps from the first position of this sort; or which landmark the first one is."""
        value, reach = slots[number].value, self._max_offset
        anchor = np.full(value.shape, -1)
        for slot in slots[:number]:
            found = (slot.sort == at) & (slot.name == 0) & (anchor < 0)
            anchor = np.where(found, slot.value, anchor)
        ahead = value - anchor
        if sort.kind == CIRCLE:
            size = self._layout.n_numbered[sort.name]
            ahead = ahead % size
            ahead = np.where(ahead > size // 2, ahead - size, ahead)
            ahead = np.where(np.abs(ahead) > reach, reach + 1, ahead)
        steps = self._middle_digit + np.clip(ahead, -reach - 1, reach + 1)
        is_landmark = (sort.kind == LINE) & (value < sort.landmarks)
        first = np.where(is_landmark, self._landmark_digit + value, self._slot_digit + number)
        return np.where(anchor < 0, first, steps)


class Slot(NamedTuple):
    """One part of coordinates: sorts by number, values, names as 1, 2, ... or 0."""

    sort: NDArray[np.int64]
    value: NDArray[np.int64]
    name: NDArray[np.int64]
