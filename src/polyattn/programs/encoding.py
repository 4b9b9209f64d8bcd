"""Encodings: how machines and inputs are written as prompts, and answers are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.running.decode import Decoded

# The arguments and the options of a task.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


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
