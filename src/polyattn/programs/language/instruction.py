"""What all instructions have in common: a meaning, terms, and reasons to be refused.

The meaning is acted out on a ``Memory``: the tokens so far, and ways to find what they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import TypeAlias

from polyattn.programs.language.attributes import Bindings, Field, Pattern, Value
from polyattn.programs.language.schema import Atom, Token
from polyattn.programs.language.terms import Beyond, Exact, Term, Unequal

# What an instruction writes: how much of which atom.
Writing: TypeAlias = Iterator[tuple[Atom, Exact]]
Fields: TypeAlias = Field | Sequence[Field]


class Memory:
    """Tokens in the order in which they came, with an index of who holds what."""

    def __init__(self, tokens: list[Token]) -> None:
        self.last: Token = {}
        self._holders: dict[str, dict[Value, list[Token]]] = defaultdict(lambda: defaultdict(list))
        self._registers: dict[tuple[str, str], Counter[Atom]] = defaultdict(Counter)
        for token in tokens:
            self.append(token)

    def append(self, token: Token) -> None:
        """Remember one more token, which is now the last."""
        self.last = token
        flags = {name: times for (name, value), times in token.items() if value == ()}
        for (name, value), times in token.items():
            self._holders[name][value].append(token)
            for flag, held in flags.items():
                self._registers[flag, name][name, value] += held * times

    def last_holds(self, pattern: Pattern) -> Iterator[tuple[Bindings, int]]:
        """How the last token holds the pattern: variables, and how many times."""
        return self.parts(self.last, pattern, {})

    @staticmethod
    def parts(token: Token, pattern: Pattern, known: Bindings) -> Iterator[tuple[Bindings, int]]:
        """How a token holds the pattern, with some variables known already."""
        for (name, value), times in token.items():
            if times and name == pattern.attribute.name:
                merged = _merged(pattern.match(value), known)
                if merged is not None:
                    yield merged, times

    def tokens_with(
        self, pattern: Pattern, known: Bindings
    ) -> Iterator[tuple[Token, Bindings, int]]:
        """All tokens that hold the pattern: token, variables, and how many times it does."""
        for value, tokens in self._holders[pattern.attribute.name].items():
            merged = _merged(pattern.match(value), known)
            if merged is not None:
                for token in tokens:
                    yield token, merged, token[pattern.attribute.name, value]

    def holding(self, atom: Atom) -> list[Token]:
        """All tokens that hold an atom."""
        return self._holders[atom[0]][atom[1]]

    def register(self, flag: str, name: str) -> Token:
        """What the tokens with the flag have written into an attribute, summed up."""
        return dict(self._registers[flag, name])


class Instruction(ABC):
    """One line of a program."""

    @abstractmethod
    def terms(self) -> list[Term]:
        """The products of a layer that do what the instruction means."""

    @abstractmethod
    def act(self, memory: Memory) -> Writing:
        """What is written after the last token, by the meaning of the instruction."""

    def malformed(self) -> list[str]:
        """What is no pattern, field or number where there must be one: there are no terms then."""
        return []

    def refusals(self) -> list[str]:
        """What a layer cannot do of it, beyond what is wrong with its patterns."""
        return []


def listed(fields: Fields) -> tuple[Field, ...]:
    """One field or several, as several."""
    return (fields,) if isinstance(fields, Field) else tuple(fields)


def shown(fields: Fields) -> str:
    """Fields for a person to read."""
    return ", ".join(map(str, listed(fields)))


def atom_of(pattern: Pattern, known: Bindings) -> Atom:
    """What a pattern that was found in a token says there."""
    value = pattern.fill(known)
    assert value is not None  # noqa: S101 - it was found there
    return pattern.attribute.name, value


def no_patterns(**given: object) -> list[str]:
    """Which of these are no patterns."""
    return [
        f"{name} must be a pattern, such as state(q); got {_kind(value)}"
        for name, value in given.items()
        if not isinstance(value, Pattern)
    ]


def no_fields(fields: object) -> list[str]:
    """What is wrong with ``write << read``, or a sequence of them."""
    if isinstance(fields, str) or not isinstance(fields, Field | Sequence):
        return [f"fields must be write << read, or several of them; got {_kind(fields)}"]
    found = [] if listed(fields) else ["there are no fields to be written"]
    for each in listed(fields):
        if not isinstance(each, Field):
            found.append(f"a field must be write << read; got {_kind(each)}")
            continue
        found += no_patterns(write=each.write, read=each.read)
        if not isinstance(each.weight, Real):
            found.append(f"the weight of a field must be a number; got {each.weight!r}")
    return found


def no_conditions(where: object) -> list[str]:
    """What is wrong with the conditions, apart from their variables."""
    if not isinstance(where, tuple) or not all(isinstance(c, Unequal | Beyond) for c in where):
        return [f"where must be a tuple of conditions; got {_kind(where)}"]
    return []


def require_one_hot(pattern: Pattern) -> list[str]:
    """A reason against comparing an attribute that holds differences with itself."""
    if pattern.attribute.rounding == "one_hot":
        return []
    reason = (
        f"{pattern} is compared with itself, value by value, so it must hold one value "
        "(rounding='one_hot')"
    )
    return [reason]


def _kind(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {', '.join(type(each).__name__ for each in value)}"
    return f"{type(value).__name__} {value}"


def _merged(found: Bindings | None, known: Bindings) -> Bindings | None:
    """Both bindings together, or None if they contradict each other."""
    if found is None or any(known.get(name, part) != part for name, part in found.items()):
        return None
    return known | found
