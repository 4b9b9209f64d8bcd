"""The interpreter: what a program means, in symbols; slow, literal, the reference for layers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from polyattn.programs.language.attributes import ONE_HOT, Value
from polyattn.programs.language.patterns import Bindings, Pattern
from polyattn.programs.language.schema import Atom, Schema, Token, require_count
from polyattn.programs.language.terms import Exact

if TYPE_CHECKING:
    from polyattn.programs.language.program import Program


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


def _merged(found: Bindings | None, known: Bindings) -> Bindings | None:
    """Both bindings together, or None if they contradict each other."""
    if found is None or any(known.get(name, part) != part for name, part in found.items()):
        return None
    return known | found


class Interpreter:
    """Predicts the next token by acting out every instruction on the tokens so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memory = Memory([])

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        self._memory = Memory(prompt)

    def next_token(self) -> Token:
        """What all instructions write after the last token, rounded; it becomes the last."""
        written: dict[Atom, Exact] = defaultdict(int)
        for instruction in self.program.instructions:
            for atom, amount in instruction.act(self._memory):
                written[atom] += amount
        token = rounded(self.program.schema, written)
        self._memory.append(token)
        return token


def rounded(schema: Schema, written: dict[Atom, Exact]) -> Token:
    """The nearest token, block by block; ``Schema.round`` says the same of arrays."""
    token: Token = {}
    for attribute in schema.attributes:
        block = {atom: x for atom, x in written.items() if atom[0] == attribute.name}
        if attribute.rounding == ONE_HOT:
            # The first of several largest, in the order of the coordinates.
            ranked = sorted(block, key=lambda atom: (-block[atom], schema.coordinates[atom]))
            token |= {atom: 1 for atom in ranked[:1] if block[atom] > 0.5}
        else:
            token |= {atom: require_count(atom, round(x)) for atom, x in block.items() if round(x)}
    return token
