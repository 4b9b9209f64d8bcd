"""A fixed automaton, its table in the heads; and what all encodings of automata share.

That is how words are checked and drawn, and how people see runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from polyattn.errors import InvalidInput, require_integer
from polyattn.files.fields import Check, integer, listed, require
from polyattn.programs.language.attributes import Attribute, variables
from polyattn.programs.language.instructions import Lookup
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Arguments, Decoded, Schema, Task
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.library.runs import (
    MOST_COORDINATES,
    SIZE,
    BrokenTrace,
    LibraryEncoding,
    PlannedRun,
    held,
    letters_of,
    named_machine,
    require_kind,
    require_range,
)
from polyattn.programs.machines import DFA, NamedMachine
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun

# Longer words are not repeated in a sentence.
LONGEST = 60


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


class AutomatonEncoding(LibraryEncoding):
    """An encoding of words that automata run on.

    layout : how many tokens come before the first letter, and how many there are for each
    """

    layout: ClassVar[tuple[int, int]]
    max_length: int

    def letters(self, dfa: DFA, word: Any) -> list[int]:
        """The letters of a word that is not too long."""
        letters = dfa.check(word)
        if len(letters) > self.max_length:
            raise InvalidInput(
                f"the word has {len(letters)} letters; this program was made for up to "
                f"{self.max_length} (max_length)."
            )
        return letters

    def random_word(
        self, rng: np.random.Generator, dfa: DFA, given: Any, lengths: Any
    ) -> list[int]:
        """The given word, or a random one of any length, or of one between two."""
        least, most = self._lengths(lengths)
        if given is not None:
            return dfa.check(given)
        return rng.integers(dfa.n_letters, size=rng.integers(least, most + 1)).tolist()

    def all_words(self, n_letters: int, lengths: Any) -> Iterator[list[int]]:
        """Every word of these lengths."""
        least, most = self._lengths(lengths)
        words = (product(range(n_letters), repeat=length) for length in range(least, most + 1))
        return (list(word) for of_length in words for word in of_length)

    def _lengths(self, lengths: Any) -> tuple[int, int]:
        """Lengths of words that are not empty and fit; all of them unless given."""
        if lengths is None:
            return 1, self.max_length
        return require_range("lengths", lengths, 1, self.max_length)

    def plan_word(
        self,
        machine: tuple[DFA, ...],
        named: NamedMachine,
        given: Any,
        otherwise: list[int],
        drawn: bool,
    ) -> PlannedRun:
        """The run of an automaton on a word: the given one, that of its file, or another.

        machine : what the task is given beside the word
        drawn : whether the machine was drawn at random
        """
        found = named.input if given is None else letters_of(named, given)
        word = list(otherwise if found is None else found)

        def show(watched: WatchedRun, states: list[int], n_shown: int) -> ShownRun:
            if len(states) != len(word) or any(state >= len(named.states) for state in states):
                raise BrokenTrace("they tell of states that there are not, or of too few.")
            return _shown(watched, named, self.layout, word, states, n_shown)

        return PlannedRun(self.task(*machine, word), show, named, (drawn, found is None))


def _table(value: Any, where: str) -> None:
    """Check a list of the transitions and the accepting states of an automaton."""
    require(isinstance(value, list) and len(value) == 2, where, "transitions and states", value)
    listed(listed(integer(0, MOST_COORDINATES)))(value[0], f"{where}[0]")
    listed(integer(0, MOST_COORDINATES))(value[1], f"{where}[1]")


@dataclass(frozen=True)
class FixedDFAEncoding(AutomatonEncoding):
    """Words as tokens, for one automaton."""

    name, layout = "fixed_dfa", (0, 1)

    dfa: DFA
    max_length: int

    @classmethod
    def checks(cls) -> dict[str, Check]:
        return {"dfa": _table, "max_length": SIZE}

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


def _shown(
    watched: WatchedRun,
    named: NamedMachine,
    layout: tuple[int, int],
    word: list[int],
    states: list[int],
    n_shown: int,
) -> ShownRun:
    """The run of at most so many letters."""
    dfa, letters = named.machine, [named.letters[letter] for letter in word]
    assert isinstance(dfa, DFA)  # noqa: S101 - the caller has looked at its kind
    path = [0, *states]
    before = [named.states[state] for state in path]
    width = max(map(len, named.letters))
    steps, lines = [], [f"    0  {'':{width}}     {before[0]}"]
    for number, letter in enumerate(letters[:n_shown]):
        state, after = before[number], before[number + 1]
        then = "stays there" if state == after else f"goes to {after}"
        text = f"In state {state} it reads {letter} and {then}."
        written = watched.of_step(number, layout, last=False)
        rule = (path[number], word[number])
        steps.append(RunStep(state, text, number, rule=rule, written=written))
        lines.append(f"{number + 1:5d}  {letter:{width}}  -> {after}")
    accepts = path[-1] in dfa.accepting if named.decides else None
    end = f"It ends in {before[-1]}"
    end += "." if accepts is None else f", which {'accepts' if accepts else 'rejects'}."
    if len(word) <= n_shown:
        rest = watched.of_step(len(word), layout, last=True)
        steps.append(RunStep(before[-1], f"The word is read. {end}", written=rest))
    else:
        lines.append(f"       ... {len(word) - n_shown} letters more (--steps)")
    said = named.written(word)
    short = said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
    facts: dict[str, object] = {
        "machine": named.title, "word": said or "(empty)", "final state": before[-1],
    }  # fmt: skip
    if accepts is not None:
        facts["accepted"] = "yes" if accepts else "no"
    return ShownRun(
        watched.decoded.tokens, steps, len(word),
        [f"The word is {short or 'empty'}. {end}", *watched.sureness],
        dfa.run(word) == states, cells=letters, reads=True, named=named, result=states,
        lines=lines, facts=facts,
        content={
            "kind": "dfa", "machine": named.name, "word": letters, "start": before[0],
            "states": before[1:], "final": before[-1], "accepts": accepts,
        },
    )  # fmt: skip
