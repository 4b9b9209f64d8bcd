"""Tables: what a file says for each state and letter, however it is laid out.

A table is a mapping or a list; so is each of its rows.  A mapping names the state or letter, a
list has one entry for each of them in order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs.machines.format.names import Names, name_of, names_from
from polyattn.quoting import shown

# Entries by (state, letter), in the numbers of the file.
Entries: TypeAlias = dict[tuple[int, int], Any]

# Larger tables make programs that nobody can run.
MOST_ENTRIES = 100_000


def state_names(content: dict[str, Any], key: str) -> Names:
    """The states that a file lists, or else those that have a row in the table."""
    if "states" in content:
        return names_from(content["states"], "state")
    table = content[key]
    if isinstance(table, dict):
        return Names("state", [name_of(state, key) for state in table])
    return Names("state", map(str, range(len(table))))


def letter_names(content: dict[str, Any], key: str) -> Names:
    """The letters that a file lists, or else those that have a column in the table."""
    if "letters" in content:
        return names_from(content["letters"], "letter")
    table = content[key]
    found: dict[str, None] = {}
    for row in table.values() if isinstance(table, dict) else table:
        if isinstance(row, dict):
            found |= dict.fromkeys(name_of(letter, key) for letter in row)
    if not found:
        widths = [len(row) for row in _rows(table) if isinstance(row, list)]
        found = dict.fromkeys(map(str, range(widths[0] if widths else 0)))
    return Names("letter", found)


def require_table(content: dict[str, Any], key: str) -> None:
    """A mapping or a list of them, with something in it."""
    if key not in content:
        raise InvalidInput(f"there are no {key}.")
    table = content[key]
    if not isinstance(table, dict | list):
        raise InvalidType(f"{key} must be a table, with a row for each state; got {shown(table)}.")
    if not table:
        raise InvalidInput(f"{key} are empty.")
    for row in _rows(table):
        if row is not None and not isinstance(row, dict | list):
            raise InvalidType(
                f"{key} must have a row for each state, a mapping of letters or a list; got "
                f"{shown(row)} in place of a row."
            )


def entries(content: dict[str, Any], key: str, states: Names, letters: Names) -> Entries:
    """What the table says, null left out; every state and letter it names must be known."""
    if len(states) * len(letters) > MOST_ENTRIES:
        raise InvalidInput(
            f"{len(states)} states and {len(letters)} letters are too many: a table has at most "
            f"{MOST_ENTRIES} entries."
        )
    found: Entries = {}
    for state, row in _numbered(content[key], states, key):
        for letter, value in _numbered(row or {}, letters, f"{key} of {states.names[state]!r}"):
            if value is not None:
                found[state, letter] = value
    return found


def missing(found: Entries, states: Names, letters: Names) -> list[str]:
    """The pairs of state and letter without an entry, in words."""
    return [
        f"state {state!r} and letter {letter!r}"
        for q, state in enumerate(states.names)
        for x, letter in enumerate(letters.names)
        if (q, x) not in found
    ]


def listed(pairs: list[str]) -> str:
    """A few of the pairs, and how many more."""
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return "; ".join(pairs[:4]) + more


def _numbered(table: Any, names: Names, where: str) -> list[tuple[int, Any]]:
    """The rows of a table, or the entries of a row, with their numbers."""
    if isinstance(table, list):
        if len(table) != len(names):
            raise InvalidInput(
                f"{where} has {len(table)} entries in a list, for {len(names)} {names.kind}s "
                f"({names})."
            )
        return list(enumerate(table))
    found: dict[int, Any] = {}
    for name, value in table.items():
        number = names.find(name, where)
        if number in found:
            raise InvalidInput(f"{where}: {names.kind} {str(name)!r} stands twice.")
        found[number] = value
    return list(found.items())


def _rows(table: Any) -> list[Any]:
    return list(table.values() if isinstance(table, dict) else table)
