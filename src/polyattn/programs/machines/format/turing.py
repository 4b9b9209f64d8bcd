"""Turing machines from plain data: the three ways to write rules, and all that goes with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from polyattn.errors import InvalidInput, require_choice
from polyattn.programs.machines.automata import ACCEPT, HALT, REJECT, TuringMachine
from polyattn.programs.machines.format import tables
from polyattn.programs.machines.format.tables import Names, name_of
from polyattn.programs.machines.named import ENDS, FIRST, LAST, NamedMachine, end_name, short_names
from polyattn.quoting import shown

MOVES = {
    "L": -1, "S": 0, "R": 1, "left": -1, "stay": 0, "right": 1, "l": -1, "s": 0, "r": 1,
    "-1": -1, "0": 0, "1": 1, "+1": 1,
}  # fmt: skip
_HELP = 'a rule is like "1RB" (write, move, next), ["B", "1", "R"] or {next: B, write: 1, move: R}'


# What a machine does, in the numbers of the file: next state, write, move, and the name of the
# halting state if it halts.
Action: TypeAlias = tuple[int, int, int, str]


@dataclass(frozen=True)
class RuleReader:
    """Reads the rules of one machine.

    endings : the names of states in which it ends, and how: HALT, ACCEPT or REJECT
    """

    states: Names
    letters: Names
    endings: Mapping[str, int]

    @property
    def halting(self) -> tuple[str, ...]:
        """The names of all states in which it ends."""
        return tuple(self.endings)

    def action(self, value: Any, state: int, letter: int) -> Action:
        """What a machine does in a state at a letter."""
        here = f"rule of {self.states.names[state]!r} at letter {self.letters.names[letter]!r}"
        if isinstance(value, str):
            return self._short(value, letter, here)
        if isinstance(value, list):
            if len(value) != 3:
                raise InvalidInput(f"{here}: {shown(value)} must be [next, write, move].")
            value = dict(zip(("next", "write", "move"), value, strict=True))
        if not isinstance(value, dict):
            raise InvalidInput(f"{here}: {shown(value)} is no rule; {_HELP}.")
        kept = {"next": self.states.names[state], "write": self.letters.names[letter], "move": "S"}
        unknown = [key for key in value if key not in kept]
        if unknown or not value:
            raise InvalidInput(
                f"{here}: {shown(value)} must have some of next, write and move"
                f"{f', not {shown(unknown[0])}' if unknown else ''}."
            )
        chosen = kept | value
        return self._action(chosen["next"], chosen["write"], chosen["move"], here)

    def _action(self, after: Any, write: Any, move: Any, here: str) -> Action:
        steps = MOVES.get(str(move)) if not isinstance(move, bool | float) else None
        if steps is None:
            raise InvalidInput(f"{here}: {shown(move)} is no move; moves are L, R and S (stay).")
        letter = self.letters.find(write, f"{here} writes")
        name = name_of(after, f"{here} leads on")
        if name in self.halting or (name == "-1" and name not in self.states.numbers):
            end = name if name in self.halting else end_name(self.states.names)
            return self.endings.get(end, HALT), letter, steps, end
        try:
            return self.states.find(after, f"{here} leads on"), letter, steps, ""
        except InvalidInput as error:
            ends = ", ".join(map(repr, self.halting)) or "none"
            raise InvalidInput(f"{str(error).rstrip('.')}; halting states: {ends}.") from None

    def _short(self, text: str, letter: int, here: str) -> Action:
        """``1RB``: the letter to write, the move, the next state; a halting state alone halts."""
        if text in ("---", *self.halting):
            halts = [name for name, ending in self.endings.items() if ending == HALT]
            end = [*halts, end_name(self.states.names)][0] if text == "---" else text
            return self.endings.get(end, HALT), letter, 0, end
        # A letter, a move and a state, with some spaces: what is longer is not split at all.
        if len(text) > 4 * tables.LONGEST:
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


TURING_KEYS = (
    "kind", "name", "states", "letters", "blank", "start", "halt", "accepting", "rejecting",
    "rules", "missing", "tape", "position", "max_steps",
)  # fmt: skip

# Every rule is compared with all halting states.
MOST_HALTING = 1000


def read_turing(content: dict[str, Any]) -> NamedMachine:
    """The machine that a file describes, without its tape; start state and blank are 0."""
    if isinstance(content.get("rules"), str):
        states, letters, actions = _short_form(content)
    else:
        tables.require_table(content, "rules")
        states, letters, actions = _rules(content)
    place = states.renumbered(content, "start")
    sign = letters.renumbered(content, "blank", letters.numbers.get("_", 0))
    rules = {
        (place[q], sign[x]): (place.get(after, after), sign[write], move)
        for (q, x), (after, write, move, _) in actions.items()
    }
    position, max_steps = content.get("position", FIRST), content.get("max_steps")
    if type(position) is not int and position not in (FIRST, LAST):
        raise InvalidInput(
            f"position must be a whole number, first or last; got {shown(position)}."
        )
    if max_steps is not None and (type(max_steps) is not int or max_steps < 0):
        raise InvalidInput(
            f"max_steps must be a whole number of at least 0; got {shown(max_steps)}."
        )
    return NamedMachine(
        machine=TuringMachine(rules, len(states), len(letters)),
        states=tuple(states.names[q] for q in place),
        letters=tuple(letters.names[x] for x in sign),
        halts={(place[q], sign[x]): end for (q, x), (*_, end) in actions.items() if end},
        position=position,
        max_steps=max_steps,
    )


def _rules(content: dict[str, Any]) -> tuple[Names, Names, dict[tuple[int, int], Action]]:
    """States, letters and what is done, from a table of rules."""
    states, endings = _states(content)
    letters = tables.letter_names(content, "rules")
    blank = content.get("blank")
    if isinstance(blank, str | int) and not isinstance(blank, bool):
        # People list the letters of the input; the blank is a letter of the tape.
        name = name_of(blank, "blank")
        if name not in letters.numbers:
            letters = Names("letter", [name, *letters.names])
    reader, halting = RuleReader(states, letters, endings), tuple(endings)
    table = content["rules"]
    if isinstance(table, dict):
        # A halting state may be listed with nothing to do.
        table = {state: row for state, row in table.items() if row or str(state) not in halting}
        for state in table:
            if str(state) in halting:
                raise InvalidInput(f"state {str(state)!r} halts, and yet has rules.")
    found = tables.entries(table, "rules", states, letters)
    absent = tables.missing(found, states, letters)
    rest = require_choice("missing", content.get("missing", "error"), ("error", "halt"))
    if absent and rest == "error":
        busy = {q for q, _ in found}
        idle = [state for q, state in enumerate(states.names) if q not in busy]
        if idle:
            raise InvalidInput(
                f"state {idle[0]!r} has no rules; if the machine ends there, say so with "
                f"halt: {idle[0]} (or accepting, or rejecting)."
            )
        raise InvalidInput(
            f"there is no rule for {absent}. Write them, or let the machine halt there "
            "with missing: halt."
        )
    pairs = [(q, x) for q in range(len(states)) for x in range(len(letters))]
    halts = [name for name, ending in endings.items() if ending == HALT]
    end = halts[0] if "halt" in content and halts else end_name(states.names)
    stop = {pair: (HALT, pair[1], 0, end) for pair in pairs if pair not in found}
    return states, letters, stop | {pair: reader.action(found[pair], *pair) for pair in found}


def _states(content: dict[str, Any]) -> tuple[Names, dict[str, int]]:
    """The states, and the names of those in which the machine ends, each with its ending."""
    table = content["rules"]
    halting = _endings(content)
    if isinstance(table, list) and "states" not in content:
        return Names("state", short_names(len(table))), halting
    listed_states = tables.state_names(content, "rules")
    states = [name for name in listed_states.names if name not in halting]
    if not states:
        raise InvalidInput("all states halt; a machine needs one that does something.")
    start = content.get("start")
    if start is not None and str(start) in halting:
        raise InvalidInput(f"start: the machine would halt in {str(start)!r} at once.")
    return Names("state", states), halting


def _endings(content: dict[str, Any]) -> dict[str, int]:
    """The names of the states that end a run, and how they do."""
    table, found = content["rules"], dict[str, int]()
    for key, ending in (("halt", HALT), ("accepting", ACCEPT), ("rejecting", REJECT)):
        for each in tables.several(content.get(key, [])):
            name = name_of(each, key)
            if found.setdefault(name, ending) != ending:
                raise InvalidInput(
                    f"{key} names {name!r}, in which the machine already ends in another way; a "
                    "state is one of halt, accepting and rejecting."
                )
    if "halt" not in content:
        rows = table.items() if isinstance(table, dict) else ()
        taken = {str(state) for state, row in rows if row} | {*found}
        found |= {name: HALT for name in ENDS if name not in taken}
    if len(found) > MOST_HALTING:
        raise InvalidInput(f"halt names {len(found)} states; {MOST_HALTING} are the most.")
    return found


def _short_form(content: dict[str, Any]) -> tuple[Names, Names, dict[tuple[int, int], Action]]:
    """``1RB1LB_1LA1RH``: everything in one text."""
    text = content["rules"]
    for key in ("missing", "halt", "accepting", "rejecting"):
        if key in content:
            raise InvalidInput(f"{key} says nothing beside rules in the short form; leave it out.")
    try:
        machine = TuringMachine.parse(text)
    except ValueError as error:
        raise InvalidInput(f"rules: {error}") from None
    states = tables.given_names(content, "state", short_names(machine.n_states))
    letters = tables.given_names(content, "letter", map(str, range(machine.n_letters)))
    for names, count in ((states, machine.n_states), (letters, machine.n_letters)):
        if len(names) != count:
            kinds = f"{names.kind}s"
            raise InvalidInput(f"{kinds} has {len(names)} names; rules have {count} {kinds}.")
    end = end_name(states.names)
    actions = {
        pair: (after, write, move, end if after == HALT else "")
        for pair, (after, write, move) in machine.rules.items()
    }
    return states, letters, actions
