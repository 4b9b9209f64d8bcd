"""A fixed automaton, its table in the heads; and what all encodings of automata share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.language.attributes import Attribute, variables
from polyattn.programs.language.instructions import Lookup
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Arguments, Decoded, Schema, Task
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.library import runs
from polyattn.programs.library.runs import LibraryEncoding, PlannedRun, Range
from polyattn.programs.machines import DFA
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
    built_in : whether the automaton is part of the program; ``task`` is given a word alone then
    """

    layout: ClassVar[tuple[int, int]]
    built_in: ClassVar[bool] = False
    max_length: int

    @abstractmethod
    def automaton(self, rng: Generator, machine: Any) -> DFA:
        """The automaton of a sample: the given one, or a random one."""

    @abstractmethod
    def automata(self) -> Iterator[DFA]:
        """All automata that there are."""

    def letters(self, dfa: DFA, word: Any) -> list[int]:
        """The letters of a word that is not too long."""
        letters = dfa.check(word)
        if len(letters) > self.max_length:
            raise InvalidInput(
                f"the word has {len(letters)} letters; this program was made for up to "
                f"{self.max_length} (max_length)."
            )
        return letters

    def sample(
        self, rng: Generator, machine: Any = None, given: Any = None, lengths: Range | None = None
    ) -> Arguments:
        """An automaton and a word, of any of these lengths (1 to the longest unless given)."""
        dfa, possible = self.automaton(rng, machine), self._lengths(lengths)
        word = _random_word(rng, dfa, possible) if given is None else dfa.check(given)
        return self._arguments(dfa, word), {}

    def everything(self, lengths: Range | None = None) -> Iterator[tuple[Any, ...]]:
        """Every automaton with every word of these lengths (all lengths unless given)."""
        possible = self._lengths(lengths)
        return (
            self._arguments(dfa, list(word))
            for dfa in self.automata()
            for length in possible
            for word in product(range(dfa.n_letters), repeat=length)
        )

    def plan_run(self, machine: Any, given: Any, _max_steps: int) -> PlannedRun:
        """The run on the given word, that of the machine's file, or a random one."""
        rng = np.random.default_rng(0)
        drawn = machine is None and not self.built_in
        machine = self.automaton(rng, None) if machine is None else machine
        named, dfa = runs.named_machine(machine, DFA)
        found = named.input if given is None else runs.letters_of(named, given)
        word = _random_word(rng, dfa, self._lengths(None)) if found is None else list(found)
        task, placed = self.task(*self._arguments(dfa, word)), replace(named, input=tuple(word))
        return PlannedRun(task, self._shown, placed, (drawn, found is None))

    def _arguments(self, dfa: DFA, word: list[int]) -> tuple[Any, ...]:
        return (word,) if self.built_in else (dfa, word)

    def _lengths(self, lengths: Any) -> range:
        """Lengths of words that are not empty and fit; all of them unless given."""
        given = (1, self.max_length) if lengths is None else lengths
        least, most = runs.require_range("lengths", given, 1, self.max_length)
        return range(least, most + 1)

    def _shown(self, watched: WatchedRun, states: list[int], n_shown: int) -> ShownRun:
        """The run of at most so many letters of the word in ``watched.named``."""
        named: Any = watched.named
        word, dfa = named.input, named.machine
        if len(states) != len(word) or any(state >= len(named.states) for state in states):
            raise runs.BrokenTrace("they have states that there are not, or too few.")
        letters = [named.letters[letter] for letter in word]
        path = [0, *states]
        before = [named.states[state] for state in path]
        width = max(map(len, named.letters))
        steps, lines = [], [f"    0  {'':{width}}     {before[0]}"]
        for number, letter in enumerate(letters[:n_shown]):
            state, after = before[number], before[number + 1]
            then = "stays there" if state == after else f"goes to {after}"
            text = f"In state {state} it reads {letter} and {then}."
            written = watched.of_step(number, self.layout, last=False)
            rule = (path[number], word[number])
            steps.append(RunStep(state, text, number, rule=rule, written=written))
            lines.append(f"{number + 1:5d}  {letter:{width}}  -> {after}")
        accepts = path[-1] in dfa.accepting if named.decides else None
        end = f"It ends in {before[-1]}"
        end += "." if accepts is None else f", which {'accepts' if accepts else 'rejects'}."
        if len(word) <= n_shown:
            rest = watched.of_step(len(word), self.layout, last=True)
            steps.append(RunStep(before[-1], f"The word is read. {end}", written=rest))
        else:
            lines.append(f"       ... {len(word) - n_shown} letters more (--steps)")
        said = named.written(word)
        short = said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
        facts = {"machine": named.title, "word": said or "(empty)", "final state": before[-1]}
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


def _random_word(rng: Generator, dfa: DFA, lengths: range) -> list[int]:
    return rng.integers(dfa.n_letters, size=rng.integers(lengths.start, lengths.stop)).tolist()


@dataclass(frozen=True)
class FixedDFAEncoding(AutomatonEncoding):
    """Words as tokens, for one automaton."""

    name, layout, built_in = "fixed_dfa", (0, 1), True

    dfa: DFA
    max_length: int

    def __post_init__(self) -> None:
        runs.require_kind(self.dfa, DFA, "fixed_dfa(dfa, max_length)")
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
            return [int(runs.held(each, "at", i)[1]) for i, each in enumerate(decoded.tokens)]

        return Task([*prompt, token(at=(0, 0))], limit=len(letters), read=read)

    def automaton(self, _rng: Generator, machine: Any) -> DFA:
        if machine is not None:
            raise InvalidInput("this program has its automaton built in; give inputs only.")
        return self.dfa

    def automata(self) -> Iterator[DFA]:
        yield self.dfa

    def plan_run(self, machine: Any, given: Any, max_steps: int) -> PlannedRun:
        if machine is not None and runs.named_machine(machine, DFA)[1] != self.dfa:
            raise InvalidInput(
                "machine must be the automaton that this program has built in; leave it out, or "
                "give the same with names."
            )
        return super().plan_run(machine, given, max_steps)
