"""The interpreter: what a program means, in symbols; slow, literal, and the law for layers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.exact import Exact
from polyattn.programs.language.memory import Memory
from polyattn.programs.language.schema import Atom, Schema, Token, require_count

if TYPE_CHECKING:
    from polyattn.programs.language.program import Program


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
