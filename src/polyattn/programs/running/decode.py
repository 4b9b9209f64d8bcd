"""Decoding: token after token, until the stop rule or the limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.traces import Trace
from polyattn.progress import report

if TYPE_CHECKING:
    from polyattn.programs.encoding import Task


# Progress is reported every so many tokens.
REPORTED = 1 << 10


class Predictor(Protocol):
    """What can say which token comes next: the interpreter, or a layer."""

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""

    def next_token(self) -> Token:
        """The token that comes next; it is appended."""


@dataclass(frozen=True)
class Decoded:
    """What came after a prompt, and whether it ended by the stop rule or by the limit."""

    tokens: list[Token]
    stopped: bool


def decode(schema: Schema, predictor: Predictor, prompt: list[Token], limit: int) -> Decoded:
    """At most ``limit`` tokens after the prompt, or up to the one that the stop rule names."""
    if not prompt:
        raise InvalidInput("a prompt needs at least one token to go on from.")
    predictor.start(prompt)
    tokens: list[Token] = []
    while len(tokens) < limit:
        token = predictor.next_token()
        tokens.append(token)
        if len(tokens) % REPORTED == 0:
            report(len(tokens), limit)
        if schema.is_last(token):
            return Decoded(tokens, stopped=True)
    return Decoded(tokens, stopped=False)


def run_encoded(
    schema: Schema, predictor: Predictor, given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Write what was given as a prompt, decode, and read what came out."""
    (task,) = tasks_of(schema, [given], options)
    return task.read(decode(schema, predictor, task.prompt, task.limit))


def tasks_of(
    schema: Schema, given: Iterable[tuple[Any, ...]], options: dict[str, Any]
) -> list[Task]:
    """The runs of machines on inputs, by the encoding of the schema."""
    if schema.encoding is None:
        raise InvalidInput(
            "this schema has no encoding of machines and inputs: decode a prompt of tokens with "
            "decode(prompt, limit), or give the schema an encoding."
        )
    return [schema.encoding.task(*each, **options) for each in given]


def recorded(schema: Schema, task: Task, found: Decoded, source: Any) -> Trace:
    """The trace of a task that was decoded."""
    prompt, completion = schema.encode(task.prompt), schema.encode(found.tokens)
    return Trace(schema, prompt, completion, source, cut=task.endless and not found.stopped)
