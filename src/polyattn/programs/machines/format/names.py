"""Names of states and letters: text, whatever the file made of them, and their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown

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
        """The number of a name, or an error that tells where it stands and what there is."""
        name = name_of(value, where)
        if name in self.numbers:
            return self.numbers[name]
        if isinstance(value, int) and self._countable and 0 <= value < len(self.names):
            return value
        raise InvalidInput(f"{where}: there is no {self.kind} {name!r}; there are {self}.")

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


def names_from(value: Any, kind: str) -> Names:
    """The names that a file lists, or 0 to n - 1 for a number n."""
    where = f"{kind}s"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100_000:
        return Names(kind, map(str, range(value)))
    if not isinstance(value, list):
        raise InvalidType(f"{where} must be a list of names, or how many; got {shown(value)}.")
    return Names(kind, [name_of(each, f"{where}[{i}]") for i, each in enumerate(value)])


def several(value: Any) -> list[Any]:
    """One name or a list of them, as a list."""
    return value if isinstance(value, list) else [value]
