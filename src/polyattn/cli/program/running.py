"""What runs of both kinds of machines share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType

from polyattn.programs import Compiled, Program
from polyattn.programs import compile as compile_program
from polyattn.programs.language.attributes import Attribute, Value
from polyattn.programs.language.encoding import tasks_of
from polyattn.programs.language.schema import Token
from polyattn.programs.machines import NamedMachine
from polyattn.programs.words import value_words


@dataclass(frozen=True)
class Ran:
    """A run: the layer, the tokens it wrote, and what is told of it.

    content : for JSON
    text, rows : for people
    checks : whether each of the other ways came to the same
    """

    named: NamedMachine
    compiled: Compiled
    tokens: list[Token]
    content: dict[str, Any]
    text: list[RenderableType]
    rows: dict[str, object]
    checks: dict[str, bool] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether no other way came to something else."""
        return all(self.checks.values())


def execute(program: Program, *given: Any, **options: Any) -> tuple[Compiled, Any, list[Token]]:
    """Compile and run: the layer, the result, and the tokens that were written."""
    compiled = compile_program(program)
    (task,) = tasks_of(program.schema, [given], options)
    decoded = compiled.decode(task.prompt, task.limit)
    return compiled, task.read(decoded), decoded.tokens


def token_lines(ran: Ran, steps: int) -> list[str]:
    """The first tokens in words, states and letters by their names."""
    attributes = {each.name: each for each in ran.compiled.schema.attributes}
    most = 2 * steps + 1
    return [
        " ".join(
            _atom(attributes[name], value, times, ran.named)
            for (name, value), times in token.items()
        )
        for token in ran.tokens[:most]
    ]


def _atom(attribute: Attribute, value: Value, times: int, named: NamedMachine) -> str:
    sign = {1: "", -1: "-"}.get(times, f"{times}*")
    inside = value_words(attribute, value, named)
    return f"{sign}{attribute.name}({inside})" if inside else f"{sign}{attribute.name}"
