"""Tables: what a file holds for each state and letter, however it is laid out.

A table is a mapping or a list; so is each of its rows.  A mapping names the state or letter, a
list has one entry for each of them in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown

# Of a name of a state or letter, in characters.
LONGEST = 64


class Names:
    """The states, or the letters, in the order of the file.

    A name is text; a number in the file is the text of its digits, so 0 and "0" are the same.
    Where no name is a number, a number n means the n-th of the names, counted from 0.
    """

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        self.kind = kind
        self.names = tuple(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        for number, name in enumerate(self.names):
            if self.numbers[name] != number:
                raise InvalidInput(f"{kind} {name!r} stands twice among the {kind}s.")
        if not self.names:
            raise InvalidInput(f"there are no {kind}s; a machine needs at least one.")
        self._countable = not any(name.lstrip("-").isdecimal() for name in self.names)

    def find(self, value: Any, where: str) -> int:
        """The number of a name, or an error with its place and the names that there are."""
        name = name_of(value, where)
        if name in self.numbers:
            return self.numbers[name]
        if isinstance(value, int) and self._countable and 0 <= value < len(self.names):
            return value
        raise InvalidInput(f"{where}: there is no {self.kind} {name!r}; there are {self}.")

    def renumbered(self, content: dict[str, Any], key: str, usual: int = 0) -> dict[int, int]:
        """New numbers by the old ones: 0 for what a file names under ``key``, then the others."""
        first = self.find(content[key], key) if key in content else usual
        order = [first, *(number for number in range(len(self)) if number != first)]
        return {old: new for new, old in enumerate(order)}

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        more = f" and {len(self) - 12} more" if len(self) > 12 else ""
        return ", ".join(map(repr, self.names[:12])) + more


def name_of(value: Any, where: str) -> str:
    """A name as text; what cannot be one is refused with the reason."""
    if isinstance(value, bool):
        word = str(value).lower()
        raise InvalidType(
            f"{where}: {word} is a truth value, not a name; put it in quotes: '{word}'."
        )
    if value is None:
        raise InvalidType(f"{where}: a name is missing (null; put it in quotes if that is a name).")
    if not isinstance(value, str | int):
        raise InvalidType(f"{where}: a name is text or a whole number; got {shown(value)}.")
    name = str(value)
    if not name or len(name) > LONGEST or not name.isprintable():
        raise InvalidInput(
            f"{where}: a name has 1 to {LONGEST} printable characters; got {shown(name)}."
        )
    return name


def given_names(content: dict[str, Any], kind: str, usual: Iterable[str] = ()) -> Names:
    """The names that a file lists, or 0 to n - 1 for a number n; the usual ones without either."""
    where = f"{kind}s"
    if where not in content:
        return Names(kind, usual)
    value = content[where]
    if type(value) is int and 1 <= value <= 100_000:
        return Names(kind, map(str, range(value)))
    if not isinstance(value, list):
        raise InvalidType(f"{where} must be a list of names, or how many; got {shown(value)}.")
    return Names(kind, [name_of(each, f"{where}[{i}]") for i, each in enumerate(value)])


def several(value: Any) -> list[Any]:
    """One name or a list of them, as a list."""
    return value if isinstance(value, list) else [value]


# Entries by (state, letter), in the numbers of the file.
Entries: TypeAlias = dict[tuple[int, int], Any]

# Larger tables make programs that nobody can run.
MOST_ENTRIES = 100_000


def state_names(content: dict[str, Any], key: str) -> Names:
    """The states that a file lists, or else those that have a row in the table."""
    table = content[key]
    rows = table if isinstance(table, dict) else range(len(table))
    return given_names(content, "state", (name_of(row, key) for row in rows))


def letter_names(content: dict[str, Any], key: str) -> Names:
    """The letters that a file lists, or else those that have a column in the table."""
    if "letters" in content:
        return given_names(content, "letter")
    rows = _rows(content[key])
    mappings = (row for row in rows if isinstance(row, dict))
    named = dict.fromkeys(name_of(letter, key) for row in mappings for letter in row)
    width = next((len(row) for row in rows if isinstance(row, list)), 0)
    return Names("letter", named or map(str, range(width)))


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


def entries(table: Any, key: str, states: Names, letters: Names) -> Entries:
    """The entries of a table, null left out; every state and letter it names must be known."""
    if len(states) * len(letters) > MOST_ENTRIES:
        raise InvalidInput(
            f"{len(states)} states and {len(letters)} letters are too many: a table has at most "
            f"{MOST_ENTRIES} entries."
        )
    found: Entries = {}
    for state, row in _numbered(table, states, key):
        for letter, value in _numbered(row or {}, letters, f"{key} of {states.names[state]!r}"):
            if value is not None:
                found[state, letter] = value
    return found


def missing(found: Entries, states: Names, letters: Names) -> str:
    """A few of the pairs of state and letter without an entry, and how many more; or nothing."""
    pairs = [
        f"state {state!r} and letter {letter!r}"
        for q, state in enumerate(states.names)
        for x, letter in enumerate(letters.names)
        if (q, x) not in found
    ]
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
