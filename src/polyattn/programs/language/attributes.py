"""Attributes: the named blocks of a token, and the values each of them can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.programs.language.patterns import Argument, Pattern, Variable
from polyattn.programs.language.sorts import Part, Sort

ONE_HOT, INTEGER = "one_hot", "integer"

# One value of an attribute: a part for each of its sorts, or the name of a whole value.
Value: TypeAlias = tuple[Part, ...] | str


@dataclass(frozen=True)
class Attribute:
    """A block of coordinates, one for each value.

    Parameters
    ----------
    name : str
    sorts : tuple of Sort
        A value has one part of each sort; no sorts means a flag, which holds or does not.
    whole : tuple of str
        Further values without parts, known by name.
    rounding : "one_hot" | "integer"
        ``one_hot``: a token holds one value, or none.  ``integer``: a token adds to and takes
        from any values (the differences that registers sum up).

    Called with variables, numbers and names it is a pattern: ``key(q, 0)``, ``key("START")``.
    """

    name: str
    sorts: tuple[Sort, ...] = ()
    whole: tuple[str, ...] = ()
    rounding: str = ONE_HOT

    def __post_init__(self) -> None:
        require_choice("rounding", self.rounding, (ONE_HOT, INTEGER))
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidInput(f"an attribute's name must be an identifier; got {self.name!r}.")
        for name, given, kind in (("sorts", self.sorts, Sort), ("whole", self.whole, str)):
            if not isinstance(given, tuple) or not all(isinstance(each, kind) for each in given):
                raise InvalidType(
                    f"{name} of {self.name} must be a tuple of {kind.__name__}; got {given!r}."
                )
        if len(set(self.whole)) != len(self.whole):
            raise InvalidInput(f"{self.name} has a whole value twice: {self.whole}.")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """All values, in the order of their coordinates."""
        return (*product(*(sort.parts for sort in self.sorts)), *self.whole)

    @cached_property
    def places(self) -> dict[Value, int]:
        """The place of each value within the block."""
        return {value: place for place, value in enumerate(self.values)}

    def value(self, given: Any) -> Value:
        """A value in its usual form: a part alone stands for the value that has only it."""
        whole = isinstance(given, str) and given in self.whole
        value = given if isinstance(given, tuple) or whole else (given,)
        try:
            return self.values[self.places[value]]
        except (KeyError, TypeError):  # unknown, or not hashable
            raise InvalidInput(
                f"{given!r} is not a value of {self}; "
                f"it has {len(self.values)} values, such as {_some(self.values)}."
            ) from None

    def held(self, given: Any) -> dict[Value, int]:
        """Values and how often a token holds each: one value, or a mapping of differences."""
        amounts = [*given.items()] if isinstance(given, Mapping) else [(given, 1)]
        for value, times in amounts:
            if not isinstance(times, int | np.integer):
                raise InvalidInput(
                    f"{self.name} holds {value!r} a whole number of times; got {times!r}."
                )
        found = {self.value(value): int(times) for value, times in amounts if times}
        if self.rounding == ONE_HOT and [*found.values()] not in ([], [1]):
            raise InvalidInput(
                f"{self.name} holds one value, once (rounding='one_hot'); got {given!r}."
            )
        return found

    def resized(self, larger: Mapping[str, int]) -> Attribute:
        """The same attribute with so many values more of the sorts of these names."""
        sorts = tuple(
            replace(sort, size=sort.size + larger.get(sort.name, 0)) if sort.size else sort
            for sort in self.sorts
        )
        return replace(self, sorts=sorts)

    def __call__(self, *arguments: Argument) -> Pattern:
        """A pattern of this attribute; what is wrong with it is found by ``validate``."""
        if len(arguments) == 1 and isinstance(arguments[0], str) and arguments[0] in self.whole:
            return Pattern(self, whole=arguments[0])
        return Pattern(self, arguments)

    @property
    def any(self) -> Pattern:
        """The pattern that every value with parts matches."""
        return Pattern(self, tuple(Variable(f"_{i + 1}") for i in range(len(self.sorts))))

    def __str__(self) -> str:
        parts = ", ".join(sort.name for sort in self.sorts)
        return f"{self.name}({parts})" if parts else self.name


def _some(values: tuple[Value, ...]) -> str:
    return ", ".join(repr(value) for value in (*values[:2], *values[-1:]))
