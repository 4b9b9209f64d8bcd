"""Sorts: the kinds of values that tokens hold, and how two values of a kind are related.

Programs use these relations without knowing how many values there are: symbols are equal or not,
positions on a line or a circle lie some steps apart, names are themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from polyattn.errors import InvalidInput, InvalidType, require_choice, require_integer
from polyattn.quoting import shown

SYMBOLS, LINE, CIRCLE, NAMES = "symbols", "line", "circle", "names"

# A value of a sort: a number, or a name.
Part: TypeAlias = int | str


@dataclass(frozen=True)
class Sort:
    """A finite set of values of one kind: 0, 1, ..., size - 1, and then the named ones.

    Parameters
    ----------
    name : str
        Sorts of the same name are compared with each other.
    kind : "symbols" | "line" | "circle" | "names"
        ``symbols`` are exchangeable (states, letters); on a ``line`` and a ``circle`` there is a
        next value, on the circle also after the last; each value of ``names`` has its own name.
    size : int
        How many values have numbers.
    named : tuple of str
        Further values, known by name: all values of a sort of names, or HALT among states.
    landmarks : int
        How many of the first values are special although they have numbers: the start state 0,
        the first positions of a line.
    """

    name: str
    kind: str
    size: int
    named: tuple[str, ...] = ()
    landmarks: int = 0

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, (SYMBOLS, LINE, CIRCLE, NAMES))
        if not isinstance(self.name, str):
            raise InvalidType(f"the name of a sort must be text; got {shown(self.name)}.")
        require_integer("size", self.size, 0 if self.named else 1)
        require_integer("landmarks", self.landmarks, 0)
        if len(set(self.named)) != len(self.named):
            raise InvalidInput(f"sort {self.name!r} has a name twice: {self.named}.")
        if self.landmarks > self.size:
            raise InvalidInput(f"sort {self.name!r} has {self.size} values to be landmarks.")

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All values, the numbered ones first."""
        return (*range(self.size), *self.named)

    def holds(self, part: Part) -> bool:
        """Whether a part is one of the values."""
        return part in self.named if isinstance(part, str) else 0 <= part < self.size

    @property
    def is_ordered(self) -> bool:
        """Whether there is a next value."""
        return self.kind in (LINE, CIRCLE)

    def shifted(self, part: Part, offset: int) -> Part | None:
        """The value ``offset`` steps further; None where there is none (beyond the end of a line).

        Without a step, None for what is no value of this sort (HALT where only states fit).
        """
        if not offset:
            return part if self.holds(part) else None
        if isinstance(part, str):
            return None
        moved = part + offset
        if self.kind == CIRCLE:
            return moved % self.size
        return moved if 0 <= moved < self.size else None

    def plus(self, *names: str) -> Sort:
        """The same sort with further named values."""
        return replace(self, named=self.named + names)

    def __str__(self) -> str:
        values = [f"{self.size} {self.kind}"] if self.size else []
        return f"{self.name}: {', '.join([*values, *self.named])}"


def symbols(name: str, size: int, landmarks: int = 0) -> Sort:
    """Exchangeable values, such as states or letters."""
    return Sort(name, SYMBOLS, size, landmarks=landmarks)


def line(name: str, size: int, landmarks: int = 0) -> Sort:
    """Positions in order, from first to last."""
    return Sort(name, LINE, size, landmarks=landmarks)


def circle(name: str, size: int) -> Sort:
    """Positions in a ring: after the last comes the first."""
    return Sort(name, CIRCLE, size)


def names(name: str, *values: str) -> Sort:
    """Values that are all known by name, such as left and right."""
    return Sort(name, NAMES, 0, named=values)
