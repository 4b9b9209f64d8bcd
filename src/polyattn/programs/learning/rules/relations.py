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

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS
from polyattn.programs.learning.rules.layout import Layout

# The largest code must fit a signed 64-bit integer.
MAX_CODE = 2**63 - 1


class Relations:
    """Codes of relations; the same relation has the same code at all sizes.

    Parameters
    ----------
    schema : Schema
        Any of the schemas; only its attributes and sorts matter, not its sizes.
    max_offset : int
        The largest number of steps that is not "far".
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


class SizedRelations:
    """Relations of the coordinates of one schema."""

    def __init__(self, relations: Relations, schema: Schema) -> None:
        layout = Layout((schema,))
        if layout.kinds != relations.layout.kinds:
            raise InvalidInput("a schema with other attributes has other relations.")
        self._of, self._layout = relations, layout
        found = layout.coordinates(schema)
        self.kinds, self._parts = found.kinds, found.parts
        sorts = list(layout.sorts)
        self._sort_of = np.array(
            [
                [sorts.index(name) for name in kind.sorts]
                + [-1] * (relations.width - len(kind.sorts))
                for kind in layout.kinds
            ]
        ).reshape(len(layout.kinds), relations.width)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of each coordinate (d,): its kind and the names among its parts.

        Relations that write coordinates of different groups are different.
        """
        group = self.kinds.copy()
        for at in range(self._of.width):
            sorts = self._sort_of[self.kinds, at]
            digit = np.zeros_like(group)
            for number, name in enumerate(self._layout.sorts):
                first = self._layout.n_numbered[name]
                named = (sorts == number) & (self._parts[:, at] >= first)
                digit = np.where(named, 1 + self._parts[:, at] - first, digit)
            group = group * self._of._slot_digit + digit
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
            (self._sort_of[self.kinds[role], at], self._parts[role, at], number == 0)
            for number, role in enumerate(roles)
            for at in range(self._of.width)
        ]
        for number in range(len(slots)):
            code = code * self._of._radix + self._digit(slots, number)
        return code

    def _digit(self, slots: list[tuple[NDArray, NDArray, bool]], number: int) -> NDArray[np.int64]:
        sort, value, _ = slots[number]
        digit = np.zeros(sort.shape, dtype=np.int64)
        for at, (name, own) in enumerate(self._layout.sorts.items()):
            here = sort == at
            if not here.any():
                continue
            first_name = self._layout.n_numbered[name]
            is_name = here & (value >= first_name)
            digit = np.where(is_name, 1 + value - first_name, digit)
            numbered = here & ~is_name
            if own.kind == SYMBOLS:
                found = self._symbol(slots, number, own.landmarks)
            elif own.kind == NAMES:
                continue
            else:
                found = self._position(slots, number, at, name)
            digit = np.where(numbered, found, digit)
        return digit

    def _symbol(
        self, slots: list[tuple[NDArray, NDArray, bool]], number: int, landmarks: int
    ) -> NDArray[np.int64]:
        """The first slot with the same symbol, or which landmark was written out of nothing."""
        sort, value, is_written = slots[number]
        first = np.full(sort.shape, number)
        given = np.zeros(sort.shape, dtype=bool)
        for other in range(len(slots) - 1, -1, -1):
            same = (slots[other][0] == sort) & (slots[other][1] == value)
            first = np.where(same & (other < number), other, first)
            given |= same & (not slots[other][2])
        constant = (value < landmarks) & ~given & is_written
        return np.where(constant, self._of._landmark_digit + value, self._of._slot_digit + first)

    def _position(
        self, slots: list[tuple[NDArray, NDArray, bool]], number: int, at: int, name: str
    ) -> NDArray[np.int64]:
        """Steps from the first position of this sort; or which landmark the first one is."""
        value = slots[number][1]
        n_numbered, reach = self._layout.n_numbered[name], self._of.max_offset
        anchor = np.full(value.shape, -1)
        for sort, other, _ in slots[:number]:
            found = (sort == at) & (other < n_numbered) & (anchor < 0)
            anchor = np.where(found, other, anchor)
        ahead = value - anchor
        own = self._layout.sorts[name]
        if own.kind == CIRCLE:
            size = n_numbered
            ahead = ahead % size
            ahead = np.where(ahead > size // 2, ahead - size, ahead)
            ahead = np.where(np.abs(ahead) > reach, reach + 1, ahead)
        steps = self._of._middle_digit + np.clip(ahead, -reach - 1, reach + 1)
        is_landmark = (own.kind == LINE) & (value < own.landmarks)
        first = np.where(
            is_landmark, self._of._landmark_digit + value, self._of._slot_digit + number
        )
        return np.where(anchor < 0, first, steps)
