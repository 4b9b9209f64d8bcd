"""Instructions: what a program is made of.  Each has a meaning, and terms that a layer computes.

The meaning (``act``) speaks of symbols: which tokens are found, what the last token holds.  The
terms are what the compiler lowers to heads; where they mean the same only under an assumption,
the assumption is part of the instruction and the interpreter checks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from polyattn.errors import InvalidInput
from polyattn.programs.language.memory import Memory
from polyattn.programs.language.patterns import Bindings, Field, Pattern
from polyattn.programs.language.schema import Atom, Token
from polyattn.programs.language.terms import Condition, Term

# What an instruction writes: how much of which atom.
Writing: TypeAlias = Iterator[tuple[Atom, float]]
Fields: TypeAlias = Field | Sequence[Field]


class Instruction(ABC):
    """One line of a program."""

    @abstractmethod
    def terms(self) -> list[Term]:
        """The products of a layer that do what the instruction means."""

    @abstractmethod
    def act(self, memory: Memory) -> Writing:
        """What is written after the last token, by the meaning of the instruction."""

    def refusals(self) -> list[str]:
        """What a layer cannot do of it, beyond what is wrong with its patterns."""
        return []


@dataclass(frozen=True)
class Lookup(Instruction):
    """Find the tokens that hold ``match`` and write what is read of them.

    The variables of ``match`` are those of ``query``, an attribute of the last token:
    ``Lookup(state(r) << state(r), match=key(q, x), query=key(q, x))`` writes the state that is
    stored with the key that the last token holds.
    """

    fields: Fields
    match: Pattern
    query: Pattern
    where: tuple[Condition, ...] = ()

    def terms(self) -> list[Term]:
        return [
            Term(each.write, each.read, self.match, self.query, each.weight, self.where)
            for each in listed(self.fields)
        ]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.last_holds(self.query):
            for found, matched, count in memory.tokens_with(self.match, asked):
                for term in self.terms():
                    yield from _written(term, found, matched, times * count)

    def refusals(self) -> list[str]:
        if isinstance(self.match, Pattern) and isinstance(self.query, Pattern):
            return []
        reason = (
            "a layer joins two attributes of one token, the one that is matched and the one that "
            "is read, with one attribute of the last token; match and query must be one pattern "
            "each. To match two things at once, store their pair as one attribute"
        )
        return [reason]

    def __str__(self) -> str:
        return f"look up {_shown(self.fields)} at {self.match} = {self.query}"


@dataclass(frozen=True)
class Copy(Lookup):
    """A lookup by place: the tokens that stand some steps from where the last token is.

    ``Copy(letter(x) << letter(x), match=pos(t + 1), query=pos(t))`` writes the next letter.
    """

    def refusals(self) -> list[str]:
        found = super().refusals()
        if not found and not _ordered(self.match) & _ordered(self.query):
            found.append(
                f"copying goes by place, but {self.match} and {self.query} share no position"
            )
        return found

    def __str__(self) -> str:
        return f"copy {_shown(self.fields)} from {self.match} as {self.query} asks"


@dataclass(frozen=True)
class IfThen(Instruction):
    """If the last token holds ``when``, write.

    ``seen`` tokens hold the same value by then, the last one included: a layer counts them all,
    so what it writes is divided by their number.
    """

    write: Pattern
    when: Pattern
    seen: int = 1

    def terms(self) -> list[Term]:
        # Any value of the attribute is compared with itself, only ``when`` is written for: the
        # comparison does not depend on what is written, and one head does for all values.
        same = self.when.attribute.any
        pairs = [same, *(self.when.attribute(name) for name in self.when.attribute.whole)]
        return [Term(self.write, self.when, each, each, 1.0 / self.seen) for each in pairs]

    def act(self, memory: Memory) -> Writing:
        for known, times in memory.last_holds(self.when):
            value = self.write.fill(known)
            if value is None:
                continue
            seen = len(memory.holding(_atom(self.when, known)))
            if seen != self.seen:
                raise InvalidInput(
                    f"'{self}' assumes that {self.seen} tokens hold the same by then; {seen} do."
                )
            yield (self.write.attribute.name, value), times

    def refusals(self) -> list[str]:
        if isinstance(self.seen, int) and self.seen >= 1:
            return []
        return [f"seen must be a number of tokens, at least 1; got {self.seen!r}"]

    def __str__(self) -> str:
        return f"if {self.when} then {self.write}"


@dataclass(frozen=True)
class Constant(IfThen):
    """Write a fixed value when the last token holds ``when``."""

    def refusals(self) -> list[str]:
        found = super().refusals()
        if self.write.variables:
            found.append(f"a constant has no variables, {self.write} has")
        return found


@dataclass(frozen=True)
class Conjunction(Instruction):
    """If the last token holds ``first`` and ``second``, write.

    Assumption: no other token holds the same value of ``second`` together with some ``first``.
    """

    write: Pattern
    first: Pattern
    second: Pattern

    def terms(self) -> list[Term]:
        return [Term(self.write, self.first, self.second, self.second)]

    def act(self, memory: Memory) -> Writing:
        for one, times in memory.last_holds(self.first):
            for known, held in memory.parts(memory.last, self.second, one):
                value = self.write.fill(known)
                if value is not None:
                    self._check_alone(memory.holding(_atom(self.second, known)))
                    yield (self.write.attribute.name, value), times * held

    def _check_alone(self, holders: list[Token]) -> None:
        name = self.first.attribute.name
        both = sum(any(at == name for at, _ in token) for token in holders)
        if both != 1:
            raise InvalidInput(
                f"'{self}' assumes that no other token holds the same {self.second} and some "
                f"{name}; {both} tokens do."
            )

    def __str__(self) -> str:
        return f"if {self.first} and {self.second} then {self.write}"


@dataclass(frozen=True)
class Register(Instruction):
    """Write what a register holds, if the last token holds ``given``.

    A register is an attribute into which tokens with the flag write differences; what it holds
    is their sum.  Changing it costs one token, reading it costs nothing.
    """

    fields: Fields
    flag: Pattern
    given: Pattern
    where: tuple[Condition, ...] = ()

    def terms(self) -> list[Term]:
        return [
            Term(each.write, each.read, self.flag, self.given, each.weight, self.where)
            for each in listed(self.fields)
        ]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.last_holds(self.given):
            for term in self.terms():
                held = memory.register(self.flag.attribute.name, term.read.attribute.name)
                yield from _written(term, held, asked, times)

    def refusals(self) -> list[str]:
        found = [
            f"register {each.read.attribute.name} sums differences, so it must be rounded to "
            "integers (rounding='integer')"
            for each in listed(self.fields)
            if each.read.attribute.rounding != "integer"
        ]
        if self.flag.attribute.sorts:
            found.append(f"the flag of a register holds or does not; {self.flag} has values")
        return found

    def __str__(self) -> str:
        return f"register {_shown(self.fields)} if {self.given}"


def listed(fields: Fields) -> tuple[Field, ...]:
    """One field or several, as several."""
    return (fields,) if isinstance(fields, Field) else tuple(fields)


def _written(term: Term, held: Token, known: Bindings, times: int) -> Writing:
    """What a term writes for what a token, or a register, holds."""
    for bindings, count in Memory.parts(held, term.read, known):
        value = term.write.fill(bindings) if term.allows(bindings) else None
        if value is not None:
            yield (term.write.attribute.name, value), times * count * term.weight


def _atom(pattern: Pattern, known: Bindings) -> Atom:
    """What a pattern that was found in a token says there."""
    value = pattern.fill(known)
    assert value is not None  # noqa: S101 - it was found there
    return pattern.attribute.name, value


def _shown(fields: Fields) -> str:
    return ", ".join(map(str, listed(fields)))


def _ordered(pattern: Pattern) -> set[str]:
    return {name for name, sort in pattern.variables.items() if sort.is_ordered}
