"""Automata and words as tokens, in two styles, and runs of automata as people see them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from polyattn.errors import require_integer
from polyattn.files.fields import Check
from polyattn.programs.language.attributes import INTEGER, Attribute
from polyattn.programs.language.encoding import Arguments, Task
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.library.arguments import (
    BrokenTrace,
    all_words,
    held,
    random_word,
    require_fit,
    require_kind,
    require_word,
)
from polyattn.programs.library.runs import (
    SIZE,
    LibraryEncoding,
    RunOptions,
    broken,
    letters_of,
    named_machine,
    noted,
    watch,
)
from polyattn.programs.machines import DFA, NamedMachine
from polyattn.programs.running.runnable import Runnable
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun

# Longer words are not repeated in a sentence.
LONGEST = 60


@dataclass(frozen=True)
class DFAEncoding(LibraryEncoding):
    """What both styles share: sizes, checks, random and all automata.

    layout : how many tokens come before the first letter, and how many there are for each
    """

    layout: ClassVar[tuple[int, int]]
    fields: ClassVar[Mapping[str, Check]] = {
        "n_states": SIZE,
        "n_letters": SIZE,
        "max_length": SIZE,
    }

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

    def show(self, program: Runnable, machine: Any, given: Any, wanted: RunOptions) -> ShownRun:
        drawn, rng = machine is None, np.random.default_rng(0)
        if machine is None:
            (machine, word), _ = self.sample(rng)
        named, dfa = named_machine(machine, DFA)
        if not drawn:
            (_, word), _ = self.sample(rng, dfa)
        return show_automaton(self, program, (dfa,), named, given, word, wanted, drawn)


class OneHotEncoding(DFAEncoding):
    """Two tokens per letter: what is read, and what is looked up."""

    name, layout = "one_hot_dfa", (0, 2)

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

    name, layout = "register_dfa", (1, 1)

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


def show_automaton(
    encoding: Any,
    program: Runnable,
    machine: tuple[DFA, ...],
    named: NamedMachine,
    given: Any,
    otherwise: list[int],
    wanted: RunOptions,
    drawn: bool,
) -> ShownRun:
    """The run of an automaton on a word: the given one, that of its file, or another.

    encoding : with ``task`` and ``layout``
    machine : what the task is given beside the word
    drawn : whether the machine was drawn at random
    """
    named_word = None if named.input is None else list(named.input)
    word = named_word if given is None else letters_of(named, given)
    random_one = word is None
    word = otherwise if word is None else word
    task = encoding.task(*machine, word)
    watched = watch(program, task, wanted.margins, named)
    try:
        states = task.read(watched.decoded)
    except BrokenTrace as error:
        return noted(broken(watched, wanted, str(error)), drawn, random_one)
    if len(states) != len(word) or any(state >= len(named.states) for state in states):
        reason = "they tell of states that there are not, or of too few."
        return noted(broken(watched, wanted, reason), drawn, random_one)
    return noted(_shown(watched, encoding.layout, word, states, wanted.n_shown), drawn, random_one)


def _shown(
    watched: WatchedRun, layout: tuple[int, int], word: list[int], states: list[int], n_shown: int
) -> ShownRun:
    """The run of at most so many letters."""
    named = watched.named
    assert named is not None  # noqa: S101 - the caller has named the machine
    assert isinstance(named.machine, DFA)  # noqa: S101 - and looked at its kind
    before = [named.states[state] for state in (0, *states)]
    steps = []
    for number, letter in enumerate(word[:n_shown]):
        state, after = before[number], before[number + 1]
        then = "stays there" if state == after else f"goes to {after}"
        text = f"In state {state} it reads {named.letters[letter]} and {then}."
        written = watched.of_step(number, layout, last=False)
        rule = ((0, *states)[number], letter)
        steps.append(RunStep(state, text, number, rule=rule, written=written))
    last = (0, *states)[-1]
    accepts = last in named.machine.accepting if named.decides else None
    end = f"It ends in {before[-1]}"
    end += "." if accepts is None else f", which {'accepts' if accepts else 'rejects'}."
    if len(word) <= n_shown:
        rest = watched.of_step(len(word), layout, last=True)
        steps.append(RunStep(before[-1], f"The word is read. {end}", written=rest))
    said = named.written(word)
    short = said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
    facts: dict[str, object] = {
        "machine": named.title, "word": said or "(empty)", "final state": before[-1],
    }  # fmt: skip
    if accepts is not None:
        facts["accepted"] = "yes" if accepts else "no"
    letters = [named.letters[letter] for letter in word]
    return ShownRun(
        watched.decoded.tokens, steps, len(word),
        [f"The word is {short or 'empty'}. {end}", *watched.sureness],
        named.machine.run(word) == states, cells=letters, reads=True, named=named, result=states,
        lines=_lines(named, letters, before, n_shown), facts=facts,
        content={
            "kind": "dfa", "machine": named.name, "word": letters, "start": before[0],
            "states": before[1:], "final": before[-1], "accepts": accepts,
        },
    )  # fmt: skip


def _lines(named: NamedMachine, word: list[str], states: list[str], n_shown: int) -> list[str]:
    """The state after each letter, a line for each."""
    width = max(map(len, named.letters))
    found = [f"    0  {'':{width}}     {states[0]}"]
    found += [
        f"{at + 1:5d}  {letter:{width}}  -> {states[at + 1]}"
        for at, letter in enumerate(word[:n_shown])
    ]
    if len(word) > n_shown:
        found.append(f"       ... {len(word) - n_shown} letters more (--steps)")
    return found


def _states(tokens: list[Token], n_letters: int) -> list[int]:
    """The states after each letter, from tokens that hold the states before and after all."""
    padded = [*tokens, *([{}] * (n_letters + 1 - len(tokens)))]
    states = [held(token, "state", number) for number, token in enumerate(padded)]
    return [int(value[0]) for value in states[1:]]
