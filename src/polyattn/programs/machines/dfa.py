"""Deterministic finite automata as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType


@dataclass(frozen=True, eq=False)
class DFA:
    """A finite automaton; it starts in state 0.

    transitions : array (Q, V) of integers, the next state for each state and letter
    accepting : the states that accept, if the automaton decides something
    """

    transitions: NDArray[np.int64]
    accepting: frozenset[int] = frozenset()

    def __init__(self, transitions: ArrayLike, accepting: Iterable[int] = ()) -> None:
        try:
            table = np.asarray(transitions)
        except ValueError:
            raise InvalidInput("the rows of transitions must have the same length.") from None
        if table.ndim != 2 or 0 in table.shape:
            raise InvalidInput(
                "transitions must be a table (Q, V): a row for each state, a column for each "
                f"letter; got shape {table.shape}."
            )
        if table.dtype.kind not in "iu":
            raise InvalidType(f"transitions must be integers; got {table.dtype}.")
        for state, letter in np.argwhere((table < 0) | (table >= len(table))):
            raise InvalidInput(
                f"transitions[{state}, {letter}] is {table[state, letter]}; the states are 0 to "
                f"{len(table) - 1}, and every transition must lead to one of them."
            )
        table = table.astype(np.int64)
        table.setflags(write=False)
        object.__setattr__(self, "transitions", table)
        try:
            object.__setattr__(self, "accepting", frozenset(map(index, accepting)))
        except TypeError:
            raise InvalidType(f"accepting must be states; got {accepting!r}.") from None
        if not self.accepting <= set(range(self.n_states)):
            raise InvalidInput(f"accepting has states outside 0 to {self.n_states - 1}.")

    @property
    def n_states(self) -> int:
        """Q, the number of states."""
        return self.transitions.shape[0]

    @property
    def n_letters(self) -> int:
        """V, the number of letters."""
        return self.transitions.shape[1]

    def run(self, word: Iterable[int]) -> list[int]:
        """The state after each letter."""
        states, state = [], 0
        for letter in self.check(word):
            state = int(self.transitions[state, letter])
            states.append(state)
        return states

    def accepts(self, word: Iterable[int]) -> bool:
        """Whether the state after the whole word accepts."""
        return ([0, *self.run(word)])[-1] in self.accepting

    def check(self, word: Iterable[int]) -> list[int]:
        """The word as a list of letters, or an error that names the place of a wrong one."""
        return check_letters(word, self.n_letters, "word")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DFA):
            return NotImplemented
        same = np.array_equal(self.transitions, other.transitions)
        return same and self.accepting == other.accepting

    def __hash__(self) -> int:
        return hash((self.transitions.tobytes(), self.transitions.shape, self.accepting))

    def __repr__(self) -> str:
        return f"DFA({self.transitions.tolist()})"


def check_letters(letters: Iterable[int], n_letters: int, name: str) -> list[int]:
    """Letters as a list of int; the first that is none is named with its place."""
    try:
        listed = list(letters)
    except TypeError:
        raise InvalidType(f"{name} must be a sequence of letters; got {letters!r}.") from None
    for place, letter in enumerate(listed):
        if not isinstance(letter, int | np.integer) or isinstance(letter, bool):
            raise InvalidType(f"{name}[{place}] must be an integer; got {letter!r}.")
        if not 0 <= letter < n_letters:
            raise InvalidInput(
                f"{name}[{place}] is {letter}; the letters are 0 to {n_letters - 1}."
            )
    return [int(letter) for letter in listed]
