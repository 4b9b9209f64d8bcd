"""The three sums behind the moments, and two ways to accumulate them: plainly, and by pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import add_correlation, cubic_features
from polyattn.features.pairs import (
    distance_position,
    n_features,
    n_pairs,
    pair_index,
    pair_position,
)
from polyattn.features.summaries import pair_products
from polyattn.numerics.arrays import CACHE_LINE, aligned_empty, even_ranges
from polyattn.numerics.blas import add_product, add_square
from polyattn.numerics.parallel import deal, map_pieces, n_workers
from polyattn.stats.rows import RowBlock

# Numbers in one matrix of features: about the second-level cache of a core.
EXPLICIT_NUMBERS = 1 << 18
MIN_ROWS = 64

# Pair products that are made and multiplied together, and for how many rows of the data.
TILE_HEIGHT, TILE_WIDTH = 1152, 512

# Towards the end tiles become smaller, down to this, so that the workers end together.  How
# many workers there are has no part in it: heights decide how BLAS rounds.
LARGEST_SHARE, LEAST_HEIGHT = 0.25, 256

# Some rows of the data: vech(G) and vech(x x^T), both (q, rows) and contiguous.
Piece = tuple[NDArray, NDArray]


class ThreeSums:
    """sum psi psi^T (``gram``, in a layout of the subclass), sum psi y^T and sum y y^T."""

    def __init__(self, width: int, n_outputs: int, gram_shape: tuple[int, int]) -> None:
        self.width = width
        self.n_outputs = n_outputs
        self.gram = np.zeros(gram_shape)
        self.cross = np.zeros((n_pairs(width), width, n_outputs))
        self.targets = np.zeros((n_outputs, n_outputs))

    def absorb(self, other: ThreeSums) -> None:
        """Add sums of the same layout."""
        self.gram += other.gram
        self.cross += other.cross
        self.targets += other.targets

    def rescale(self, tokens: int, targets: int) -> None:
        """Multiply the tokens seen so far by 2**tokens and the targets by 2**targets."""
        np.ldexp(self.gram, 6 * tokens, out=self.gram)
        np.ldexp(self.cross, 3 * tokens + targets, out=self.cross)
        np.ldexp(self.targets, 2 * targets, out=self.targets)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The sums by name."""
        return {"gram": self.gram, "cross": self.cross, "targets": self.targets}

    def restore(self, arrays: dict[str, NDArray]) -> None:
        """Take copies of ``arrays`` of sums in the same layout."""
        for name in ("gram", "cross", "targets"):
            setattr(self, name, np.array(arrays[name]))


class ExplicitSums(ThreeSums):
    """Sums by symmetric rank-k updates, for narrow tokens; ``gram`` (p, p) is the matrix itself.

    Features and targets of a block stand in one matrix, and one update gives all three sums:
    (p + e)^2 flops per row.
    """

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__(width, n_outputs, (n_features(width), n_features(width)))

    def add(self, blocks: Sequence[RowBlock]) -> None:
        """Add the rows of some blocks, on as many threads as BLAS may use."""
        p = len(self.gram)
        lower, *others = map_pieces(self._lower_half, deal(blocks))
        for other in others:
            lower += other
        total = np.tril(lower) + np.tril(lower, -1).T
        self.gram += total[:p, :p]
        self.cross += total[:p, p:].reshape(self.cross.shape)
        self.targets += total[p:, p:]

    def diagonal(self) -> NDArray[np.float64]:
        """sum psi^2 (p,)."""
        return self.gram.diagonal()

    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum psi psi^T as a fresh symmetric matrix (p, p), features times ``factors`` (p,)."""
        # One factor after the other: their product may leave the range of float64.
        matrix = self.gram * factors
        matrix *= factors[:, None]
        return matrix

    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """A symmetric matrix (p, p) in the layout in which ``arrays`` gives ``gram``."""
        return matrix

    def _lower_half(self, blocks: list[RowBlock]) -> NDArray[np.float64]:
        """sum [psi; y] [psi; y]^T of some blocks, right on and below the diagonal."""
        p = len(self.gram)
        height = p + self.n_outputs
        total = np.zeros((height, height))
        longest = max(block.stop - block.first for block in blocks)
        step = min(longest, max(MIN_ROWS, EXPLICIT_NUMBERS // height))
        # Fresh memory costs more than the products in it: one matrix serves all.
        memory = np.empty(height * step)
        for block in blocks:
            for start in range(0, block.stop - block.first, step):
                some = slice(start, start + step)
                targets = block.targets[:, some]
                rows = memory[: height * targets.shape[1]].reshape(height, targets.shape[1])
                cubic_features(block.pairs[:, some], block.queries[:, some], out=rows[:p])
                rows[p:] = targets
                add_square(total, rows)
        return total


class PairedSums(ThreeSums):
    """Sums by products of pairs: the way for wide tokens, with half the flops.

    sum g1 g2 x_l1 x_l2 is symmetric in (g1, g2) and in (l1, l2) separately, so only
    q(q+1)/2 * q of the p^2 entries of sum psi psi^T differ; ``gram`` (q, q(q+1)/2) holds each
    once.  One product of the pair products of g with those of x gives them all.  The former are
    made tile by tile, and a tile is multiplied while it is in the cache of the core that made it.

    The pairs a <= b of g are sorted by b - a: products of the same distance are then one product
    of two stretches of memory, which takes half the time.  Query pairs come first: BLAS runs
    faster with the long side of a tile as its rows.  In files columns are as in ``pair_index``.
    """

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__(width, n_outputs, (n_pairs(width), n_pairs(n_pairs(width))))

    def add(self, blocks: Sequence[RowBlock]) -> None:
        def pieces(block: RowBlock) -> list[Piece]:
            cut = _cut(block.pairs, block.queries)
            return [(pairs, pair_products(queries)) for pairs, queries in cut]

        self._add_pieces(map_pieces(pieces, blocks))
        self.add_targets(blocks)

    def add_pairs(self, pairs: NDArray, query_pairs: NDArray) -> None:
        """Add to the gram alone: vech(G) and the sum of vech(x x^T) of its queries, (q, rows)."""
        self._add_pieces([_cut(pairs, query_pairs)])

    def add_targets(self, blocks: Sequence[RowBlock]) -> None:
        """Add to the sums with targets alone."""
        if self.n_outputs == 0:
            return

        def own_cross(some: list[RowBlock]) -> NDArray[np.float64]:
            total = np.zeros_like(self.cross)
            for block in some:
                add_correlation(total, block.pairs, block.queries, block.targets)
            return total

        for cross in map_pieces(own_cross, deal(blocks)):
            self.cross += cross
        for block in blocks:
            self.targets += block.targets @ block.targets.T

    def diagonal(self) -> NDArray[np.float64]:
        squares = pair_position(self.width).diagonal()
        columns = distance_position(n_pairs(self.width)).diagonal()
        return self.gram[squares[None, :], columns[:, None]].ravel()

    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        q, d = n_pairs(self.width), self.width
        pair_at, query_at = distance_position(q), pair_position(d)
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

    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        q, d = n_pairs(self.width), self.width
        blocks = matrix.reshape(q, d, q, d)
        rows, columns = pair_index(q)
        return np.stack(
            [blocks[:, l1, :, l2][rows, columns] for l1, l2 in zip(*pair_index(d), strict=True)]
        )

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        return super().arrays() | {"gram": np.take(self.gram, self._columns_in_order, axis=1)}

    def restore(self, arrays: dict[str, NDArray]) -> None:
        super().restore(arrays)
        in_order = self.gram
        self.gram = np.empty_like(in_order)
        self.gram[:, self._columns_in_order] = in_order

    @property
    def _columns_in_order(self) -> NDArray[np.intp]:
        """Where ``gram`` has the pairs in the order of ``pair_index``, shape (q(q+1)/2,)."""
        q = n_pairs(self.width)
        return distance_position(q)[pair_index(q)]

    def _add_pieces(self, pieces: Sequence[list[Piece]]) -> None:
        # Each worker takes the next tile: no two write to the same place.  (Two workers may ask
        # the iterator of a list at once, but not a generator.)
        tiles = iter(list(_tiles(self.gram.shape[1])))
        together = list(chain.from_iterable(pieces))

        def work(_: int) -> None:
            memory = np.empty(0)
            for first, stop in tiles:
                for pairs, query_pairs in together:
                    height, n_rows = stop - first, pairs.shape[1]
                    if memory.size < height * n_rows:
                        # Fresh memory costs more than the products in it: one tile serves all.
                        memory = aligned_empty(height * n_rows)
                    tile = memory[: height * n_rows].reshape(height, n_rows)
                    _fill_tile(tile, pairs, first)
                    add_product(self.gram[:, first:stop], query_pairs, tile)

        map_pieces(work, range(n_workers()))


def _tiles(n_columns: int) -> Iterator[tuple[int, int]]:
    """Ranges of up to TILE_HEIGHT columns, each at most LARGEST_SHARE of what is left."""
    first = 0
    while first < n_columns:
        share = int(LARGEST_SHARE * (n_columns - first))
        stop = min(first + min(max(share, LEAST_HEIGHT), TILE_HEIGHT), n_columns)
        yield first, stop
        first = stop


def _cut(pairs: NDArray, beside: NDArray) -> list[Piece]:
    """Copies of both, padded, in pieces of at most TILE_WIDTH rows of the data."""
    ranges = even_ranges(pairs.shape[1], TILE_WIDTH)
    return [(_padded(pairs[:, i:j]), _padded(beside[:, i:j])) for i, j in ranges]


def _padded(piece: NDArray) -> NDArray[np.float64]:
    """A contiguous copy whose rows are whole cache lines, filled up with zeros."""
    height, n_rows = piece.shape
    padded = aligned_empty(height, n_rows + -n_rows % (CACHE_LINE // 8))
    padded[:, :n_rows] = piece
    padded[:, n_rows:] = 0.0
    return padded


def _fill_tile(tile: NDArray, pairs: NDArray, first: int) -> None:
    """Write products pairs[a] * pairs[b], a <= b, from column ``first`` on, until it is full."""
    # Both are contiguous, so that all products of one distance b - a are one call.
    q, n_rows = pairs.shape
    begins = distance_position(q)[0]  # where the distances 0, 1, ... begin
    distance = int(np.searchsorted(begins, first, side="right")) - 1
    a, at = first - int(begins[distance]), 0
    numbers, products = pairs.reshape(-1), tile.reshape(-1)
    while at < len(tile):
        count = min(q - distance - a, len(tile) - at)
        one, other = a * n_rows, (a + distance) * n_rows
        np.multiply(
            numbers[one : one + count * n_rows],
            numbers[other : other + count * n_rows],
            out=products[at * n_rows : (at + count) * n_rows],
        )
        at += count
        distance, a = distance + 1, 0
