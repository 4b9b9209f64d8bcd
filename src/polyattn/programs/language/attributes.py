"""Attributes: the named blocks of a token, the values each can hold, and patterns of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.programs.language.sorts import CIRCLE, LINE, Part, Sort

# What a variable stands for; every variable of a pattern gets one value.
Bindings: TypeAlias = dict[str, Part]


@dataclass(frozen=True)
class Variable:
    """A place holder for a value; ``t + 1`` is the value after that of ``t``."""

    name: str
    offset: int = 0

    def __add__(self, steps: int) -> Variable:
        if not isinstance(steps, int):
            return NotImplemented
        return replace(self, offset=self.offset + steps)

    def __sub__(self, steps: int) -> Variable:
        return self + -steps

    def __str__(self) -> str:
        return f"{self.name}{self.offset:+d}" if self.offset else self.name


Argument: TypeAlias = Variable | Part


def variables(text: str) -> tuple[Variable, ...]:
    """Variables by their names: ``q, x = variables("q x")``."""
    return tuple(Variable(name) for name in text.split())


@dataclass(frozen=True)
class Pattern:
    """An attribute whose value is given by variables, numbers and names.

    ``whole``, instead of arguments: a value that has no parts (START of a key).
    """

    attribute: Attribute
    arguments: tuple[Argument, ...] = ()
    whole: str | None = None

    @property
    def variables(self) -> dict[str, Sort]:
        """The sort of each variable, with as many values as this place lets it have."""
        found = {}
        for argument, sort in zip(self.arguments, self.attribute.sorts, strict=False):
            if isinstance(argument, Variable):
                if sort.kind == LINE and argument.offset:
                    # Where it stands with a step, such as t in pos(t - 1).
                    sort = replace(sort, size=max(1, sort.size - argument.offset), landmarks=0)
                found[argument.name] = sort
        return found

    def match(self, value: Value, known: Bindings | None = None) -> Bindings | None:
        """What the variables must be for the pattern to be ``value``; None if it cannot be.

        ``known``: what some variables are already.
        """
        found = dict(known or {})
        if self.whole is not None or isinstance(value, str):
            return found if value == self.whole else None
        for argument, sort, part in zip(self.arguments, self.attribute.sorts, value, strict=True):
            if not isinstance(argument, Variable):
                if argument != part:
                    return None
                continue
            if argument.offset:
                if not isinstance(part, int):
                    return None
                part -= argument.offset
                if sort.kind == CIRCLE:
                    part %= sort.size
                # Beyond the end of this line, the variable may still be a value of a longer one.
                if part < 0:
                    return None
            if found.setdefault(argument.name, part) != part:
                return None
        return found

    def fill(self, bindings: Bindings) -> Value | None:
        """The value for given variables; None if one of its parts does not exist."""
        if self.whole is not None:
            return self.whole
        parts: list[Part] = []
        for part, sort in zip(self.arguments, self.attribute.sorts, strict=True):
            if isinstance(part, Variable):
                value = sort.shifted(bindings[part.name], part.offset)
                if value is None:
                    return None
                part = value
            parts.append(part)
        return tuple(parts)

    def __lshift__(self, read: Pattern) -> Field:
        """``write << read``: what is read there is written here."""
        return Field(self, read)

    def __str__(self) -> str:
        inside = self.whole or ", ".join(map(str, self.arguments))
        return f"{self.attribute.name}({inside})" if inside else self.attribute.name


@dataclass(frozen=True)
class Field:
    """``write << read``: what is to be read of a token, and what is to be written for it."""

    write: Pattern
    read: Pattern
    weight: float = 1.0

    def __neg__(self) -> Field:
        return replace(self, weight=-self.weight)

    def __str__(self) -> str:
        sign = {1.0: "", -1.0: "-"}.get(self.weight, f"{self.weight:g} ")
        return f"{sign}{self.write} << {self.read}"


ROUNDINGS = ONE_HOT, INTEGER = "one_hot", "integer"

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
        require_choice("rounding", self.rounding, ROUNDINGS)
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
            some = ", ".join(map(repr, (*self.values[:2], *self.values[-1:])))
            raise InvalidInput(
                f"{given!r} is not a value of {self}; it has {len(self.values)} values, such as "
                f"{some}."
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
