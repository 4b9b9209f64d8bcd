"""The engine: one token after another, touching only what the tokens hold.

The layer's output is sum over heads of x A G V.  The Gram matrix G of the tokens is not
recomputed but updated by each new token, only in the entries that some head reads, and kept as
dictionaries without zeros.  All arithmetic is that of integers of any size, in units of the
least common fraction of the weights: nothing is rounded, and counts beyond 64 bits are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from math import lcm
from typing import TypeAlias

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.schema import Schema, Token, require_count
from polyattn.programs.language.terms import Exact
from polyattn.programs.lowering import Head

# Coordinates and their values, zeros left out.
Sparse: TypeAlias = dict[int, int]


class Engine:
    """Predicts the next token of one history by the heads of a layer.

    Cost: O(active) per token: the products of the token's coordinates with those that heads
    match, and the entries of the Gram matrix at what the token asks for.
    """

    def __init__(self, schema: Schema, heads: Iterable[Head]) -> None:
        self._schema = schema
        listed = list(heads)
        of_value = common_denominator(weight for head in listed for weight in head.value.values())
        of_attn = common_denominator(weight for head in listed for weight in head.attn.values())
        self._unit = of_value * of_attn
        self._probes: dict[int, list[tuple[int, int, dict[int, list[tuple[int, int]]]]]]
        self._probes = defaultdict(list)
        self._read_with: dict[int, set[int]] = defaultdict(set)
        for head in listed:
            writes: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for (read, write), weight in head.value.items():
                writes[read].append((write, int(weight * of_value)))
            for (query, match), weight in head.attn.items():
                self._probes[query].append((match, int(weight * of_attn), dict(writes)))
                self._read_with[match] |= writes.keys()
        blocks = [(each, schema.blocks[each.name]) for each in schema.attributes]
        self._attribute = [at for at, (_, b) in enumerate(blocks) for _ in range(b.start, b.stop)]
        self._one_hot = [each.rounding == ONE_HOT for each in schema.attributes]
        self._gram: dict[int, Sparse] = {}
        self._last: Sparse = {}

    def fresh(self) -> Engine:
        """Another engine of the same heads, which has seen no tokens; their tables are shared."""
        other = copy(self)
        other._gram, other._last = {}, {}
        return other

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        self._gram = defaultdict(dict)
        # By the schema's own rows: it refuses what it does not know, and zeros fall away.
        for row in self._schema.encode(prompt):
            self._append({int(at): int(row[at]) for at in row.nonzero()[0]})

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        token = self._rounded(self._sums())
        self._append(token)
        atoms = self._schema.atoms
        return {atoms[at]: times for at, times in token.items()}

    def output(self) -> dict[int, float]:
        """The layer's output after the last token, before rounding, where it is not zero."""
        return {at: amount / self._unit for at, amount in self._sums().items()}

    def _sums(self) -> dict[int, int]:
        """The output times the unit of the weights: integers."""
        found: dict[int, int] = defaultdict(int)
        gram, nothing = self._gram, dict[int, int]()
        for query, asked in self._last.items():
            for match, weight, writes in self._probes.get(query, ()):
                factor = asked * weight
                for read, amount in gram.get(match, nothing).items():
                    for write, share in writes.get(read, ()):
                        found[write] += factor * amount * share
        return found

    def _append(self, token: Sparse) -> None:
        for match, times in token.items():
            readers = self._read_with.get(match)
            if not readers:
                continue
            row = self._gram[match]
            for read, held in token.items():
                if read in readers:
                    amount = row.get(read, 0) + times * held
                    if amount:
                        row[read] = amount
                    else:
                        del row[read]
        self._last = token

    def _rounded(self, sums: dict[int, int]) -> Sparse:
        """As ``Schema.round`` rounds arrays: the largest above one half, or integers."""
        token: Sparse = {}
        best: dict[int, tuple[int, int]] = {}
        unit = self._unit
        for at, amount in sums.items():
            block = self._attribute[at]
            if not self._one_hot[block]:
                if whole := amount if unit == 1 else _nearest(amount, unit):
                    token[at] = require_count(self._schema.atoms[at], whole)
            elif 2 * amount > unit and (amount, -at) > best.get(block, (0, 0)):
                best[block] = (amount, -at)
        for _, at in best.values():
            token[-at] = 1
        return dict(sorted(token.items()))


def _nearest(amount: int, unit: int) -> int:
    """amount / unit rounded to an integer; halves to the even one, as ``round`` does."""
    whole, rest = divmod(2 * amount + unit, 2 * unit)
    return whole - 1 if rest == 0 and whole % 2 else whole


def common_denominator(weights: Iterable[Exact]) -> int:
    """The least number that makes integers of all weights."""
    return lcm(1, *(weight.denominator for weight in weights))
