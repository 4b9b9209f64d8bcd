"""Finite automata from plain data."""

from __future__ import annotations

from typing import Any

from polyattn.errors import InvalidInput
from polyattn.programs.machines.dfa import DFA
from polyattn.programs.machines.format.names import several
from polyattn.programs.machines.format.tables import (
    entries,
    letter_names,
    listed,
    missing,
    require_table,
    state_names,
)
from polyattn.programs.machines.named import NamedMachine, read_letters

KEYS = ("kind", "name", "states", "letters", "start", "accepting", "transitions", "word")


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
