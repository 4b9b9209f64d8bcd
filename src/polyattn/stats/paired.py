"""Sums by products of pairs: the way for wide tokens, with half the flops.

sum g1 g2 x_l1 x_l2 is symmetric in (g1, g2) and in (l1, l2) separately, so only
q(q+1)/2 * q of the p^2 entries of sum psi psi^T differ.  One product of the pair products of g
with the pair products of x gives them all.  The pair products of g are made tile by tile, and a
tile is multiplied while it is in the cache of the core that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.arrays import even_ranges
from polyattn.blas import add_product
from polyattn.features.cubic import add_correlation
from polyattn.features.pairs import n_pairs, pair_index, pair_position
from polyattn.features.summaries import pair_products
from polyattn.parallel import deal, map_pieces, n_workers
from polyattn.stats.rows import RowBlock
from polyattn.stats.sums import Sums

# Pair products that are made and multiplied together, and for how many rows of the data.
TILE_HEIGHT, TILE_WIDTH = 1152, 512


class PairedSums(Sums):
    """Sums by products of pairs; ``gram`` (q, q(q+1)/2) holds each entry once.

    Query pairs come first: BLAS runs faster with the long side of a tile as its rows.
    """

    def __init__(self, n_dims: int, n_outputs: int) -> None:
        super().__init__(n_dims, n_outputs)
        self.gram = np.zeros((n_pairs(n_dims), n_pairs(n_pairs(n_dims))))

    def add(self, blocks: Sequence[RowBlock]) -> None:
        query_pairs = map_pieces(lambda block: pair_products(block.queries), blocks)
        self.add_pairs([block.pairs for block in blocks], query_pairs)
        self.add_targets(blocks)

    def add_pairs(self, pairs: Sequence[NDArray], query_pairs: Sequence[NDArray]) -> None:
        """Add to the gram alone: vech(G) and vech(x x^T), both (q, rows), block by block.

        Where queries share G, the second is their sum and the row counts once.
        """
        tiles = iter(_tiles(self.gram.shape[1]))
        # Each worker takes the next tile: no two write to the same place.
        work = partial(self._add_tiles, tiles, list(_cut(pairs, query_pairs)))
        map_pieces(lambda _: work(), range(n_workers()))

    def add_targets(self, blocks: Sequence[RowBlock]) -> None:
        """Add to the sums with targets alone."""
        if self.n_outputs == 0:
            return
        for cross in map_pieces(self._own_cross, deal(blocks)):
            self.cross += cross
        for block in blocks:
            self.targets += block.targets @ block.targets.T

    def diagonal(self) -> NDArray[np.float64]:
        squares = pair_position(self.n_dims).diagonal()
        columns = pair_position(n_pairs(self.n_dims)).diagonal()
        return self.gram[squares[None, :], columns[:, None]].ravel()

    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        q, d = n_pairs(self.n_dims), self.n_dims
        pair_at, query_at = pair_position(q), pair_position(d)
        full = np.empty((q, d, q, d))
        by_pair = factors.reshape(q, d)

        def fill(pairs: list[int]) -> None:
            for g in pairs:
                entries = np.take(self.gram, pair_at[g], axis=1)  # (query pair, other pair)
                full[g] = entries[query_at].transpose(0, 2, 1)
                # One factor after the other: their product may leave the range of float64.
                full[g] *= by_pair
                full[g] *= by_pair[g][:, None, None]

        map_pieces(fill, deal(range(q)))
        return full.reshape(q * d, q * d)

    def as_gram(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        q, d = n_pairs(self.n_dims), self.n_dims
        blocks = matrix.reshape(q, d, q, d)
        rows, columns = pair_index(q)
        return np.stack(
            [blocks[:, l1, :, l2][rows, columns] for l1, l2 in zip(*pair_index(d), strict=True)]
        )

    def _add_tiles(
        self, tiles: Iterator[tuple[int, int]], blocks: list[tuple[NDArray, NDArray]]
    ) -> None:
        memory = np.empty(0)
        for first, stop in tiles:
            for pairs, query_pairs in blocks:
                height, width = stop - first, pairs.shape[1]
                if memory.size < height * width:
                    # Fresh memory costs more than the products in it: one tile serves all.
                    memory = np.empty(height * width)
                tile = memory[: height * width].reshape(height, width)
                _fill_tile(tile, pairs, first)
                add_product(self.gram[:, first:stop], query_pairs, tile)

    def _own_cross(self, blocks: list[RowBlock]) -> NDArray[np.float64]:
        total = np.zeros_like(self.cross)
        for block in blocks:
            add_correlation(total, block.pairs, block.queries, block.targets)
        return total


def _tiles(n_columns: int) -> list[tuple[int, int]]:
    """Ranges of about TILE_HEIGHT columns, as many for each worker."""
    count = -(-n_columns // TILE_HEIGHT)
    count += -count % n_workers()
    borders = [n_columns * i // count for i in range(count + 1)]
    return [(first, stop) for first, stop in pairwise(borders) if stop > first]


def _cut(
    pairs: Sequence[NDArray], query_pairs: Sequence[NDArray]
) -> Iterator[tuple[NDArray, NDArray]]:
    """Both in pieces of at most TILE_WIDTH rows of the data."""
    for one, other in zip(pairs, query_pairs, strict=True):
        for start, stop in even_ranges(one.shape[1], TILE_WIDTH):
            yield one[:, start:stop], other[:, start:stop]


def _fill_tile(tile: NDArray, pairs: NDArray, first: int) -> None:
    """Write products pairs[a] * pairs[b], a <= b, from number ``first`` on, until it is full."""
    q = len(pairs)
    starts, _ = pair_index(q)
    a, at = int(starts[first]), 0
    b = a + first - (n_pairs(q) - n_pairs(q - a))
    while at < len(tile):
        count = min(q - b, len(tile) - at)
        # Twice as fast as ``multiply``, whose loops stumble over rows that lie apart.
        np.einsum("r,br->br", pairs[a], pairs[b : b + count], out=tile[at : at + count])
        at += count
        a = b = a + 1
