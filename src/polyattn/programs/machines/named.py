"""Machines with the names that their author gave to states and letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs.machines.automata import DFA, END_NAMES, HALT, TuringMachine

FIRST, LAST = "first", "last"

# Where a machine halts if nobody says it, unless these are states of their own.
ENDS = ("H", "HALT", "halt")

# Between the letters of a word, unless they are letters themselves.
_SEPARATORS = ", \t\n"


@dataclass(frozen=True)
class NamedMachine:
    """A machine, what its states and letters are called, and perhaps an input to run on.

    machine : DFA or TuringMachine, whose start state is 0 and whose blank is letter 0
    states, letters : the names, by number
    name : what the machine is called
    decides : whether a DFA accepts and rejects, or only moves
    halts : for the rules (state, letter) of a Turing machine that halt, the name of the end
    input : the word or tape to run on, if there is one
    position : the cell to start at: a number, 0 at the first letter of the tape, or ``first`` or
        ``last`` letter of whatever tape there is
    max_steps : the limit of steps, if there is one
    """

    machine: DFA | TuringMachine
    states: tuple[str, ...]
    letters: tuple[str, ...]
    name: str = ""
    decides: bool = False
    halts: Mapping[tuple[int, int], str] = field(default_factory=lambda: MappingProxyType({}))
    input: tuple[int, ...] | None = None
    position: int | str = FIRST
    max_steps: int | None = None

    @classmethod
    def plain(cls, machine: DFA | TuringMachine, name: str = "") -> NamedMachine:
        """Names for a machine without: numbers, and A, B, ... for states of Turing machines."""
        if not isinstance(machine, DFA | TuringMachine):
            raise InvalidType(
                f"a machine is a DFA or a TuringMachine; got {type(machine).__name__}."
            )
        letters = tuple(map(str, range(machine.n_letters)))
        if isinstance(machine, DFA):
            states = tuple(map(str, range(machine.n_states)))
            return cls(machine, states, letters, name, decides=bool(machine.accepting))
        states = short_names(machine.n_states)
        halts = {
            pair: end_name(states, after)
            for pair, (after, _, _) in machine.rules.items()
            if after < 0
        }
        return cls(machine, states, letters, name, halts=halts)

    @property
    def kind(self) -> str:
        """``dfa`` or ``turing``."""
        return "dfa" if isinstance(self.machine, DFA) else "turing"

    @property
    def title(self) -> str:
        """What the machine is, in a few words."""
        kind = "DFA" if self.kind == "dfa" else "Turing machine"
        sizes = (("state", len(self.states)), ("letter", len(self.letters)))
        said = ", ".join(f"{size} {what}{'' if size == 1 else 's'}" for what, size in sizes)
        return f"{self.name + ', ' if self.name else ''}{kind} with {said}"

    @property
    def runs_together(self) -> bool:
        """Whether words can be written without anything between their letters."""
        return all(len(name) == 1 and name not in _SEPARATORS for name in self.letters)

    def read(self, given: Any, what: str = "input") -> list[int]:
        """The numbers of letters: of names in a list, or in a text; the first wrong one is named.

        In a text the letters stand side by side if each name is one character, and otherwise
        between commas or spaces.
        """
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)  # a word of digits without quotes
        if isinstance(given, str):
            given = self._split(given)
        elif not isinstance(given, list | tuple):
            raise InvalidType(f"{what} must be a text or a list of letters; got {given!r}.")
        numbers = {name: number for number, name in enumerate(self.letters)}
        found = []
        for place, name in enumerate(given):
            known = isinstance(name, str | int) and not isinstance(name, bool)
            if not known or str(name) not in numbers:
                hint = "" if self.runs_together else " (put commas or spaces between letters)"
                raise InvalidInput(
                    f"{what} has {name!r} at place {place}, which is no letter; the letters are "
                    f"{', '.join(map(repr, self.letters))}{hint}."
                )
            found.append(numbers[str(name)])
        return found

    def _split(self, text: str) -> list[str]:
        between = [sign for sign in _SEPARATORS if sign not in self.letters]
        if any(sign in text for sign in between):
            return [part for part in re.split(f"[{''.join(between)}]", text) if part]
        return list(text) if all(len(name) == 1 for name in self.letters) or not text else [text]

    def written(self, letters: Iterable[int]) -> str:
        """Letters by their names, in a form that ``read`` reads."""
        names = [self.letters[letter] for letter in letters]
        return ("" if self.runs_together else " ").join(names)

    def start(self, tape: Iterable[int]) -> int:
        """The cell to start at, on this tape."""
        if isinstance(self.position, int):
            return self.position
        return max(0, len(list(tape)) - 1) if self.position == LAST else 0


def short_names(n_states: int) -> tuple[str, ...]:
    """The names that the short form of Turing machines uses, as long as there are enough."""
    return tuple(chr(ord("A") + i) if n_states <= 26 else str(i) for i in range(n_states))


def end_name(states: Iterable[str], ending: int = HALT) -> str:
    """A name for an ending that is no state's."""
    taken = set(states)
    usual = ENDS if ending == HALT else (END_NAMES[ending],)
    marks = "!" * (1 - ending + HALT)
    return next((name for name in usual if name not in taken), max(taken, key=len) + marks)
