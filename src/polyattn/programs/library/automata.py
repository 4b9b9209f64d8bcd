"""What the encodings of automata share: words, and runs as people see them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.programs.library.runs import (
    BrokenTrace,
    LibraryEncoding,
    PlannedRun,
    letters_of,
    require_range,
)
from polyattn.programs.machines import DFA, NamedMachine
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun

# Longer words are not repeated in a sentence.
LONGEST = 60


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
