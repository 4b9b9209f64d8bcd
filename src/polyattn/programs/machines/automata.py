"""Finite automata and Turing machines as plain data, and what comes of running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice, require_integer


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
        return isinstance(other, DFA) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[object, ...]:
        return self.transitions.tobytes(), self.transitions.shape, self.accepting

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


# What stands for the next state where there is none: the run is over, with a verdict or without.
HALT, ACCEPT, REJECT = ENDINGS = -1, -2, -3
END_NAMES = {HALT: "HALT", ACCEPT: "ACCEPT", REJECT: "REJECT"}

# (state, letter) -> (next state or ending, letter to write, move)
Rules = Mapping[tuple[int, int], tuple[int, int, int]]

_MOVES = {"L": -1, "S": 0, "R": 1}
MOVE_WORDS = {-1: "left", 0: "stay", 1: "right"}


class TuringStep(NamedTuple):
    """One step: where the machine was, what it read, and what it did."""

    state: int
    position: int
    read: int
    write: int
    move: int
    next_state: int


@dataclass(frozen=True)
class TuringRun:
    """Where a machine on a circular tape has come to.

    tape : the letters of all cells
    state : the state, or -1 if it has halted (-2 accepting, -3 rejecting)
    position : the cell of the head
    steps : how many steps it made
    halted : whether it halted; otherwise the limit of steps ended the run
    history : the steps
    wrapped_at : the first step after which the head is, around the circle, on a cell that it or
        the input has used on the other side, where an endless tape would be blank; None if never
    """

    tape: list[int]
    state: int
    position: int
    steps: int
    halted: bool
    history: list[TuringStep] = field(repr=False)
    wrapped_at: int | None = None

    @property
    def verdict(self) -> str:
        """``accepted`` or ``rejected``; ``halted`` without either; ``undecided`` if cut off."""
        ends = {ACCEPT: "accepted", REJECT: "rejected", HALT: "halted"}
        return ends.get(self.state, "undecided")

    def show(self, most: int = 50) -> str:
        """The run for a person to read: the tape before each step, the head in brackets."""
        tape = list(self.tape)
        for step in reversed(self.history):
            tape[step.position] = step.read
        lines = []
        for number, step in enumerate(self.history[:most]):
            move = MOVE_WORDS[step.move]
            after = END_NAMES.get(step.next_state, f"state {step.next_state}")
            lines.append(
                f"{number:5d}  {_tape(tape, step.position)}  state {step.state}: read {step.read}, "
                f"write {step.write}, {move}, {after}"
            )
            tape[step.position] = step.write
        if len(self.history) > most:
            lines.append(f"       ... {len(self.history) - most} steps more")
        end = self.verdict if self.halted else f"state {self.state}"
        lines.append(f"{self.steps:5d}  {_tape(self.tape, self.position)}  {end}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TuringMachine:
    """A Turing machine; it starts in state 0, and letter 0 is blank.

    Parameters
    ----------
    rules : mapping {(state, letter): (next_state, write, move)}
        ``move`` is -1, 0 or +1; ``next_state`` -1 halts, -2 (``machines.ACCEPT``) accepts and
        -3 (``machines.REJECT``) rejects.
    n_states, n_letters : int
    missing : "error" | "halt"
        What becomes of pairs without a rule: an error that names them, or a rule that halts.
    """

    rules: Rules
    n_states: int
    n_letters: int

    def __init__(self, rules: Rules, n_states: int, n_letters: int, missing: str = "error") -> None:
        require_choice("missing", missing, ("error", "halt"))
        if not isinstance(rules, Mapping):
            raise InvalidType(f"rules must be a mapping; got {type(rules).__name__}.")
        n_states = require_integer("n_states", n_states)
        n_letters = require_integer("n_letters", n_letters)
        found = {pair: _checked(pair, rules[pair], n_states, n_letters) for pair in rules}
        pairs = [(state, letter) for state in range(n_states) for letter in range(n_letters)]
        absent = [pair for pair in pairs if pair not in found]
        if absent and missing == "error":
            raise InvalidInput(
                f"there is no rule for (state, letter) = {', '.join(map(str, absent[:8]))}"
                f"{' and others' if len(absent) > 8 else ''}; every pair needs one. "
                "missing='halt' lets the machine halt there."
            )
        found |= {(state, letter): (HALT, letter, 0) for state, letter in absent}
        object.__setattr__(self, "rules", MappingProxyType({pair: found[pair] for pair in pairs}))
        object.__setattr__(self, "n_states", n_states)
        object.__setattr__(self, "n_letters", n_letters)

    @classmethod
    def parse(cls, text: str) -> TuringMachine:
        """A machine in the usual short form, such as "1RB1LB_1LA1RH".

        Rows of states A, B, ... are joined by "_"; each has, for letters 0, 1, ..., three signs:
        the letter to write, the move L, R or S (stay), and the next state.  H, Z and the triple
        "---" halt.
        """
        if not isinstance(text, str):
            raise InvalidType(f"the short form of a machine is a text; got {text!r}.")
        rows = text.strip().split("_")
        rules = {}
        for state, row in enumerate(rows):
            if not row or len(row) % 3 or len(row) != len(rows[0]):
                raise InvalidInput(
                    f"row {state} of {text!r} is {row!r}; every row needs the same number of "
                    "triples such as 1RB."
                )
            for letter in range(len(row) // 3):
                triple = row[3 * letter : 3 * letter + 3]
                if triple == "---":
                    rules[state, letter] = (HALT, letter, 0)
                    continue
                write, move, name = triple[0], triple[1], triple[2]
                after = ord(name) - ord("A")
                after = HALT if name in "HZ" and after >= len(rows) else after
                if write not in "0123456789" or move not in _MOVES or not -1 <= after < len(rows):
                    raise InvalidInput(f"{triple!r} is no rule; it must be like 1RB, 0LA or 1RH.")
                rules[state, letter] = (after, int(write), _MOVES[move])
        return cls(rules, len(rows), len(rows[0]) // 3)

    def run(
        self, tape: Iterable[int], max_steps: int = 1000, position: int = 0, state: int = 0
    ) -> TuringRun:
        """Run on a circular tape, by the rules themselves."""
        given = check_letters(tape, self.n_letters, "tape")
        cells = list(given)
        if not cells:
            raise InvalidInput("the tape needs at least one cell.")
        require_place("position", position, len(cells))
        require_place("state", state, self.n_states)
        require_integer("max_steps", max_steps, least=0)
        history: list[TuringStep] = []
        while state >= 0 and len(history) < max_steps:
            read = cells[position]
            after, write, move = self.rules[state, read]
            history.append(TuringStep(state, position, read, write, move, after))
            cells[position] = write
            position, state = (position + move) % len(cells), after
        return finished(given, cells, position, state, history)

    def ending(self, state: int, letter: int) -> int:
        """How the rule of a state and letter ends a run; HALT where it is not said to end it."""
        after = self.rules.get((state, letter), (HALT, letter, 0))[0]
        return after if after < 0 else HALT

    def __hash__(self) -> int:
        return hash(tuple(self.rules.items()))

    def __repr__(self) -> str:
        return f"TuringMachine({self.n_states} states, {self.n_letters} letters)"


def finished(
    given: list[int], tape: list[int], position: int, state: int, history: list[TuringStep]
) -> TuringRun:
    """The record of a run, with the step at which an endless tape would have differed."""
    start = history[0].position if history else position
    written = [cell - start for cell, letter in enumerate(given) if letter]
    place, least, most = 0, min([0, *written]), max([0, *written])
    wrapped_at = None
    for number, step in enumerate(history, start=1):
        place += step.move
        least, most = min(least, place), max(most, place)
        if most - least >= len(tape):
            wrapped_at = number
            break
    return TuringRun(tape, state, position, len(history), state < 0, history, wrapped_at)


def require_place(name: str, value: object, size: int) -> None:
    """One of 0, 1, ..., size - 1."""
    if require_integer(name, value, least=0) >= size:
        raise InvalidInput(f"{name} must be 0 to {size - 1}; got {value}.")


def _checked(
    pair: tuple[int, int], rule: tuple[int, int, int], n_states: int, n_letters: int
) -> tuple[int, int, int]:
    """A rule as integers, or an error that names it."""
    try:
        state, letter = map(index, pair)
        after, write, move = map(index, rule)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"rule {pair!r}: {rule!r} must be (state, letter): (next_state, write, move)."
        ) from None
    problems = [
        (0 <= state < n_states, f"state {state} is not among 0 to {n_states - 1}"),
        (0 <= letter < n_letters, f"letter {letter} is not among 0 to {n_letters - 1}"),
        (
            after in ENDINGS or 0 <= after < n_states,
            f"next_state {after} is neither a state nor -1 (HALT), -2 (ACCEPT) or -3 (REJECT)",
        ),
        (0 <= write < n_letters, f"it writes {write}; the letters are 0 to {n_letters - 1}"),
        (move in (-1, 0, 1), f"it moves {move}; moves are -1, 0 and +1"),
    ]
    wrong = [problem for fine, problem in problems if not fine]
    if wrong:
        raise InvalidInput(f"rule {pair}: {rule}: {'; '.join(wrong)}.")
    return after, write, move


def _tape(tape: list[int], position: int) -> str:
    return "".join(f"[{x}]" if at == position else f" {x} " for at, x in enumerate(tape))
