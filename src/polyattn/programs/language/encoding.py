"""Encodings and decoding: a machine and its input as a prompt, token after token, and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema, Token
from polyattn.progress import report

# Progress is reported every so many tokens.
REPORTED = 1 << 10

# The arguments and the options of a task.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


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


@dataclass(frozen=True)
class Task:
    """One run: the prompt, how many tokens may follow, and how to read them.

    ``endless``: without the stop rule it would go on; the limit cuts it off.
    """

    prompt: list[Token]
    limit: int
    read: Callable[[Decoded], Any]
    endless: bool = False


class Encoding(ABC):
    """What a schema of the library knows about the machines it was made for."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes by the names that the library uses: n_states, n_letters, ..."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema of these sizes."""

    @abstractmethod
    def task(self, *given: Any, **options: Any) -> Task:
        """The run of a machine on an input; errors say what is wrong with them."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, machine: Any = None, given: Any = None) -> Arguments:
        """Arguments and options of ``task``: a random machine and input, unless they are given."""

    def everything(self) -> Iterator[tuple[Any, ...]]:
        """The arguments of ``task`` for every machine and every input, where that is finite."""
        raise InvalidInput(f"{type(self).__name__} cannot list all machines and inputs.")

    def resize(self, **sizes: int) -> Schema:
        """The schema of other sizes; what is not given stays."""
        unknown = set(sizes) - set(self.sizes)
        if unknown:
            raise InvalidInput(f"resize takes {', '.join(self.sizes)}; got {sorted(unknown)}.")
        return type(self)(**(self.sizes | sizes)).schema


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
