"""Instructions: what a program is made of.  Each has a meaning, and terms that a layer computes.

The meaning (``act``) is in symbols: which tokens are found, what the last token holds.  The terms
are what the compiler lowers to heads; where they mean the same only under an assumption, the
assumption is part of the instruction and the interpreter checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, TypeAlias

from polyattn.errors import InvalidInput
from polyattn.programs.language.attributes import ONE_HOT, Bindings, Field, Pattern
from polyattn.programs.language.program import Instruction, Memory, Writing
from polyattn.programs.language.schema import Token
from polyattn.programs.language.terms import Beyond, Condition, Term, Unequal, exact

Fields: TypeAlias = Field | Sequence[Field]


# The parts of instructions that are patterns; others, of a class of your own, are yours to check.
PATTERNS = ("write", "when", "first", "second", "match", "query", "flag", "given")


class CheckedInstruction(Instruction):
    """An instruction of this module, whose parts are checked by their names."""

    # What to say where a pattern is missing, if more than that.
    joins: ClassVar[str] = ""

    def malformed(self) -> list[str]:
        found: list[str] = []
        for name, value in vars(self).items():
            if name == "fields":
                found += _no_fields(value)
            elif name == "where":
                listed = isinstance(value, tuple)
                if not listed or not all(isinstance(each, Unequal | Beyond) for each in value):
                    found.append(f"where must be a tuple of conditions; got {_kind(value)}")
            elif name == "seen":
                if not isinstance(value, int):
                    found.append(f"seen must be a number of tokens; got {value!r}")
            elif name in PATTERNS and not isinstance(value, Pattern):
                found.append(self.joins or _no_pattern(name, value))
        return found


@dataclass(frozen=True)
class IfThen(CheckedInstruction):
    """If the last token holds ``when``, write.

    ``seen`` tokens hold the same value by then, the last one included: a layer finds them all,
    so what it writes is divided by their number.
    """

    write: Pattern
    when: Pattern
    seen: int = 1
    where: tuple[Condition, ...] = ()

    def terms(self) -> list[Term]:
        # Any value of the attribute is compared with itself, only ``when`` is written for: the
        # comparison does not depend on what is written, and one head does for all values.
        same = self.when.attribute.any
        pairs = [same, *(self.when.attribute(name) for name in self.when.attribute.whole)]
        share = 1.0 / max(1, self.seen)
        return [Term(self.write, self.when, each, each, share, self.where) for each in pairs]

    def act(self, memory: Memory) -> Writing:
        for known, times in memory.parts(memory.last, self.when, {}):
            value = self.write.fill(known)
            if value is None or not all(condition.holds(known) for condition in self.where):
                continue
            seen = len(memory.holding(self.when, known))
            if seen != self.seen:
                raise InvalidInput(
                    f"'{self}' assumes that {self.seen} tokens hold the same by then; {seen} do."
                )
            yield (self.write.attribute.name, value), times

    def refusals(self) -> list[str]:
        found = _not_one_hot(self.when)
        if self.seen < 1:
            found.append(f"seen must be a number of tokens, at least 1; got {self.seen}")
        return found

    def __str__(self) -> str:
        conditions = "".join(f" and {condition}" for condition in self.where)
        return f"if {self.when}{conditions} then {self.write}"


@dataclass(frozen=True)
class Constant(IfThen):
    """Write a fixed value when the last token holds ``when``."""

    def refusals(self) -> list[str]:
        found = super().refusals()
        if self.write.variables:
            found.append(f"a constant has no variables, {self.write} has")
        return found


@dataclass(frozen=True)
class Conjunction(CheckedInstruction):
    """If the last token holds ``first`` and ``second``, write.

    Assumption: no other token holds ``first`` together with the same value of ``second``.
    """

    write: Pattern
    first: Pattern
    second: Pattern

    def terms(self) -> list[Term]:
        return [Term(self.write, self.first, self.second, self.second)]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.parts(memory.last, self.second, {}):
            # The layer finds all tokens with this ``second``, also when the last has no ``first``.
            alike = memory.holding(self.second, asked)
            both = sum(any(memory.parts(token, self.first, asked)) for token in alike)
            if both != any(memory.parts(memory.last, self.first, asked)):
                raise InvalidInput(
                    f"'{self}' assumes that no other token holds {self.first} and the same "
                    f"{self.second}; {both} tokens do."
                )
            for term in self.terms():
                yield from _written(term, memory.last, asked, times)

    def refusals(self) -> list[str]:
        return _not_one_hot(self.second)

    def __str__(self) -> str:
        return f"if {self.first} and {self.second} then {self.write}"


@dataclass(frozen=True)
class Lookup(CheckedInstruction):
    """Find the tokens that hold ``match`` and write what is read of them.

    The variables of ``match`` are those of ``query``, an attribute of the last token:
    ``Lookup(state(r) << state(r), match=key(q, x), query=key(q, x))`` writes the state that is
    stored with the key that the last token holds.
    """

    fields: Fields
    match: Pattern
    query: Pattern
    where: tuple[Condition, ...] = ()

    joins: ClassVar[str] = (
        "a layer joins two attributes of one token, the one that is matched and the one that is "
        "read, with one attribute of the last token; match and query must be one pattern each. To "
        "match two things at once, store their pair as one attribute"
    )

    def terms(self) -> list[Term]:
        return [
            Term(each.write, each.read, self.match, self.query, each.weight, self.where)
            for each in _listed(self.fields)
        ]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.parts(memory.last, self.query, {}):
            for found, matched, count in memory.tokens_with(self.match, asked):
                for term in self.terms():
                    yield from _written(term, found, matched, times * count)

    def __str__(self) -> str:
        return f"look up {_shown(self.fields)} at {self.match} = {self.query}"


@dataclass(frozen=True)
class Copy(Lookup):
    """A lookup by place: the tokens that stand some steps from where the last token is.

    ``Copy(letter(x) << letter(x), match=pos(t + 1), query=pos(t))`` writes the next letter.
    """

    def refusals(self) -> list[str]:
        if _ordered(self.match) & _ordered(self.query):
            return []
        return [f"copying goes by place, but {self.match} and {self.query} share no position"]

    def __str__(self) -> str:
        return f"copy {_shown(self.fields)} from {self.match} as {self.query} asks"


@dataclass(frozen=True)
class Register(CheckedInstruction):
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
            for each in _listed(self.fields)
        ]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.parts(memory.last, self.given, {}):
            for term in self.terms():
                held = memory.register(self.flag.attribute.name, term.read.attribute.name)
                yield from _written(term, held, asked, times)

    def refusals(self) -> list[str]:
        found = [
            f"register {each.read.attribute.name} sums differences, so it must be rounded to "
            "integers (rounding='integer')"
            for each in _listed(self.fields)
            if each.read.attribute.rounding != "integer"
        ]
        if self.flag.attribute.sorts or self.flag.attribute.whole:
            found.append(f"the flag of a register holds or does not; {self.flag} has values")
        return found

    def __str__(self) -> str:
        return f"register {_shown(self.fields)} if {self.given}"


def _written(term: Term, held: Token, known: Bindings, times: int) -> Writing:
    """What a term writes for what a token, or a register, holds."""
    weight = exact(term.weight)
    for bindings, count in Memory.parts(held, term.read, known):
        value = term.write.fill(bindings) if term.allows(bindings) else None
        if value is not None:
            yield (term.write.attribute.name, value), times * count * weight


def _ordered(pattern: Pattern) -> set[str]:
    return {name for name, sort in pattern.variables.items() if sort.is_ordered}


def _listed(fields: Fields) -> tuple[Field, ...]:
    return (fields,) if isinstance(fields, Field) else tuple(fields)


def _shown(fields: Fields) -> str:
    return ", ".join(map(str, _listed(fields)))


def _no_pattern(name: str, value: object) -> str:
    return f"{name} must be a pattern, such as state(q); got {_kind(value)}"


def _no_fields(fields: object) -> list[str]:
    """What is wrong with ``write << read``, or a sequence of them."""
    if isinstance(fields, str) or not isinstance(fields, Field | Sequence):
        return [f"fields must be write << read, or several of them; got {_kind(fields)}"]
    found = [] if _listed(fields) else ["there are no fields to be written"]
    for each in _listed(fields):
        if not isinstance(each, Field):
            found.append(f"a field must be write << read; got {_kind(each)}")
            continue
        parts = {"write": each.write, "read": each.read}.items()
        found += [_no_pattern(name, part) for name, part in parts if not isinstance(part, Pattern)]
        if not isinstance(each.weight, Real):
            found.append(f"the weight of a field must be a number; got {each.weight!r}")
    return found


def _not_one_hot(pattern: Pattern) -> list[str]:
    """A reason against comparing an attribute that holds differences with itself."""
    if pattern.attribute.rounding == ONE_HOT:
        return []
    reason = f"{pattern} is compared with itself, value by value, so it must hold one value"
    return [f"{reason} (rounding='one_hot')"]


def _kind(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {', '.join(type(each).__name__ for each in value)}"
    return f"{type(value).__name__} {value}"
