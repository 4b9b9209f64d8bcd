"""What stands in the way of compiling a program: every reason, not just the first."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from polyattn.errors import InvalidInput
from polyattn.programs.language.instructions import Instruction
from polyattn.programs.language.patterns import Pattern, Variable
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import Sort
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
    for number, instruction in enumerate(program.instructions, start=1):
        if isinstance(instruction, Instruction):
            found = [*_refusals(instruction, program.schema)]
        else:
            found = [f"{instruction!r} is not an instruction"]
        reasons += [f"instruction {number}: {reason}" for reason in dict.fromkeys(found)]
    if reasons:
        raise ProgramRefused(program.name, reasons)


def _refusals(instruction: Instruction, schema: Schema) -> Iterator[str]:
    own = instruction.refusals()
    yield from own
    if own:
        return
    for term in instruction.terms():
        for pattern in term.patterns:
            yield from _pattern(pattern, schema)
        yield from _variables(term)
        if not isfinite(term.weight) or term.weight == 0.0:
            yield f"its weight must be a finite number other than 0; got {term.weight!r}"


def _pattern(pattern: Pattern, schema: Schema) -> Iterator[str]:
    name = pattern.attribute.name
    if name not in schema.blocks:
        yield f"the schema has no attribute {name!r}; it has {', '.join(schema.blocks)}"
    elif getattr(schema, name) != pattern.attribute:
        yield f"{name!r} is another attribute than the schema's {getattr(schema, name)}"
    sorts = pattern.attribute.sorts
    if pattern.whole is None and len(pattern.arguments) != len(sorts):
        yield f"{pattern} has {len(pattern.arguments)} parts, {pattern.attribute} has {len(sorts)}"
        return
    for argument, sort in zip(pattern.arguments, sorts, strict=False):
        if isinstance(argument, Variable):
            if argument.offset and not sort.is_ordered:
                yield f"{argument} in {pattern}: a {sort.name} has no next value"
        elif argument not in sort.parts:
            yield f"{argument!r} in {pattern} is no {sort.name}; there are {_parts(sort)}"


def _variables(term: Term) -> Iterator[str]:
    seen: dict[str, tuple[str, Pattern]] = {}
    for pattern in term.patterns:
        for name, sort in pattern.variables.items():
            before, where = seen.setdefault(name, (sort.name, pattern))
            if before != sort.name:
                yield f"{name} is a {before} in {where} and a {sort.name} in {pattern}"
    bound = {name for pattern in term.patterns[1:] for name in pattern.variables}
    for name in term.write.variables.keys() - bound:
        yield f"{name} in {term.write} is not known from what is read, matched or asked"


def _parts(sort: Sort) -> str:
    numbered = [f"0 to {sort.size - 1}"] if sort.size else []
    return ", ".join([*numbered, *sort.named])
