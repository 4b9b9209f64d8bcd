"""Runs of finite automata: the word, the current letter and the state."""

from __future__ import annotations

from polyattn.programs import DFA
from polyattn.programs.library.fixed_dfa import FixedDFAEncoding
from polyattn.programs.library.universal_dfa import OneHotEncoding, RegisterEncoding
from polyattn.programs.machines import NamedMachine
from polyattn.report.programs.film import Film, Frame
from polyattn.report.programs.tokens import Watched

# How many tokens set the scene, and how many tell of each letter.
TOKENS = {OneHotEncoding: (0, 2), RegisterEncoding: (1, 1), FixedDFAEncoding: (0, 1)}

# Longer words are not repeated in a sentence.
LONGEST = 60


def film_automaton(watched: Watched, word: list[int], states: list[int], most: int) -> Film | None:
    """The film of at most so many letters; None if there are states that nobody knows."""
    named = watched.named
    assert named is not None  # noqa: S101 - the caller has named the machine
    if len(states) != len(word) or any(state >= len(named.states) for state in states):
        return None
    automaton, before = named.machine, [0, *states]
    assert isinstance(automaton, DFA)  # noqa: S101 - the caller has looked
    lead, each = next(
        found for kind, found in TOKENS.items() if isinstance(watched.schema.encoding, kind)
    )
    frames = []
    for number, letter in enumerate(word[:most]):
        written = watched.of_step(number, lead, each, last=False)
        state, after = named.states[before[number]], named.states[before[number + 1]]
        then = "stays there" if state == after else f"goes to {after}"
        text = f"In state {state} it reads {named.letters[letter]} and {then}."
        rule = (before[number], letter)
        frames.append(Frame(state, text, number, rule=rule, written=written))
    end = _end(named, automaton, before[-1])
    if len(word) <= most:
        rest = watched.of_step(len(word), lead, each, last=True)
        frames.append(Frame(named.states[before[-1]], f"The word is read. {end}", written=rest))
    findings = [f"The word is {_short(named.written(word)) or 'empty'}. {end}", watched.sureness]
    agrees = automaton.run(word) == states
    letters = [named.letters[letter] for letter in word]
    return Film(frames, len(word), findings, agrees, cells=letters, reads=True)


def _end(named: NamedMachine, automaton: DFA, state: int) -> str:
    reached = f"It ends in {named.states[state]}"
    if not named.decides:
        return f"{reached}."
    return f"{reached}, which {'accepts' if state in automaton.accepting else 'rejects'}."


def _short(word: str) -> str:
    return word if len(word) <= LONGEST else f"{word[:LONGEST]} ..."
