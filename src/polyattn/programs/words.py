"""Tokens in words, with the names that a machine has for its states and letters."""

from __future__ import annotations

from collections.abc import Sequence

from polyattn.programs.language.attributes import INTEGER, Attribute, Value
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.sorts import Part
from polyattn.programs.machines.named import NamedMachine


def value_words(attribute: Attribute, value: Value, named: NamedMachine | None = None) -> str:
    """A value part by part: ``odd, 1`` for the state 1 and the letter 1 of an automaton."""
    if isinstance(value, str):
        return value
    names = {"state": named.states, "letter": named.letters} if named else {}
    parts = zip(attribute.sorts, value, strict=True)
    return ", ".join(_part(part, names.get(sort.name, ())) for sort, part in parts)


def token_words(
    schema: Schema, token: Token, named: NamedMachine | None = None
) -> list[tuple[str, str]]:
    """A token attribute by attribute: what each that it has holds, in words."""
    found: dict[str, list[str]] = {}
    for (name, value), times in token.items():
        attribute: Attribute = getattr(schema, name)
        found.setdefault(name, []).append(_held(attribute, value, times, named))
    return [(name, ", ".join(held)) for name, held in found.items()]


def _held(attribute: Attribute, value: Value, times: int, named: NamedMachine | None) -> str:
    inside = value_words(attribute, value, named)
    if attribute.rounding != INTEGER:
        return inside or "yes"
    sign = {1: "+", -1: "\N{MINUS SIGN}"}.get(times, f"{times:+d} \N{MULTIPLICATION SIGN} ")
    return f"{sign}({inside})" if "," in inside else f"{sign}{inside}"


def _part(part: Part, names: Sequence[str]) -> str:
    # A layer that is wrong may write states that the machine does not have.
    return names[part] if isinstance(part, int) and part < len(names) else str(part)
