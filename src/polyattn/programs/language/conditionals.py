"""Conditionals: what follows from what the last token itself holds.

A layer finds the last token among all others, by what it holds.  Others that hold the same are
found with it: how many there are is part of the instruction, and the interpreter checks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyattn.errors import InvalidInput
from polyattn.programs.language.instruction import (
    Instruction,
    Writing,
    atom_of,
    no_conditions,
    no_patterns,
    require_one_hot,
)
from polyattn.programs.language.memory import Memory
from polyattn.programs.language.patterns import Bindings, Pattern
from polyattn.programs.language.schema import Token
from polyattn.programs.language.terms import Condition, Term


@dataclass(frozen=True)
class IfThen(Instruction):
    """If the last token holds ``when``, write.

    ``seen`` tokens hold the same value by then, the last one included: a layer counts them all,
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
        for known, times in memory.last_holds(self.when):
            value = self.write.fill(known)
            if value is None or not all(condition.holds(known) for condition in self.where):
                continue
            seen = len(memory.holding(atom_of(self.when, known)))
            if seen != self.seen:
                raise InvalidInput(
                    f"'{self}' assumes that {self.seen} tokens hold the same by then; {seen} do."
                )
            yield (self.write.attribute.name, value), times

    def malformed(self) -> list[str]:
        found = no_patterns(write=self.write, when=self.when) + no_conditions(self.where)
        if not isinstance(self.seen, int):
            found.append(f"seen must be a number of tokens; got {self.seen!r}")
        return found

    def refusals(self) -> list[str]:
        found = require_one_hot(self.when)
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
class Conjunction(Instruction):
    """If the last token holds ``first`` and ``second``, write.

    Assumption: no other token holds ``first`` together with the same value of ``second``.
    """

    write: Pattern
    first: Pattern
    second: Pattern

    def terms(self) -> list[Term]:
        return [Term(self.write, self.first, self.second, self.second)]

    def act(self, memory: Memory) -> Writing:
        for asked, times in memory.last_holds(self.second):
            self._check_alone(memory, asked)
            for known, held in memory.parts(memory.last, self.first, asked):
                value = self.write.fill(known)
                if value is not None:
                    yield (self.write.attribute.name, value), times * held

    def malformed(self) -> list[str]:
        return no_patterns(write=self.write, first=self.first, second=self.second)

    def refusals(self) -> list[str]:
        return require_one_hot(self.second)

    def _check_alone(self, memory: Memory, asked: Bindings) -> None:
        """The layer finds all tokens with this ``second``, also when the last has no ``first``."""

        def has_first(token: Token) -> bool:
            return any(True for _ in memory.parts(token, self.first, asked))

        both = sum(map(has_first, memory.holding(atom_of(self.second, asked))))
        if both != has_first(memory.last):
            raise InvalidInput(
                f"'{self}' assumes that no other token holds {self.first} and the same "
                f"{self.second}; {both} tokens do."
            )

    def __str__(self) -> str:
        return f"if {self.first} and {self.second} then {self.write}"
