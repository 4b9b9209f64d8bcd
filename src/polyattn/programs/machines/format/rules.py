"""Rules of Turing machines: the three ways to write what a machine does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from polyattn.errors import InvalidInput
from polyattn.programs.machines.format.tables import LONGEST, Names, name_of
from polyattn.programs.machines.named import end_name
from polyattn.programs.machines.turing import HALT
from polyattn.quoting import shown

MOVES = {
    "L": -1, "S": 0, "R": 1, "left": -1, "stay": 0, "right": 1, "l": -1, "s": 0, "r": 1,
    "-1": -1, "0": 0, "1": 1, "+1": 1,
}  # fmt: skip
_HELP = 'a rule is like "1RB" (write, move, next), ["B", "1", "R"] or {next: B, write: 1, move: R}'


@dataclass(frozen=True)
class Action:
    """What a machine does, in the numbers of the file; ``end`` names the halting state."""

    next_state: int
    write: int
    move: int
    end: str = ""


@dataclass(frozen=True)
class RuleReader:
    """Reads the rules of one machine.

    halting : the names of states in which it halts
    """

    states: Names
    letters: Names
    halting: tuple[str, ...]

    def action(self, value: Any, state: int, letter: int) -> Action:
        """What a machine does in a state at a letter."""
        here = f"rule of {self.states.names[state]!r} at letter {self.letters.names[letter]!r}"
        if isinstance(value, str):
            return self._short(value, letter, here)
        if isinstance(value, list):
            if len(value) != 3:
                raise InvalidInput(f"{here}: {shown(value)} must be [next, write, move].")
            after, write, move = value
            return self._action(after, write, move, here)
        if isinstance(value, dict):
            unknown = [key for key in value if key not in ("next", "write", "move")]
            if unknown or not value:
                raise InvalidInput(
                    f"{here}: {shown(value)} must have some of next, write and move"
                    f"{f', not {shown(unknown[0])}' if unknown else ''}."
                )
            kept = {"next": self.states.names[state], "write": self.letters.names[letter]}
            chosen = kept | {"move": "S"} | value
            return self._action(chosen["next"], chosen["write"], chosen["move"], here)
        raise InvalidInput(f"{here}: {shown(value)} is no rule; {_HELP}.")

    def _action(self, after: Any, write: Any, move: Any, here: str) -> Action:
        steps = MOVES.get(str(move)) if not isinstance(move, bool | float) else None
        if steps is None:
            raise InvalidInput(f"{here}: {shown(move)} is no move; moves are L, R and S (stay).")
        letter = self.letters.find(write, f"{here} writes")
        name = name_of(after, f"{here} leads on")
        if name in self.halting or (name == "-1" and name not in self.states.numbers):
            end = name if name in self.halting else end_name(self.states.names)
            return Action(HALT, letter, steps, end)
        try:
            return Action(self.states.find(after, f"{here} leads on"), letter, steps)
        except InvalidInput as error:
            ends = ", ".join(map(repr, self.halting)) or "none"
            raise InvalidInput(f"{str(error).rstrip('.')}; halting states: {ends}.") from None

    def _short(self, text: str, letter: int, here: str) -> Action:
        """``1RB``: the letter to write, the move, the next state; a halting state alone halts."""
        if text in ("---", *self.halting):
            ends = (*self.halting, end_name(self.states.names))
            return Action(HALT, letter, 0, ends[0] if text == "---" else text)
        # A letter, a move and a state, with some spaces: what is longer is not split at all.
        if len(text) > 4 * LONGEST:
            raise InvalidInput(f"{here}: {shown(text)} is no rule; {_HELP}.")
        after = {*self.states.names, *self.halting}
        splits = [
            (text[:at], sign, text[at + 1 :])
            for at, sign in enumerate(text)
            if sign in "LRS" and text[:at] in self.letters.numbers and text[at + 1 :] in after
        ]
        if not splits:
            parts = [part for part in re.split(r"[,\s]+", text) if part]
            if len(parts) != 3:
                raise InvalidInput(
                    f"{here}: {shown(text)} is no rule; {_HELP}. The letters are {self.letters}, "
                    f"the states {self.states}, halting: {', '.join(self.halting) or 'none'}."
                )
            splits = [(parts[0], parts[1], parts[2])]
        if len(splits) > 1:
            raise InvalidInput(
                f"{here}: {shown(text)} can be read in {len(splits)} ways; write it as "
                "[next, write, move]."
            )
        write, move, name = splits[0]
        return self._action(name, write, move, here)
