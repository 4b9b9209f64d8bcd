"""Patterns: an attribute with variables in its places, such as ``key(q, x)`` or ``cell(p + 1)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from polyattn.programs.language.sorts import CIRCLE, LINE, Part, Sort

if TYPE_CHECKING:
    from polyattn.programs.language.attributes import Attribute, Value

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

    ``whole`` is a value of the attribute that has no parts (START of a key); then there are no
    arguments.
    """

    attribute: Attribute
    arguments: tuple[Argument, ...] = ()
    whole: str | None = None

    @property
    def variables(self) -> dict[str, Sort]:
        """The sort of each variable, with as many values as this place lets it have."""
        return {
            argument.name: _room(argument, sort)
            for argument, sort in zip(self.arguments, self.attribute.sorts, strict=False)
            if isinstance(argument, Variable)
        }

    def match(self, value: Value) -> Bindings | None:
        """What the variables must be for the pattern to be ``value``; None if it cannot be."""
        if self.whole is not None or isinstance(value, str):
            return {} if value == self.whole else None
        found: Bindings = {}
        for argument, sort, part in zip(self.arguments, self.attribute.sorts, value, strict=True):
            bound = _solve(argument, sort, part)
            if bound is None or any(found.get(name, seen) != seen for name, seen in bound.items()):
                return None
            found |= bound
        return found

    def fill(self, bindings: Bindings) -> Value | None:
        """The value for given variables; None if a step leads beyond the end of a line."""
        if self.whole is not None:
            return self.whole
        parts = [
            _value(argument, sort, bindings)
            for argument, sort in zip(self.arguments, self.attribute.sorts, strict=True)
        ]
        return None if None in parts else tuple(part for part in parts if part is not None)

    def __lshift__(self, read: Pattern) -> Field:
        """``write << read``: what is read there is written here."""
        return Field(self, read)

    def __str__(self) -> str:
        if self.whole is not None:
            return f"{self.attribute.name}({self.whole})"
        inside = ", ".join(map(str, self.arguments))
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


def _room(argument: Variable, sort: Sort) -> Sort:
    """The values that a variable can have where it stands with a step: t in pos(t - 1)."""
    if sort.kind != LINE or not argument.offset:
        return sort
    return replace(sort, size=max(1, sort.size - argument.offset), landmarks=0)


def _solve(argument: Argument, sort: Sort, part: Part) -> Bindings | None:
    """The bindings that make an argument equal to a part of a value."""
    if not isinstance(argument, Variable):
        return {} if argument == part else None
    if not argument.offset:
        return {argument.name: part}
    if not isinstance(part, int):
        return None
    before = part - argument.offset
    if sort.kind == CIRCLE:
        before %= sort.size
    # Beyond the end of this line, the variable may still be a value of a longer one.
    return {argument.name: before} if before >= 0 else None


def _value(argument: Argument, sort: Sort, bindings: Bindings) -> Part | None:
    """The part of a value that an argument stands for."""
    if not isinstance(argument, Variable):
        return argument
    part = bindings[argument.name]
    if not argument.offset:
        # A variable may range over more than this place can hold (HALT where only states fit).
        return part if sort.holds(part) else None
    return sort.shifted(part, argument.offset) if isinstance(part, int) else None
