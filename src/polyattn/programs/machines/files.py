"""Machines in files: JSON or YAML that people write (docs/guides/machine_files.md)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.atomic import write_atomically
from polyattn.files.strict_json import parse_json, read_text
from polyattn.programs.machines.automata import ACCEPT, DFA, END_NAMES, HALT, REJECT, TuringMachine
from polyattn.programs.machines.format import tables
from polyattn.programs.machines.format.turing import TURING_KEYS, read_turing
from polyattn.programs.machines.named import FIRST, NamedMachine
from polyattn.quoting import shown

JSON = ".json"
SUFFIXES = (JSON, ".yaml", ".yml")

# Far more than any machine that can be run.
MOST_BYTES = 1_000_000

DFA_KEYS = ("kind", "name", "states", "letters", "start", "accepting", "transitions", "word")

# What other programs call these keys.
_OTHER_WORDS = {
    "accept": "accepting", "final": "accepting", "reject": "rejecting", "initial": "start",
    "alphabet": "letters",
    "symbols": "letters", "delta": "transitions", "type": "kind", "head": "position",
    "steps": "max_steps", "table": "transitions' or 'rules", "input": "word' or 'tape",
}  # fmt: skip
_MOVE_NAMES = {-1: "L", 0: "S", 1: "R"}


def load_machine(path: str | os.PathLike[str]) -> NamedMachine:
    """Read a machine from a ``.json``, ``.yaml`` or ``.yml`` file.

    Returns the machine with its start state and blank as number 0, and the names of the file.
    Raises FileFormatError, with the file and the place in it, for whatever is wrong there, and
    MissingExtra for YAML without pyyaml.
    """
    source, suffix = Path(path), _suffix(path)
    text = read_text(source, MOST_BYTES)
    try:
        if not text.strip():
            raise InvalidInput("it is empty; a machine needs at least its transitions or rules.")
        if suffix == JSON:
            return machine_from(parse_json(text))
        # Loaded when needed, since it is an extra.
        from polyattn.programs.machines.format.yaml_syntax import parse_yaml

        return machine_from(parse_yaml(text))
    except (InvalidInput, InvalidType) as error:
        raise FileFormatError(f"{str(source)!r}: {error}") from None


def save_machine(machine: NamedMachine | DFA | TuringMachine, path: str | os.PathLike[str]) -> None:
    """Write a machine to a ``.json``, ``.yaml`` or ``.yml`` file, complete or not at all."""
    suffix = _suffix(path)
    named = machine if isinstance(machine, NamedMachine) else NamedMachine.plain(machine)
    content = content_of(named)
    if suffix == JSON:
        # One line for each key, and one for each state of the table.
        lines = []
        for key, value in content.items():
            said = json.dumps(value)
            if isinstance(value, dict):
                rows = (f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items())
                said = "{\n" + ",\n".join(rows) + "\n  }"
            lines.append(f"  {json.dumps(key)}: {said}")
        text = "{\n" + ",\n".join(lines) + "\n}\n"
    else:
        from polyattn.programs.machines.format.yaml_syntax import write_yaml

        text = write_yaml(content)
    write_atomically(Path(path), lambda file: file.write(text.encode()))


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
            word = str(key).lower()
            meant = _OTHER_WORDS.get(word) or next(iter(get_close_matches(word, keys, 1)), "")
            hint = f"is it {meant!r}?" if meant else f"the keys are {', '.join(keys)}."
            raise InvalidInput(f"the key {shown(key)} is unknown; {hint}")
    name = content.get("name", "")
    if not isinstance(name, str):
        raise InvalidType(f"name must be text; got {shown(name)}.")
    named = replace(read_turing(content) if turing else _read_dfa(content), name=name)
    given = "tape" if turing else "word"
    if given not in content:
        return named
    return replace(named, input=tuple(named.read(content[given], given)))


def _read_dfa(content: dict[str, Any]) -> NamedMachine:
    """The automaton that a file describes, its start state renumbered to 0; without its word."""
    tables.require_table(content, "transitions")
    states = tables.state_names(content, "transitions")
    letters = tables.letter_names(content, "transitions")
    found = tables.entries(content["transitions"], "transitions", states, letters)
    absent = tables.missing(found, states, letters)
    if absent:
        raise InvalidInput(
            f"there is no transition for {absent}. Every state needs one for every "
            "letter; where a word is lost, lead to a state that all letters lead back to."
        )
    targets = {
        (q, x): states.find(
            target, f"transition of {states.names[q]!r} at letter {letters.names[x]!r}"
        )
        for (q, x), target in found.items()
    }
    place = states.renumbered(content, "start")
    accepting = tables.several(content.get("accepting", []))
    return NamedMachine(
        machine=DFA(
            [[place[targets[q, x]] for x in range(len(letters))] for q in place],
            accepting={place[states.find(each, "accepting")] for each in accepting},
        ),
        states=tuple(states.names[q] for q in place),
        letters=letters.names,
        decides="accepting" in content,
    )


def content_of(named: NamedMachine) -> dict[str, Any]:
    """A machine as plain data: ``machine_from`` gives it back."""
    machine, states, letters = named.machine, named.states, named.letters
    given: Any = None if named.input is None else [letters[x] for x in named.input]
    if given is not None and named.runs_together:
        given = "".join(given)
    content: dict[str, Any] = {"kind": named.kind, "name": named.name or None}
    content |= {"states": list(states), "letters": list(letters)}
    if isinstance(machine, DFA):
        accepting = [states[q] for q in sorted(machine.accepting)] if named.decides else None
        table = {
            state: {x: states[int(r)] for x, r in zip(letters, row, strict=True)}
            for state, row in zip(states, machine.transitions, strict=True)
        }
        content |= {"start": states[0], "accepting": accepting, "transitions": table, "word": given}
    else:
        rules: dict[str, dict[str, list[str]]] = {state: {} for state in states}
        for (q, x), (after, write, move) in machine.rules.items():
            target = named.halts.get((q, x), END_NAMES[after]) if after < 0 else states[after]
            rules[states[q]][letters[x]] = [target, letters[write], _MOVE_NAMES[move]]
        content |= {"blank": letters[0], "start": states[0], "halt": _ends(named, HALT)}
        content |= {"accepting": _ends(named, ACCEPT) or None}
        content |= {"rejecting": _ends(named, REJECT) or None, "rules": rules}
        position = None if named.position == FIRST else named.position
        content |= {"tape": given, "position": position, "max_steps": named.max_steps}
    return {key: value for key, value in content.items() if value is not None}


def _ends(named: NamedMachine, ending: int) -> list[str]:
    """The names of a Turing machine's rules that end it in this way, each once."""
    rules: Any = named.machine
    found = (name for pair, name in named.halts.items() if rules.rules[pair][0] == ending)
    return list(dict.fromkeys(found))


def table_of(named: NamedMachine) -> list[tuple[str, list[str], list[str]]]:
    """The table for people: each state, what is special about it, and a rule for each letter."""
    content = content_of(named)
    accepting = named.machine.accepting if isinstance(named.machine, DFA) else ()
    found = []
    for number, (state, row) in enumerate((content.get("transitions") or content["rules"]).items()):
        special = {"start": number == 0, "accepting": number in accepting}
        # A rule of a Turing machine is a list: the next state, what is written, the move.
        rules = [each if isinstance(each, str) else " ".join(each[1:] + each[:1])
                 for each in row.values()]  # fmt: skip
        found.append((state, [name for name, holds in special.items() if holds], rules))
    return found


def _kind(content: dict[str, Any]) -> str:
    kind = content.get("kind")
    if kind is None:
        turing = "rules" in content
        if turing != ("transitions" in content):
            return "turing" if turing else "dfa"
        problem = "both transitions and rules" if turing else "neither transitions nor rules"
        raise InvalidInput(
            f"it has {problem}: a finite automaton has transitions, a Turing machine rules."
        )
    if not isinstance(kind, str) or kind.lower() not in ("dfa", "turing"):
        raise InvalidInput(f"kind must be dfa or turing; got {shown(kind)}.")
    return kind.lower()


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        endings = ", ".join(SUFFIXES)
        raise FileFormatError(f"machine files end in {endings}; got {str(Path(path))!r}.")
    return suffix
