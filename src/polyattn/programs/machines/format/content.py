"""Plain data to machines and back."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs.machines.dfa import DFA
from polyattn.programs.machines.format.tables import (
    entries,
    letter_names,
    listed,
    missing,
    require_table,
    several,
    state_names,
)
from polyattn.programs.machines.format.turing import TURING_KEYS, read_turing
from polyattn.programs.machines.named import FIRST, NamedMachine, read_letters, runs_together
from polyattn.programs.machines.turing import HALT
from polyattn.quoting import shown

DFA_KEYS = ("kind", "name", "states", "letters", "start", "accepting", "transitions", "word")

# What other programs call these keys.
_OTHER_WORDS = {
    "accept": "accepting", "final": "accepting", "initial": "start", "alphabet": "letters",
    "symbols": "letters", "delta": "transitions", "type": "kind", "head": "position",
    "steps": "max_steps", "table": "transitions' or 'rules", "input": "word' or 'tape",
}  # fmt: skip
_MOVE_NAMES = {-1: "L", 0: "S", 1: "R"}


def machine_from(content: Any) -> NamedMachine:
    """The machine that plain data describe: a table, a short form, or a mapping with keys."""
    if isinstance(content, list):
        content = {"transitions": content}
    elif isinstance(content, str):
        content = {"rules": content}
    if not isinstance(content, dict):
        raise InvalidType(
            "a machine is a mapping with transitions or rules, a table of transitions, or a text "
            f"such as 1RB1LB_1LA1RH; got {shown(content)}."
        )
    turing = _kind(content) == "turing"
    keys = TURING_KEYS if turing else DFA_KEYS
    for key in content:
        if key not in keys:
            raise InvalidInput(f"the key {shown(key)} is unknown{_hint(key, keys)}")
    name = content.get("name", "")
    if not isinstance(name, str):
        raise InvalidType(f"name must be text; got {shown(name)}.")
    return read_turing(content, name) if turing else read_dfa(content, name)


def read_dfa(content: dict[str, Any], name: str) -> NamedMachine:
    """The automaton that a file describes, its start state renumbered to 0."""
    require_table(content, "transitions")
    states, letters = state_names(content, "transitions"), letter_names(content, "transitions")
    found = entries(content, "transitions", states, letters)
    absent = missing(found, states, letters)
    if absent:
        raise InvalidInput(
            f"there is no transition for {listed(absent)}. Every state needs one for every "
            "letter; where a word is lost, lead to a state that all letters lead back to."
        )
    targets = {
        (q, x): states.find(
            target, f"transition of {states.names[q]!r} at letter {letters.names[x]!r}"
        )
        for (q, x), target in found.items()
    }
    start = states.find(content["start"], "start") if "start" in content else 0
    accepting = {states.find(each, "accepting") for each in several(content.get("accepting", []))}
    order = [start, *(q for q in range(len(states)) if q != start)]
    place = {q: new for new, q in enumerate(order)}
    table = [[place[targets[q, x]] for x in range(len(letters))] for q in order]
    word = read_letters(content["word"], letters.names, "word") if "word" in content else None
    return NamedMachine(
        machine=DFA(table, accepting=[place[q] for q in accepting]),
        states=tuple(states.names[q] for q in order),
        letters=letters.names,
        name=name,
        decides="accepting" in content,
        input=None if word is None else tuple(word),
    )


def content_of(named: NamedMachine) -> dict[str, Any]:
    """A machine as plain data: ``machine_from`` gives it back."""
    machine, states, letters = named.machine, named.states, named.letters
    content: dict[str, Any] = {"kind": named.kind}
    if named.name:
        content["name"] = named.name
    content |= {"states": list(states), "letters": list(letters)}
    if isinstance(machine, DFA):
        content["start"] = states[0]
        if named.decides:
            content["accepting"] = [states[q] for q in sorted(machine.accepting)]
        content["transitions"] = {
            state: {x: states[int(r)] for x, r in zip(letters, row, strict=True)}
            for state, row in zip(states, machine.transitions, strict=True)
        }
        return content | ({} if named.input is None else {"word": _input(named)})
    content |= {"blank": letters[0], "start": states[0]}
    content["halt"] = list(dict.fromkeys(named.halts.values()))
    content["rules"] = {state: {} for state in states}
    for (q, x), (after, write, move) in machine.rules.items():
        target = named.halts.get((q, x), "HALT") if after == HALT else states[after]
        rule = [target, letters[write], _MOVE_NAMES[move]]
        content["rules"][states[q]][letters[x]] = rule
    if named.input is not None:
        content["tape"] = _input(named)
    if named.position != FIRST:
        content["position"] = named.position
    if named.max_steps is not None:
        content["max_steps"] = named.max_steps
    return content


@dataclass(frozen=True)
class TableRow:
    """A state of a machine: its name, what is special about it, and a rule for each letter."""

    state: str
    remarks: list[str]
    rules: list[str]


def table_of(named: NamedMachine) -> list[TableRow]:
    """The table of a machine for people, state by state."""
    content = content_of(named)
    accepting = named.machine.accepting if isinstance(named.machine, DFA) else ()
    found = []
    for number, (state, row) in enumerate((content.get("transitions") or content["rules"]).items()):
        special = {"start": number == 0, "accepting": number in accepting}
        # A rule of a Turing machine is a list: the next state, what is written, the move.
        rules = [each if isinstance(each, str) else " ".join(each[1:] + each[:1])
                 for each in row.values()]  # fmt: skip
        found.append(TableRow(state, [name for name, holds in special.items() if holds], rules))
    return found


def _input(named: NamedMachine) -> str | list[str]:
    names = [named.letters[x] for x in named.input or ()]
    return "".join(names) if runs_together(named.letters) else names


def _kind(content: dict[str, Any]) -> str:
    kind = content.get("kind")
    if kind is None:
        found = [
            kind for kind, key in (("turing", "rules"), ("dfa", "transitions")) if key in content
        ]
        if len(found) == 1:
            return found[0]
        problem = "both transitions and rules" if found else "neither transitions nor rules"
        raise InvalidInput(
            f"it has {problem}: a finite automaton has transitions, a Turing machine rules."
        )
    if not isinstance(kind, str) or kind.lower() not in ("dfa", "turing"):
        raise InvalidInput(f"kind must be dfa or turing; got {shown(kind)}.")
    return kind.lower()


def _hint(key: Any, keys: tuple[str, ...]) -> str:
    word = str(key).lower()
    meant = _OTHER_WORDS.get(word) or next(iter(get_close_matches(word, keys, 1)), "")
    return f"; is it {meant!r}?" if meant else f"; the keys are {', '.join(keys)}."
