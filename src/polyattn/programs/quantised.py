"""quantise: a compiled program run with every number in a few bits.

A number of b bits is an integer from -2^(b-1) to 2^(b-1) - 1; what is beyond is the nearest of
them, after every single operation:

- the weights of all heads, integers, and the entries of all tokens are clipped once;
- for each token, a head's score is the sum of query weight match, product by product;
- what a head writes is the sum over the tokens, in the order in which they came, of score times
  value; and the output is the sum over the heads, in their order;
- the output is rounded to a token as ever, and appended.

So no sum is ever held in more than b bits: that is what "can be achieved with 2 bits of precision"
[yau2024: Lemma B.1] has to mean for the tokens, the weights and all that is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, require_integer
from polyattn.programs.compile import Compiled
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.language.terms import Exact
from polyattn.programs.lowering import Entries, Head
from polyattn.programs.running.runnable import Runnable

# Coordinates and their values, zeros left out.
Sparse: TypeAlias = dict[int, int]


def quantise(compiled: Compiled, bits: int) -> Quantised:
    """The program with weights, tokens and all sums of so many bits; ``run`` runs it.

    Parameters
    ----------
    compiled : Compiled
    bits : int
        Of a signed integer: 2 bits hold -2, -1, 0 and 1, one bit holds -1 and 0.

    Guarantee: no number beyond the bits is ever used; if they do not suffice, other tokens are
    written, and ``run`` gives a wrong result or raises ``BrokenTrace``.
    Cost per token: the heads that it asks, times the tokens that they match.
    """
    if not isinstance(compiled, Compiled):
        raise InvalidType(f"quantise takes a compiled program; got {type(compiled).__name__}.")
    weights = (w for head in compiled.heads for w in (*head.value.values(), *head.attn.values()))
    broken = next((weight for weight in weights if round(weight) != weight), None)
    if broken is not None:
        raise InvalidInput(
            f"quantise takes programs whose weights are integers; {compiled.name} has {broken}."
        )
    return Quantised(compiled, require_integer("bits", bits))


class Quantised(Runnable):
    """A compiled program in numbers of a few bits.

    heads : those of the program, their weights clipped
    bits : of every number
    """

    def __init__(self, compiled: Compiled, bits: int) -> None:
        self.schema, self.bits = compiled.schema, bits
        self.heads = [
            Head(_narrow(head.value, bits), _narrow(head.attn, bits)) for head in compiled.heads
        ]

    @property
    def weights(self) -> tuple[int, ...]:
        """The values that weights have, other than 0, the smallest first."""
        found = {
            int(weight)
            for head in self.heads
            for weight in (*head.value.values(), *head.attn.values())
        }
        return tuple(sorted(found))

    def predictor(self) -> QuantisedPredictor:
        return QuantisedPredictor(self.schema, self.heads, self.bits)

    def __repr__(self) -> str:
        return f"Quantised({self.bits} bits, {len(self.heads)} heads, {self.n_dims} coordinates)"


class QuantisedPredictor:
    """Predicts the next token; every product and every sum is clipped."""

    def __init__(self, schema: Schema, heads: Iterable[Head], bits: int) -> None:
        self._schema, self._bits = schema, bits
        self._heads = [_Matched(head) for head in heads]
        # The heads that a coordinate of the last token asks.
        self._asked: dict[int, list[int]] = defaultdict(list)
        for number, head in enumerate(self._heads):
            for query in head.matches:
                self._asked[query].append(number)
        self._tokens: list[Sparse] = []
        self._holders: dict[int, list[int]] = {}

    def start(self, prompt: list[Token]) -> None:
        self._tokens, self._holders = [], defaultdict(list)
        for row in self._schema.encode(prompt):
            self._append({int(at): int(row[at]) for at in np.flatnonzero(row)})

    def next_token(self) -> Token:
        row = self._schema.round(self.output())
        self._append({int(at): int(row[at]) for at in np.flatnonzero(row)})
        return self._schema.decode(row)

    def output(self) -> NDArray[np.float64]:
        """The output (d,) after the last token, before rounding."""
        found, last, clip = np.zeros(self._schema.n_dims), self._tokens[-1], self._clip
        for at in sorted({head for query in last for head in self._asked.get(query, ())}):
            head = self._heads[at]
            written: Sparse = defaultdict(int)
            for number, score in self._scores(head, last):
                token = self._tokens[number]
                for (read, write), weight in head.value.items():
                    if read in token:
                        said = clip(score * clip(token[read] * int(weight)))
                        written[write] = clip(written[write] + said)
            for write, amount in written.items():
                found[write] = clip(int(found[write]) + amount)
        return found

    def _scores(self, head: _Matched, last: Sparse) -> list[tuple[int, int]]:
        """The tokens that a head matches, in order, and how much each."""
        scores: Sparse = defaultdict(int)
        for query, asked in last.items():
            for match, weight in head.matches.get(query, ()):
                for number in self._holders.get(match, ()):
                    product = self._clip(self._clip(asked * weight) * self._tokens[number][match])
                    scores[number] = self._clip(scores[number] + product)
        return sorted((number, score) for number, score in scores.items() if score)

    def _append(self, token: Sparse) -> None:
        clipped = {at: held for at, times in token.items() if (held := self._clip(times))}
        for at in clipped:
            self._holders[at].append(len(self._tokens))
        self._tokens.append(clipped)

    def _clip(self, number: int) -> int:
        return _clipped(number, self._bits)


class _Matched:
    """A head by the coordinates that are asked for."""

    def __init__(self, head: Head) -> None:
        self.value = head.value
        self.matches: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (query, match), weight in head.attn.items():
            self.matches[query].append((match, int(weight)))


def _narrow(entries: Entries, bits: int) -> dict[tuple[int, int], Exact]:
    """Weights of so many bits, zeros left out."""
    found = {place: _clipped(int(weight), bits) for place, weight in entries.items()}
    return {place: weight for place, weight in found.items() if weight}


def _clipped(number: int, bits: int) -> int:
    """The nearest integer that so many bits hold."""
    return min(max(number, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)
