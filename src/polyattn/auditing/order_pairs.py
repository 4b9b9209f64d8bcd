"""Which pairs of features of queries and keys each order may use, and one head's data for them.

Features of a query or key are [1, all coordinates, products of two of the leading ones].  An order
is a prefix of one list of pairs (feature of the query, feature of the key): none, the pair of ones,
all pairs of [1, coordinates], and pairs with a product in which all else is leading, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.auditing.head_directions import SECOND_DIRECTIONS
from polyattn.form.pairs import n_pairs
from polyattn.linearising.head_sums import HeadBlock
from polyattn.linearising.softmax_heads import SeenHead
from polyattn.model.attended import attended_rows
from polyattn.model.feature_maps import SideMap
from polyattn.numerics.arrays import even_ranges

Array = NDArray[np.float64]

# Numbers that are in memory at once.
BLOCK_NUMBERS = 1 << 25


@dataclass(frozen=True, eq=False)
class OrderPairs:
    """The pairs of a head with so many coordinates of queries and of keys."""

    n_queries: int
    n_keys: int

    @cached_property
    def leading(self) -> tuple[int, int]:
        """How many leading directions of queries and of keys are multiplied by each other."""
        return min(self.n_queries, SECOND_DIRECTIONS), min(self.n_keys, SECOND_DIRECTIONS + 1)

    @cached_property
    def maps(self) -> tuple[SideMap, SideMap]:
        """The features of a query and of a key."""
        sides = zip((self.n_queries, self.n_keys), self.leading, strict=True)
        query, key = (SideMap("quadratic", np.eye(count, few)[None]) for count, few in sides)
        return query, key

    @property
    def sizes(self) -> tuple[int, int]:
        """How many features a query and a key have."""
        (few, few_keys), r, k = self.leading, self.n_queries, self.n_keys
        return 1 + r + n_pairs(few), 1 + k + n_pairs(few_keys)

    @cached_property
    def blocks(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Products of sets of features, one after the other; the first pair is that of ones."""
        (few, few_keys), r, k = self.leading, self.n_queries + 1, self.n_keys + 1
        products, of_keys = np.arange(r, self.sizes[0]), np.arange(k, self.sizes[1])
        return [
            (np.arange(r), np.arange(k)),
            (products, np.append(np.arange(few_keys + 1), of_keys)),
            (np.arange(few + 1), of_keys),
        ]

    @cached_property
    def indices(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Features of queries and of keys, one of each for every pair."""
        grids = [np.meshgrid(*block, indexing="ij") for block in self.blocks]
        rows, columns = zip(*((left.ravel(), right.ravel()) for left, right in grids), strict=True)
        return np.concatenate(rows), np.concatenate(columns)

    def __len__(self) -> int:
        return len(self.indices[0])

    @property
    def prefixes(self) -> tuple[int, ...]:
        """How many pairs each of the orders token, mean, linear and second uses."""
        return 0, 1, (self.n_queries + 1) * (self.n_keys + 1), len(self)


@dataclass(frozen=True, eq=False)
class SeenBlock:
    """Sequences of one length: coordinates of a head, whitened tokens (B, n, k), outputs (B, T, c).

    T = 1 in mode ``last``, else n.
    """

    seen: SeenHead
    tokens: Array
    outputs: Array


@dataclass(frozen=True, eq=False)
class HeadData:
    """A head on sequences, and its outputs; of mode ``causal`` one of ``step`` positions."""

    blocks: Sequence[SeenBlock]
    mode: str
    step: int = 1

    @cached_property
    def pairs(self) -> OrderPairs:
        """Which features of queries and of keys the orders use."""
        seen = self.blocks[0].seen
        return OrderPairs(seen.queries.shape[2], seen.keys.shape[2])

    @property
    def n_outputs(self) -> int:
        """c, the numbers of an output that are counted."""
        return self.blocks[0].outputs.shape[2]

    def parts(self) -> Iterator[tuple[HeadBlock, Array]]:
        """Some sequences at a time: features and sums, and [1, w] (B, T, k + 1) of positions."""
        return (part for block in self.blocks for part in self.parts_of(block))

    def parts_of(self, block: SeenBlock) -> Iterator[tuple[HeadBlock, Array]]:
        """The same for one block, in the order of its sequences."""
        n, k = block.tokens.shape[1:]
        features = self.pairs.sizes
        numbers = n * (k + features[0] + features[1] * block.outputs.shape[2])
        for first, stop in even_ranges(len(block.tokens), max(1, BLOCK_NUMBERS // numbers)):
            seen = SeenHead(*(each[first:stop] for each in block.seen))
            some = _positions(np.arange(first, stop), n, self.step)
            yield self._part(seen, block.tokens[first:stop], block.outputs[first:stop], some)

    def _part(
        self, seen: SeenHead, tokens: Array, outputs: Array, some: NDArray[np.intp]
    ) -> tuple[HeadBlock, Array]:
        of_query, of_key = self.pairs.maps
        phi = of_query.features(seen.queries, 0)
        rows = attended_rows(seen.keys, seen.values, of_key, 0, self.mode, "tokens")
        tokens = tokens[:, -1:] if self.mode == "last" else tokens
        own = np.concatenate([np.ones((*tokens.shape[:2], 1)), tokens], axis=2)
        if self.mode == "causal" and self.step > 1:
            numbers = np.arange(len(own))[:, None]
            phi, rows, own, outputs = (each[numbers, some] for each in (phi, rows, own, outputs))
        return HeadBlock(phi, rows, None, outputs), own


def _positions(numbers: NDArray[np.intp], n: int, step: int) -> NDArray[np.intp]:
    """Positions (B, m), ``step`` apart, of sequences with these numbers; m = n / step, or one.

    They begin elsewhere in every sequence, so that all positions 0..n-1 occur equally often.
    """
    return np.asarray((numbers[:, None] + step * np.arange(max(1, n // step))) % n, dtype=np.intp)
