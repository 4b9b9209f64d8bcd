"""The three sums behind the moments, and two ways to accumulate them: plainly, and by pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import add_correlation, all_products, pair_products
from polyattn.form.layout import Layout
from polyattn.form.pairs import distance_position, n_pairs, pair_index, pair_position
from polyattn.numerics.arrays import CACHE_LINE, aligned_empty, even_ranges
from polyattn.numerics.blas import add_product, add_square
from polyattn.numerics.parallel import deal, map_pieces, n_workers
from polyattn.stats.row_groups import RowBlock

# Numbers in one matrix of features: about the second-level cache of a core.
EXPLICIT_NUMBERS = 1 << 18
MIN_ROWS = 64

# Pair products that are made and multiplied together, and for how many rows of the data.
TILE_HEIGHT, TILE_WIDTH = 1152, 512

# Towards the end tiles become smaller, down to this, so that the workers end together.  How
# many workers there are has no part in it: heights decide how BLAS rounds.
LARGEST_SHARE, LEAST_HEIGHT = 0.25, 256

# Some rows of the data: S (m, rows) and vech(u u^T), both contiguous.
Piece = tuple[NDArray, NDArray]


class ThreeSums:
    """sum psi psi^T (``gram``, in an order of the subclass), sum psi y^T and sum y y^T.

    psi are all m r products S ⊗ u, those included that are no features.
    """

    def __init__(self, layout: Layout, n_outputs: int, gram_shape: tuple[int, int]) -> None:
        self.n_sums, self.n_queries = layout.n_sums, layout.n_queries
        self.n_outputs = n_outputs
        self.gram = np.zeros(gram_shape)
        self.cross = np.zeros((self.n_sums, self.n_queries, n_outputs))
        self.targets = np.zeros((n_outputs, n_outputs))

    def absorb(self, other: ThreeSums) -> None:
        """Add sums of the same layout."""
        self.gram += other.gram
        self.cross += other.cross
        self.targets += other.targets

    def subtract(self, other: ThreeSums) -> None:
        """Take out sums of the same layout."""
        self.gram -= other.gram
        self.cross -= other.cross
        self.targets -= other.targets

    def down_weigh(self, factor: float) -> None:
        """Multiply all weights so far."""
        for sums in (self.gram, self.cross, self.targets):
            sums *= factor

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
    """Sums by symmetric rank-k updates, for few queries; ``gram`` (m r, m r) is the matrix itself.

    Features and targets of a block stand in one matrix, and one update gives all three sums:
    (m r + e)^2 flops per row.
    """

    def __init__(self, layout: Layout, n_outputs: int) -> None:
        n_products = layout.n_sums * layout.n_queries
        super().__init__(layout, n_outputs, (n_products, n_products))

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
                all_products(block.sums[:, some], block.queries[:, some], out=rows[:p])
                rows[p:] = targets
                add_square(total, rows)
        return total


class PairedSums(ThreeSums):
    """Sums by products of pairs: the way for wide queries, with half the flops.

    sum S_a S_b u_k u_l is symmetric in (a, b) and in (k, l) separately, so only m(m+1)/2 times
    r(r+1)/2 of the entries of sum psi psi^T differ; ``gram`` (r(r+1)/2, m(m+1)/2) holds each
    once.  One product of the pair products of S with those of u gives them all.  The former are
    made tile by tile, and a tile is multiplied while it is in the cache of the core that made it.

    The pairs a <= b of S are sorted by b - a: products of the same distance are then one product
    of two stretches of memory, which takes half the time.  Query pairs come first: BLAS runs
    faster with the long side of a tile as its rows.  In files columns are as in ``pair_index``.
    """

    def __init__(self, layout: Layout, n_outputs: int) -> None:
        shape = (n_pairs(layout.n_queries), n_pairs(layout.n_sums))
        super().__init__(layout, n_outputs, shape)

    def add(self, blocks: Sequence[RowBlock]) -> None:
        def pieces(block: RowBlock) -> list[Piece]:
            cut = _cut(block.sums, block.queries)
            return [(sums, pair_products(queries)) for sums, queries in cut]

        self._add_pieces(map_pieces(pieces, blocks))
        self.add_targets(blocks)

    def add_shared(self, sums: NDArray, query_pairs: NDArray) -> None:
        """Add to the gram alone: S (m, rows), and the sum of vech(u u^T) of all that share it."""
        self._add_pieces([_cut(sums, query_pairs)])

    def add_targets(self, blocks: Sequence[RowBlock]) -> None:
        """Add to the sums with targets alone."""
        if self.n_outputs == 0:
            return

        def own_cross(some: list[RowBlock]) -> NDArray[np.float64]:
            total = np.zeros_like(self.cross)
            for block in some:
                add_correlation(total, block.sums, block.queries, block.targets)
            return total

        for cross in map_pieces(own_cross, deal(blocks)):
            self.cross += cross
        for block in blocks:
            self.targets += block.targets @ block.targets.T

    def diagonal(self) -> NDArray[np.float64]:
        squares = pair_position(self.n_queries).diagonal()
        columns = distance_position(self.n_sums).diagonal()
        return self.gram[squares[None, :], columns[:, None]].ravel()

    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        m, r = self.n_sums, self.n_queries
        pair_at, query_at = distance_position(m), pair_position(r)
        full = np.empty((m, r, m, r))
        by_sum = factors.reshape(m, r)

        def fill(some: list[int]) -> None:
            for a in some:
                entries = np.take(self.gram, pair_at[a], axis=1)  # (query pair, other sum)
                full[a] = entries[query_at].transpose(0, 2, 1)
                # One factor after the other: their product may leave the range of float64.
                full[a] *= by_sum
                full[a] *= by_sum[a][:, None, None]

        map_pieces(fill, deal(range(m)))
        return full.reshape(m * r, m * r)

    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        m, r = self.n_sums, self.n_queries
        blocks = matrix.reshape(m, r, m, r)
        rows, columns = pair_index(m)
        return np.stack(
            [blocks[:, k, :, other][rows, columns] for k, other in zip(*pair_index(r), strict=True)]
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
        """Where ``gram`` has the pairs in the order of ``pair_index``, shape (m(m+1)/2,)."""
        return distance_position(self.n_sums)[pair_index(self.n_sums)]

    def _add_pieces(self, pieces: Sequence[list[Piece]]) -> None:
        # Each worker takes the next tile: no two write to the same place.  (Two workers may ask
        # the iterator of a list at once, but not a generator.)
        tiles = iter(list(_tiles(self.gram.shape[1])))
        together = list(chain.from_iterable(pieces))

        def work(_: int) -> None:
            memory = np.empty(0)
            for first, stop in tiles:
                for sums, query_pairs in together:
                    height, n_rows = stop - first, sums.shape[1]
                    if memory.size < height * n_rows:
                        # Fresh memory costs more than the products in it: one tile serves all.
                        memory = aligned_empty(height * n_rows)
                    tile = memory[: height * n_rows].reshape(height, n_rows)
                    _fill_tile(tile, sums, first)
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


def _cut(sums: NDArray, beside: NDArray) -> list[Piece]:
    """Copies of both, padded, in pieces of at most TILE_WIDTH rows of the data."""
    ranges = even_ranges(sums.shape[1], TILE_WIDTH)
    return [(_padded(sums[:, i:j]), _padded(beside[:, i:j])) for i, j in ranges]


def _padded(piece: NDArray) -> NDArray[np.float64]:
    """A contiguous copy whose rows are whole cache lines, filled up with zeros."""
    height, n_rows = piece.shape
    padded = aligned_empty(height, n_rows + -n_rows % (CACHE_LINE // 8))
    padded[:, :n_rows] = piece
    padded[:, n_rows:] = 0.0
    return padded


def _fill_tile(tile: NDArray, sums: NDArray, first: int) -> None:
    """Write products sums[a] * sums[b], a <= b, from column ``first`` on, until it is full."""
    # Both are contiguous, so that all products of one distance b - a are one call.
    m, n_rows = sums.shape
    begins = distance_position(m)[0]  # where the distances 0, 1, ... begin
    distance = int(np.searchsorted(begins, first, side="right")) - 1
    a, at = first - int(begins[distance]), 0
    numbers, products = sums.reshape(-1), tile.reshape(-1)
    while at < len(tile):
        count = min(m - distance - a, len(tile) - at)
        one, other = a * n_rows, (a + distance) * n_rows
        np.multiply(
            numbers[one : one + count * n_rows],
            numbers[other : other + count * n_rows],
            out=products[at * n_rows : (at + count) * n_rows],
        )
        at += count
        distance, a = distance + 1, 0
