"""Lookups and registers: what is found in earlier tokens, and what they sum up to."""

from __future__ import annotations

from dataclasses import dataclass

from polyattn.programs.language.exact import exact
from polyattn.programs.language.instruction import (
    Fields,
    Instruction,
    Writing,
    listed,
    no_conditions,
    no_fields,
    no_patterns,
    shown,
)
from polyattn.programs.language.memory import Memory
from polyattn.programs.language.patterns import Bindings, Pattern
from polyattn.programs.language.schema import Token
from polyattn.programs.language.terms import Condition, Term


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

    def malformed(self) -> list[str]:
        found = no_fields(self.fields) + no_conditions(self.where)
        if not isinstance(self.match, Pattern) or not isinstance(self.query, Pattern):
            found.append(
                "a layer joins two attributes of one token, the one that is matched and the one "
                "that is read, with one attribute of the last token; match and query must be one "
                "pattern each. To match two things at once, store their pair as one attribute"
            )
        return found

    def __str__(self) -> str:
        return f"look up {shown(self.fields)} at {self.match} = {self.query}"


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
        return f"copy {shown(self.fields)} from {self.match} as {self.query} asks"


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

    def malformed(self) -> list[str]:
        patterns = no_patterns(flag=self.flag, given=self.given)
        return no_fields(self.fields) + patterns + no_conditions(self.where)

    def refusals(self) -> list[str]:
        found = [
            f"register {each.read.attribute.name} sums differences, so it must be rounded to "
            "integers (rounding='integer')"
            for each in listed(self.fields)
            if each.read.attribute.rounding != "integer"
        ]
        if self.flag.attribute.sorts or self.flag.attribute.whole:
            found.append(f"the flag of a register holds or does not; {self.flag} has values")
        return found

    def __str__(self) -> str:
        return f"register {shown(self.fields)} if {self.given}"


def _written(term: Term, held: Token, known: Bindings, times: int) -> Writing:
    """What a term writes for what a token, or a register, holds."""
    weight = exact(term.weight)
    for bindings, count in Memory.parts(held, term.read, known):
        value = term.write.fill(bindings) if term.allows(bindings) else None
        if value is not None:
            yield (term.write.attribute.name, value), times * count * weight


def _ordered(pattern: Pattern) -> set[str]:
    return {name for name, sort in pattern.variables.items() if sort.is_ordered}
