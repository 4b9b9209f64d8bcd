"""Programs: a schema and a list of instructions, with a meaning of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from polyattn.display import ReportedProgram
from polyattn.errors import InvalidType
from polyattn.programs.language.encoding import run_encoded
from polyattn.programs.language.instruction import Instruction
from polyattn.programs.language.interpreter import Interpreter
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.terms import Term


@dataclass(frozen=True)
class Program(ReportedProgram):
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

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.schema.n_dims} coordinates"]
        lines += [f"  {attribute}" for attribute in self.schema.attributes]
        lines += [f"{i + 1:3d}. {each}" for i, each in enumerate(self.instructions)]
        return "\n".join(lines)
