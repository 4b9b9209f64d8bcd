"""Programs: a schema and a list of instructions, and the interpreter that says what they mean.

The interpreter is slow and literal: the reference for layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from polyattn.display import Described, Description, ReportedProgram
from polyattn.errors import InvalidType
from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.encoding import run_encoded
from polyattn.programs.language.instruction import Instruction, Memory
from polyattn.programs.language.schema import Atom, Schema, Token, require_count
from polyattn.programs.language.terms import Exact, Term
from polyattn.quoting import counted


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
    return Description(
        "A program as a layer of attention", about, facts=facts, lines=tuple(map(str, lines))
    )


class Interpreter:
    """Predicts the next token by acting out every instruction on the tokens so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memory = Memory([])

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
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
