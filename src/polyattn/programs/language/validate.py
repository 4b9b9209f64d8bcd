"""What stands in the way of compiling a program: every reason, not just the first."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from polyattn.errors import InvalidInput
from polyattn.programs.language.attributes import Pattern, Variable
from polyattn.programs.language.instruction import Instruction
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, Sort
from polyattn.programs.language.terms import Term


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
        if isinstance(instruction, Instruction):
            found = [*_refusals(instruction, program.schema)]
        else:
            found = [f"{instruction!r} is not an instruction"]
        reasons += [f"instruction {number}: {reason}" for reason in dict.fromkeys(found)]
    if reasons:
        raise ProgramRefused(program.name, reasons)


def _refusals(instruction: Instruction, schema: Schema) -> Iterator[str]:
    malformed = instruction.malformed()
    yield from malformed
    if malformed:
        return
    yield from instruction.refusals()
    for term in instruction.terms():
        yield from term_refusals(term, schema)


def term_refusals(term: Term, schema: Schema) -> Iterator[str]:
    """What is wrong with a term of a program with this schema."""
    for pattern in term.patterns:
        yield from pattern_refusals(pattern, schema)
    yield from _variables(term)
    yield from _conditions(term)
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
            yield f"{argument!r} in {pattern} is no {sort.name}; there are {_parts(sort)}"


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
            elif not _comparable(before, sort):
                yield f"{argument.name} is one of {before} in {where} and of {sort} in {pattern}"
    bound = {name for pattern in term.patterns[1:] for name in pattern.variables}
    for name in sorted(term.write.variables.keys() - bound):
        yield f"{name} in {term.write} is not known from what is read, matched or asked"


def _comparable(one: Sort, other: Sort) -> bool:
    """Lines may have different lengths, but a step around a circle needs one circle."""
    return one.kind == other.kind and (one.kind != CIRCLE or one.size == other.size)


def _conditions(term: Term) -> Iterator[str]:
    for condition in term.where:
        for side in (condition.left, condition.right):
            if not isinstance(side, Variable):
                continue
            if side.name not in term.variables:
                yield f"{side.name} in '{condition}' does not occur in {term.write} << {term.read}"
            if side.offset:
                yield f"{side} in '{condition}': conditions compare variables without steps"


def _parts(sort: Sort) -> str:
    numbered = [f"0 to {sort.size - 1}"] if sort.size else []
    return ", ".join([*numbered, *sort.named])
