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

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, SYMBOLS, Sort
from polyattn.programs.learning.rules.facts import Layout

# The largest code must fit a signed 64-bit integer.
MAX_CODE = 2**63 - 1


class Relations:
    """Codes of relations; the same relation has the same code at all sizes.

    schema : any of the schemas; only its attributes and sorts matter, not its sizes
    max_offset : the largest number of steps that is not "far"
    """

    def __init__(self, schema: Schema, max_offset: int = 3) -> None:
        self.layout, self.max_offset = Layout((schema,)), max_offset
        self.width = max(len(kind.sorts) for kind in self.layout.kinds)
        sorts = self.layout.sorts.values()
        n_named = max((len(sort.named) for sort in sorts), default=0)
        n_landmarks = max((sort.landmarks for sort in sorts), default=0)
        # Digits of a slot: nothing; names; own or earlier slot; landmarks; offsets with both fars.
        self._slot_digit = 1 + n_named
        self._landmark_digit = self._slot_digit + 4 * self.width
        self._middle_digit = self._landmark_digit + n_landmarks + max_offset + 1
        self._radix = self._middle_digit + max_offset + 2
        if len(self.layout.kinds) ** 4 * self._radix ** (4 * self.width) > MAX_CODE:
            raise InvalidInput(
                f"{len(self.layout.kinds)} kinds of values with up to {self.width} parts have "
                "more relations than 64 bits can number; use fewer parts for an attribute."
            )

    def at(self, schema: Schema) -> SizedRelations:
        """The relations of coordinates of a schema of any sizes."""
        return SizedRelations(self, schema)


class Slot(NamedTuple):
    """One part of coordinates: sorts by number, values, names as 1, 2, ... or 0."""

    sort: NDArray[np.int64]
    value: NDArray[np.int64]
    name: NDArray[np.int64]
    is_written: bool


class SizedRelations:
    """Relations of the coordinates of one schema."""

    def __init__(self, relations: Relations, schema: Schema) -> None:
        layout = Layout((schema,))
        if layout.kinds != relations.layout.kinds:
            raise InvalidInput("a schema with other attributes has other relations.")
        self._of, self._layout = relations, layout
        found, sorts = layout.coordinates(schema), list(layout.sorts)
        self.kinds, self._parts = found.kinds, found.parts
        # For each part (d, w) the number of its sort, and 1, 2, ... if it is a name, else 0.
        sort_of = np.full((len(layout.kinds), relations.width), -1)
        for number, kind in enumerate(layout.kinds):
            sort_of[number, : len(kind.sorts)] = [sorts.index(name) for name in kind.sorts]
        self._sorts = sort_of[self.kinds]
        self._names = np.zeros_like(self._parts)
        for number, name in enumerate(sorts):
            ahead = 1 + self._parts - layout.n_numbered[name]
            self._names = np.where((self._sorts == number) & (ahead > 0), ahead, self._names)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of each coordinate (d,): its kind and the names among its parts.

        Relations that write coordinates of different groups are different.
        """
        group = self.kinds.copy()
        for names in self._names.T:
            group = group * self._of._slot_digit + names
        return group

    def code(self, a: NDArray, j: NDArray, k: NDArray, last: NDArray) -> NDArray[np.int64]:
        """The codes of T[a, j, k, l] for arrays of coordinates that broadcast.

        Guarantee: symmetric in j and k; equal at all sizes for the same relation.
        Cost: O(16 w^2) operations for each, with w parts.
        """
        a, j, k, last = np.broadcast_arrays(a, j, k, last)
        swap = self.kinds[j] > self.kinds[k]
        first, second = np.where(swap, k, j), np.where(swap, j, k)
        code = self._ordered(a, last, first, second)
        alike = (self.kinds[first] == self.kinds[second]) & (first != second)
        if alike.any():
            other = self._ordered(a[alike], last[alike], second[alike], first[alike])
            code[alike] = np.minimum(code[alike], other)
        return code

    def _ordered(self, *roles: NDArray) -> NDArray[np.int64]:
        """Codes for given order of write, query, read, match: anchors come from the first."""
        code = np.zeros(roles[0].shape, dtype=np.int64)
        for role in roles:
            code = code * len(self._layout.kinds) + self.kinds[role]
        slots = [
            Slot(self._sorts[role, at], self._parts[role, at], self._names[role, at], number == 0)
            for number, role in enumerate(roles)
            for at in range(self._of.width)
        ]
        for number, slot in enumerate(slots):
            digit = slot.name
            for at, sort in enumerate(self._layout.sorts.values()):
                numbered = (slot.sort == at) & (slot.name == 0)
                if numbered.any():
                    find = self._symbol if sort.kind == SYMBOLS else self._position
                    digit = np.where(numbered, find(slots, number, at, sort), digit)
            code = code * self._of._radix + digit
        return code

    def _symbol(self, slots: list[Slot], number: int, at: int, sort: Sort) -> NDArray[np.int64]:
        """The first slot with the same symbol, or which landmark was written out of nothing."""
        own = slots[number]
        first = np.full(own.value.shape, number)
        given = np.zeros(own.value.shape, dtype=bool)
        for other in range(len(slots) - 1, -1, -1):
            same = (slots[other].sort == at) & (slots[other].value == own.value)
            first = np.where(same & (other < number), other, first)
            given |= same & (not slots[other].is_written)
        constant = (own.value < sort.landmarks) & ~given & own.is_written
        landmark = self._of._landmark_digit + own.value
        return np.where(constant, landmark, self._of._slot_digit + first)

    def _position(self, slots: list[Slot], number: int, at: int, sort: Sort) -> NDArray[np.int64]:
        """Steps from the first position of this sort; or which landmark the first one is."""
        value, reach = slots[number].value, self._of.max_offset
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
        steps = self._of._middle_digit + np.clip(ahead, -reach - 1, reach + 1)
        is_landmark = (sort.kind == LINE) & (value < sort.landmarks)
        landmark = self._of._landmark_digit + value
        first = np.where(is_landmark, landmark, self._of._slot_digit + number)
        return np.where(anchor < 0, first, steps)
