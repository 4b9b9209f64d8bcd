"""A fixed automaton: its table is in the heads, its run is one token per letter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from polyattn.errors import InvalidInput, require_integer
from polyattn.files.fields import Check, integer, listed, require
from polyattn.programs.language.attributes import Attribute, variables
from polyattn.programs.language.encoding import Arguments, Decoded, Task
from polyattn.programs.language.instructions import Lookup
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.library.automata import AutomatonEncoding
from polyattn.programs.library.runs import (
    MOST_COORDINATES,
    SIZE,
    PlannedRun,
    held,
    named_machine,
    require_kind,
)
from polyattn.programs.machines.dfa import DFA


def fixed_dfa(dfa: DFA, max_length: int) -> Program:
    """Runs one automaton on words: ``run(word)`` gives the state after each letter.

    Tokens: pos(t) letter(x) for the word, then at(t, q): in state q after t letters.
    """
    schema = FixedDFAEncoding(dfa, max_length).schema
    (t,) = variables("t")
    instructions = [
        Lookup(
            schema.at(t + 1, int(dfa.transitions[q, x])) << schema.letter(x),
            match=schema.pos(t),
            query=schema.at(t, q),
        )
        for q, x in product(range(dfa.n_states), range(dfa.n_letters))
    ]
    return Program(schema, tuple(instructions), "fixed DFA")


def _table(value: Any, where: str) -> None:
    """Check a list of the transitions and the accepting states of an automaton."""
    require(isinstance(value, list) and len(value) == 2, where, "transitions and states", value)
    listed(listed(integer(0, MOST_COORDINATES)))(value[0], f"{where}[0]")
    listed(integer(0, MOST_COORDINATES))(value[1], f"{where}[1]")


@dataclass(frozen=True)
class FixedDFAEncoding(AutomatonEncoding):
    """Words as tokens, for one automaton."""

    name, layout = "fixed_dfa", (0, 1)
    fields: ClassVar[Mapping[str, Check]] = {"dfa": _table, "max_length": SIZE}

    dfa: DFA
    max_length: int

    def __post_init__(self) -> None:
        require_kind(self.dfa, DFA, "fixed_dfa(dfa, max_length)")
        require_integer("max_length", self.max_length)

    @cached_property
    def schema(self) -> Schema:
        # A state and a letter stay what they are: the automaton knows them by name.
        state = symbols("state", self.dfa.n_states, landmarks=self.dfa.n_states)
        letter = symbols("letter", self.dfa.n_letters, landmarks=self.dfa.n_letters)
        attributes = (
            Attribute("pos", (line("time", self.max_length),)),
            Attribute("letter", (letter,)),
            Attribute("at", (line("time", self.max_length + 1, landmarks=1), state)),
        )
        return Schema(attributes, encoding=self)

    def task(self, word: Any) -> Task:
        letters, token = self.letters(self.dfa, word), self.schema.token
        prompt = [token(pos=t, letter=x) for t, x in enumerate(letters)]

        def read(decoded: Decoded) -> list[int]:
            return [int(held(each, "at", i)[1]) for i, each in enumerate(decoded.tokens)]

        return Task([*prompt, token(at=(0, 0))], limit=len(letters), read=read)

    def sample(
        self,
        rng: np.random.Generator,
        machine: Any = None,
        given: Any = None,
        lengths: tuple[int, int] | None = None,
    ) -> Arguments:
        """A random word, of any of these lengths (1 to the longest unless given)."""
        if machine is not None:
            raise InvalidInput("this program has its automaton built in; give inputs only.")
        return (self.random_word(rng, self.dfa, given, lengths),), {}

    def everything(self, lengths: tuple[int, int] | None = None) -> Iterator[tuple[Any, ...]]:
        """Every word of these lengths (all lengths unless given)."""
        return ((word,) for word in self.all_words(self.dfa.n_letters, lengths))

    def plan_run(self, machine: Any, given: Any, _max_steps: int) -> PlannedRun:
        named, dfa = named_machine(self.dfa if machine is None else machine, DFA)
        if dfa != self.dfa:
            raise InvalidInput(
                "machine must be the automaton that this program has built in; leave it out, or "
                "give the same with names."
            )
        (word,), _ = self.sample(np.random.default_rng(0))
        return self.plan_word((), named, given, word, drawn=False)
