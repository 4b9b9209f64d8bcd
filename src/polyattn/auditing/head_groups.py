"""HeadData: predicted positions of one head in groups that attend to the same tokens.

All positions of a sequence share the sums S over its tokens in mode ``full``; in mode ``last``
there is one position, and in mode ``causal`` each position has sums of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from polyattn.auditing.head_features import SECOND_DIRECTIONS, HeadFeatures
from polyattn.numerics.arrays import even_ranges

Array = NDArray[np.float64]

# Numbers that are in memory at once.
BLOCK_NUMBERS = 1 << 25


@dataclass(frozen=True, eq=False)
class Block:
    """Sequences of one length: whitened tokens (B, n, k), and outputs of the head (B, q, c).

    q = n, or 1 in mode ``last``.
    """

    tokens: Array
    outputs: Array


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups g of q positions each, those of a sequence next to each other.

    queries (g, q, p) and sums S (g, p', c): features of queries, and of keys times values, averaged
    own (g, q, k + 1): [1, w_t];  outputs (g, q, c): those of the head
    """

    queries: Array
    sums: Array
    own: Array
    outputs: Array


@dataclass(frozen=True, eq=False)
class HeadData:
    """A head, sequences, and its outputs on them; of positions of mode ``causal`` each ``step``-th.

    Features of a query or key are [1, all coordinates, products of two of the leading ones].
    """

    features: HeadFeatures
    blocks: Sequence[Block]
    mode: str
    step: int = 1

    @cached_property
    def pairs(self) -> Pairs:
        """Which features of queries and of keys the orders use."""
        return Pairs(self.features.queries.shape[1], self.features.keys.shape[1])

    def groups(self) -> Iterator[Groups]:
        """All groups, some sequences at a time."""
        return chain.from_iterable(map(self.groups_of, self.blocks))

    def groups_of(self, block: Block) -> Iterator[Groups]:
        """The groups of one block, some sequences at a time, in their order."""
        n, k = block.tokens.shape[1:]
        numbers = n * (k + self.pairs.n_queries**2 + self.pairs.sizes[1] * block.outputs.shape[2])
        for first, stop in even_ranges(len(block.tokens), max(1, BLOCK_NUMBERS // numbers)):
            yield self._groups(block.tokens[first:stop], block.outputs[first:stop])

    def _groups(self, tokens: Array, outputs: Array) -> Groups:
        n = tokens.shape[1]
        keys = _with_products(tokens @ self.features.keys, self.pairs.second[1])
        values = tokens @ self.features.values
        at = slice(n - 1, n) if self.mode == "last" else slice(None)
        queries = _with_products(tokens[:, at] @ self.features.queries, self.pairs.second[0])
        own = np.concatenate([np.ones((*tokens[:, at].shape[:2], 1)), tokens[:, at]], axis=2)
        if self.mode != "causal":
            return Groups(queries, keys.swapaxes(1, 2) @ values / n, own, outputs)
        sums = np.cumsum(keys[..., None] * values[:, :, None], axis=1)
        sums /= np.arange(1, n + 1)[:, None, None]
        # The last position of a sequence, which attends to most, is always one of them.
        some = slice((n - 1) % self.step, None, self.step)
        queries, own, outputs = (
            each[:, some].reshape(-1, 1, each.shape[2]) for each in (queries, own, outputs)
        )
        return Groups(queries, sums[:, some].reshape(-1, *sums.shape[2:]), own, outputs)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which pairs of features of queries and keys each order may use: prefixes of one list."""

    n_queries: int
    n_keys: int

    @cached_property
    def second(self) -> tuple[int, int]:
        """How many leading directions of queries and of keys are multiplied by each other."""
        return min(self.n_queries, SECOND_DIRECTIONS), min(self.n_keys, SECOND_DIRECTIONS + 1)

    @cached_property
    def blocks(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Products of sets of features, one after the other; the first pair is that of ones."""
        (m, o), r, k = self.second, self.n_queries + 1, self.n_keys + 1
        products = r + np.arange(m * (m + 1) // 2), k + np.arange(o * (o + 1) // 2)
        few_queries, few_keys = np.arange(m + 1), np.r_[np.arange(o + 1), products[1]]
        return [
            (np.arange(r), np.arange(k)),
            (products[0], few_keys),
            (few_queries, products[1]),
        ]

    @cached_property
    def indices(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Features of queries and of keys, one of each for every pair."""
        grids = [np.meshgrid(*block, indexing="ij") for block in self.blocks]
        rows, columns = zip(*((left.ravel(), right.ravel()) for left, right in grids), strict=True)
        return np.concatenate(rows), np.concatenate(columns)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many features a query and a key have."""
        return int(self.indices[0].max()) + 1, int(self.indices[1].max()) + 1

    def __len__(self) -> int:
        return len(self.indices[0])

    @property
    def prefixes(self) -> tuple[int, ...]:
        """How many pairs each of the orders token, mean, linear and second uses."""
        return 0, 1, (self.n_queries + 1) * (self.n_keys + 1), len(self)


def _with_products(coordinates: Array, n_leading: int) -> Array:
    """[1, all coordinates, products of two of the leading ones] along the last axis."""
    first, second = np.triu_indices(n_leading)
    one = np.ones((*coordinates.shape[:-1], 1))
    products = coordinates[..., first] * coordinates[..., second]
    return np.concatenate([one, coordinates, products], axis=-1)
