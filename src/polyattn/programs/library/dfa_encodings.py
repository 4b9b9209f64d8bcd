"""Automata and words as tokens, in the two styles of the universal automaton."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from polyattn.errors import require_integer
from polyattn.programs.encoding import Arguments, Encoding, Task
from polyattn.programs.language.attributes import INTEGER, Attribute
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.library.arguments import (
    all_words,
    held,
    random_word,
    require_fit,
    require_kind,
    require_word,
)
from polyattn.programs.machines.dfa import DFA


@dataclass(frozen=True)
class DFAEncoding(Encoding):
    """What both styles share: sizes, checks, random and all automata."""

    n_states: int
    n_letters: int
    max_length: int

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            require_integer(name, size)

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "n_states": self.n_states,
            "n_letters": self.n_letters,
            "max_length": self.max_length,
        }

    def task(self, dfa: DFA, word: Any) -> Task:
        require_kind(dfa, DFA, "run(dfa, word)")
        require_fit(dfa, self.n_states, self.n_letters)
        letters = require_word(dfa, word, self.max_length)
        return self._task(dfa, letters)

    def sample(
        self,
        rng: np.random.Generator,
        machine: Any = None,
        given: Any = None,
        lengths: tuple[int, int] | None = None,
    ) -> Arguments:
        """A random table and word, of any of these lengths (1 to the longest unless given)."""
        if machine is None:
            machine = DFA(rng.integers(self.n_states, size=(self.n_states, self.n_letters)))
        require_kind(machine, DFA, "traces(program, machines=[dfa])")
        return (machine, random_word(rng, machine, given, lengths, self.max_length)), {}

    def everything(self, lengths: tuple[int, int] | None = None) -> Iterator[tuple[Any, ...]]:
        """Every table with every word of these lengths (all lengths unless given)."""
        shape = (self.n_states, self.n_letters)
        tables = product(range(self.n_states), repeat=self.n_states * self.n_letters)
        words = list(all_words(DFA(np.zeros(shape, dtype=int)), lengths, self.max_length))
        machines = (DFA(np.array(table).reshape(shape)) for table in tables)
        return ((dfa, list(word)) for dfa in machines for word in words)

    @abstractmethod
    def _task(self, dfa: DFA, word: list[int]) -> Task: ...


class OneHotEncoding(DFAEncoding):
    """Two tokens per letter: what is read, and what is looked up."""

    @cached_property
    def schema(self) -> Schema:
        state = symbols("state", self.n_states, landmarks=1)
        letter = symbols("letter", self.n_letters)
        attributes = (
            Attribute("px", (line("time", self.max_length, landmarks=1), letter)),
            Attribute("cpos", (line("time", self.max_length + 1, landmarks=1),)),
            Attribute("state", (state,)),
            Attribute("key", (state, letter)),
        )
        return Schema(attributes, stop_without=("px", "key"), encoding=self)

    def _task(self, dfa: DFA, word: list[int]) -> Task:
        token = self.schema.token
        table = [
            token(key=pair, state=int(after)) for pair, after in np.ndenumerate(dfa.transitions)
        ]
        letters = [token(px=(t, x)) for t, x in enumerate(word)]
        return Task(
            [*table, *letters, token(cpos=0)],
            limit=2 * len(word) + 1,
            read=lambda decoded: _states(decoded.tokens[0::2], len(word)),
        )


class RegisterEncoding(DFAEncoding):
    """One token per letter: the table of the current letter is in a register."""

    @cached_property
    def schema(self) -> Schema:
        state = symbols("state", self.n_states, landmarks=1)
        letter = symbols("letter", self.n_letters)
        attributes = (
            Attribute("flag"),
            Attribute("pos", (line("time", self.max_length + 3, landmarks=2),)),
            Attribute("letter", (letter,)),
            Attribute("dx", (letter,), rounding=INTEGER),
            Attribute("T", (state, state), rounding=INTEGER),
            Attribute("state", (state,)),
        )
        return Schema(attributes, encoding=self)

    def _task(self, dfa: DFA, word: list[int]) -> Task:
        token = self.schema.token
        table = [
            token(letter=x, T=(q, int(after))) for (q, x), after in np.ndenumerate(dfa.transitions)
        ]
        letters = [token(pos=t + 3, letter=x) for t, x in enumerate(word)]
        return Task(
            [*table, *letters, token(flag=(), pos=0)],
            limit=len(word) + 2,
            read=lambda decoded: _states(decoded.tokens[1:], len(word)),
        )


def _states(tokens: list[Token], n_letters: int) -> list[int]:
    """The states after each letter, from tokens that hold the states before and after all."""
    padded = [*tokens, *([{}] * (n_letters + 1 - len(tokens)))]
    states = [held(token, "state", number) for number, token in enumerate(padded)]
    return [int(value[0]) for value in states[1:]]
