"""Programs: what they mean (to the interpreter, slow and literal), and why one is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

from polyattn.display import Described, Description, ReportedProgram
from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs.language.attributes import ONE_HOT, Bindings, Pattern, Value, Variable
from polyattn.programs.language.schema import Atom, Schema, Token, require_count, run_encoded
from polyattn.programs.language.sorts import CIRCLE, Sort
from polyattn.programs.language.terms import Exact, Term
from polyattn.quoting import counted

# What an instruction writes: how much of which atom.
Writing: TypeAlias = Iterator[tuple[Atom, Exact]]


@dataclass(frozen=True)
class Program(ReportedProgram, Described):
    """What to write after the last token, instruction by instruction.

    All instructions act at once; what they write is added up, rounded block by block, and
    appended as the next token, until the stop rule of the schema.

    Parameters
    ----------
    schema : Schema
    instructions : sequence of Instruction
    name : str
    """

    schema: Schema
    instructions: tuple[Instruction, ...]
    name: str = "program"

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise InvalidType(f"schema must be a Schema; got {type(self.schema).__name__}.")
        if not isinstance(self.instructions, Iterable):
            kind = type(self.instructions).__name__
            raise InvalidType(f"instructions must be a sequence of them; got a {kind}.")
        object.__setattr__(self, "instructions", tuple(self.instructions))

    def terms(self) -> list[Term]:
        """The terms of all instructions, in order."""
        return [term for instruction in self.instructions for term in instruction.terms()]

    def interpret(self, *given: Any, **options: Any) -> Any:
        """Run by the meaning of the instructions; arguments and result as for ``compiled.run``."""
        return run_encoded(self.schema, Interpreter(self), given, options)

    def describe(self) -> Description:
        facts = {"n_dims": self.schema.n_dims, "instructions": len(self.instructions)}
        return program_description(self, facts, self.instructions)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.schema.n_dims} coordinates"]
        lines += [f"  {attribute}" for attribute in self.schema.attributes]
        lines += [f"{i + 1:3d}. {each}" for i, each in enumerate(self.instructions)]
        return "\n".join(lines)


def program_description(program: Any, facts: dict[str, Any], lines: Iterable[Any]) -> Description:
    """What a program is: its name, the sizes of its tokens, and what it does line by line."""
    size = counted(program.schema.n_dims, "coordinate")
    about = f"{program.name[:1].upper()}{program.name[1:]}, tokens of {size}"
    said = tuple(map(str, lines))
    return Description("A program as a layer of attention", about, facts=facts, lines=said)


class Instruction(ABC):
    """One line of a program."""

    @abstractmethod
    def terms(self) -> list[Term]:
        """The products of a layer that do what the instruction means."""

    @abstractmethod
    def act(self, memory: Memory) -> Writing:
        """What is written after the last token, by the meaning of the instruction."""

    def malformed(self) -> list[str]:
        """What is no pattern, field or number where there must be one: there are no terms then."""
        return []

    def refusals(self) -> list[str]:
        """What a layer cannot do of it, beyond what is wrong with its patterns."""
        return []


class Interpreter:
    """Predicts the next token by acting out every instruction on the tokens so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memory = Memory([])

    def start(self, prompt: list[Token]) -> None:
        self._memory = Memory(prompt)

    def next_token(self) -> Token:
        """What all instructions write after the last token, rounded; it becomes the last."""
        written: dict[Atom, Exact] = defaultdict(int)
        for instruction in self.program.instructions:
            for atom, amount in instruction.act(self._memory):
                written[atom] += amount
        token = rounded(self.program.schema, written)
        self._memory.append(token)
        return token


def rounded(schema: Schema, written: dict[Atom, Exact]) -> Token:
    """The nearest token, block by block; ``Schema.round`` says the same of arrays."""
    token: Token = {}
    for attribute in schema.attributes:
        block = {atom: x for atom, x in written.items() if atom[0] == attribute.name}
        if attribute.rounding == ONE_HOT:
            # The first of several largest, in the order of the coordinates.
            ranked = sorted(block, key=lambda atom: (-block[atom], schema.coordinates[atom]))
            token |= {atom: 1 for atom in ranked[:1] if block[atom] > 0.5}
        else:
            token |= {atom: require_count(atom, round(x)) for atom, x in block.items() if round(x)}
    return token


class Memory:
    """Tokens in the order in which they came, with an index of who holds what."""

    def __init__(self, tokens: list[Token]) -> None:
        self.last: Token = {}
        self._holders: dict[str, dict[Value, list[Token]]] = defaultdict(lambda: defaultdict(list))
        self._registers: dict[tuple[str, str], Counter[Atom]] = defaultdict(Counter)
        for token in tokens:
            self.append(token)

    def append(self, token: Token) -> None:
        """Remember one more token, which is now the last."""
        self.last = token
        flags = {name: times for (name, value), times in token.items() if value == ()}
        for (name, value), times in token.items():
            self._holders[name][value].append(token)
            for flag, held in flags.items():
                self._registers[flag, name][name, value] += held * times

    @staticmethod
    def parts(token: Token, pattern: Pattern, known: Bindings) -> Iterator[tuple[Bindings, int]]:
        """How a token holds the pattern: variables, some of them known, and how many times."""
        for (name, value), times in token.items():
            if times and name == pattern.attribute.name:
                merged = pattern.match(value, known)
                if merged is not None:
                    yield merged, times

    def tokens_with(
        self, pattern: Pattern, known: Bindings
    ) -> Iterator[tuple[Token, Bindings, int]]:
        """All tokens that hold the pattern: token, variables, and how many times it does."""
        for value, tokens in self._holders[pattern.attribute.name].items():
            merged = pattern.match(value, known)
            if merged is not None:
                for token in tokens:
                    yield token, merged, token[pattern.attribute.name, value]

    def holding(self, pattern: Pattern, known: Bindings) -> list[Token]:
        """All tokens that hold a pattern whose variables are known, since one token holds it."""
        value = pattern.fill(known)
        assert value is not None  # noqa: S101 - it was found in a token
        return self._holders[pattern.attribute.name][value]

    def register(self, flag: str, name: str) -> Token:
        """What the tokens with the flag have written into an attribute, summed up."""
        return dict(self._registers[flag, name])


class ProgramRefused(InvalidInput):
    """A program that one layer cannot compute; ``reasons`` has all of them."""

    def __init__(self, name: str, reasons: list[str]) -> None:
        self.reasons = reasons
        listed = "".join(f"\n- {reason}." for reason in reasons)
        super().__init__(f"{name} cannot be compiled:{listed}")


def validate(program: Program) -> None:
    """Raise ProgramRefused with all reasons, if there are any."""
    reasons: list[str] = []
    if not program.instructions:
        reasons.append("it has no instructions")
    for pattern in program.schema.stop:
        reasons += [f"stop rule: {reason}" for reason in pattern_refusals(pattern, program.schema)]
    for number, instruction in enumerate(program.instructions, start=1):
        if not isinstance(instruction, Instruction):
            found = [f"{instruction!r} is not an instruction"]
        elif not (found := instruction.malformed()):
            found = [*instruction.refusals()]
            for term in instruction.terms():
                found += term_refusals(term, program.schema)
        reasons += [f"instruction {number}: {reason}" for reason in dict.fromkeys(found)]
    if reasons:
        raise ProgramRefused(program.name, reasons)


def term_refusals(term: Term, schema: Schema) -> Iterator[str]:
    """What is wrong with a term of a program with this schema."""
    for pattern in term.patterns:
        yield from pattern_refusals(pattern, schema)
    yield from _variables(term)
    for condition in term.where:
        for side in (condition.left, condition.right):
            if isinstance(side, Variable) and side.name not in term.variables:
                yield f"{side.name} in '{condition}' does not occur in {term.write} << {term.read}"
            if isinstance(side, Variable) and side.offset:
                yield f"{side} in '{condition}': conditions compare variables without steps"
    if not isfinite(term.weight) or term.weight == 0.0:
        yield f"its weight must be a finite number other than 0; got {term.weight!r}"
    elif float(term.weight) != term.weight:
        yield (
            f"its weight must be a number that float64 holds, as layers do; {term.weight!r} "
            f"would be rounded to {float(term.weight):.17g}"
        )


def pattern_refusals(pattern: Pattern, schema: Schema) -> Iterator[str]:
    """What is wrong with a pattern of a program with this schema."""
    name = pattern.attribute.name
    if name not in schema.blocks:
        yield f"the schema has no attribute {name!r}; it has {', '.join(schema.blocks)}"
    elif getattr(schema, name) != pattern.attribute:
        yield f"{name!r} is another attribute than the schema's {getattr(schema, name)}"
    sorts = pattern.attribute.sorts
    if pattern.whole is not None and pattern.whole not in pattern.attribute.whole:
        yield f"{pattern.attribute} has no value {pattern.whole!r}"
    if pattern.whole is None and len(pattern.arguments) != len(sorts):
        yield f"{pattern} has {len(pattern.arguments)} parts, {pattern.attribute} has {len(sorts)}"
        return
    for argument, sort in zip(pattern.arguments, sorts, strict=False):
        if isinstance(argument, Variable):
            if argument.offset and not sort.is_ordered:
                yield f"{argument} in {pattern}: a {sort.name} has no next value"
        elif not isinstance(argument, int | str) or argument not in sort.parts:
            numbered = [f"0 to {sort.size - 1}"] if sort.size else []
            there = ", ".join([*numbered, *sort.named])
            yield f"{argument!r} in {pattern} is no {sort.name}; there are {there}"


def _variables(term: Term) -> Iterator[str]:
    seen: dict[str, tuple[Sort, Pattern]] = {}
    for pattern in term.patterns:
        for argument, sort in zip(pattern.arguments, pattern.attribute.sorts, strict=False):
            if not isinstance(argument, Variable):
                continue
            before, where = seen.setdefault(argument.name, (sort, pattern))
            if before.name != sort.name:
                both = f"a {before.name} in {where} and a {sort.name} in {pattern}"
                yield f"{argument.name} is {both}"
            # Lines may have different lengths, but a step around a circle needs one circle.
            elif before.kind != sort.kind or (sort.kind == CIRCLE and before.size != sort.size):
                yield f"{argument.name} is one of {before} in {where} and of {sort} in {pattern}"
    bound = {name for pattern in term.patterns[1:] for name in pattern.variables}
    for name in sorted(term.write.variables.keys() - bound):
        yield f"{name} in {term.write} is not known from what is read, matched or asked"
