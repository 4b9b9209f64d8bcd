"""Two ways to accumulate sum psi psi^T for features psi = g (x) x, chosen by size.

*Explicit*: form psi and make a symmetric rank-k update: p^2 flops per row.

*Paired*: sum g1 g2 x_l1 x_l2 is symmetric in (g1, g2) and in (l1, l2) separately, so only
q(q+1)/2 * q of the p^2 entries differ.  One product of the pair products of g with the pair
products of x gives them all: about half the flops.  The pair products of g are made tile by
tile so that a tile stays in the cache of the core that multiplies it.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.cubic import cubic_features
from polyattn.features.pairs import n_features, n_pairs, pair_index, pair_position
from polyattn.features.summaries import pair_products
from polyattn.parallel import map_pieces, n_workers

# From this width on the paired way wins (benchmarks/moments_update.py prints both).
PAIRED_FROM_DIMS = 11

# Numbers in one block of explicit features: about the second-level cache of a core.
EXPLICIT_NUMBERS = 1 << 19

# Pair products that are made and multiplied together, and how many data rows of them.
TILE_ROWS, TILE_WIDTH = 1024, 1024


class Gram(Protocol):
    """An accumulator of sum psi psi^T; ``sums`` adds and scales like the matrix itself."""

    sums: NDArray[np.float64]

    def add(self, pairs: NDArray, queries: NDArray) -> None:
        """Add rows given by pairs (q, rows) and queries (d, rows)."""

    def matrix(self) -> NDArray[np.float64]:
        """The whole symmetric matrix (p, p)."""

    def restore(self, stored: NDArray) -> None:
        """Take ``sums`` from storage, whichever of the two layouts they were written in."""


def make_gram(n_dims: int, mode: str) -> ExplicitGram | PairedGram:
    """The accumulator that is faster for this width (mode ``full`` always gains by pairs)."""
    paired = mode == "full" or n_dims >= PAIRED_FROM_DIMS
    return PairedGram(n_dims) if paired else ExplicitGram(n_dims)


class ExplicitGram:
    """sum psi psi^T by symmetric rank-k updates; ``sums`` (p, p) is the matrix itself."""

    def __init__(self, n_dims: int) -> None:
        self.n_dims = n_dims
        p = n_features(n_dims)
        self.sums = np.zeros((p, p))

    def add(self, pairs: NDArray, queries: NDArray) -> None:
        width = max(64, EXPLICIT_NUMBERS // len(self.sums))
        starts = list(range(0, pairs.shape[1], width))

        def own_sum(own: list[int]) -> NDArray[np.float64]:
            total = np.zeros_like(self.sums)
            for start in own:
                rows = slice(start, start + width)
                psi = cubic_features(pairs[:, rows], queries[:, rows])
                # numpy sees the symmetry (a rank-k update) and, unlike scipy, lets threads run.
                total += psi @ psi.T
            return total

        for total in map_pieces(own_sum, _deal(starts)):
            self.sums += total

    def matrix(self) -> NDArray[np.float64]:
        return self.sums.copy()

    def restore(self, stored: NDArray) -> None:
        if stored.shape != self.sums.shape:
            paired = PairedGram(self.n_dims)
            paired.sums = shaped_like(paired.sums, stored)
            stored = paired.matrix()
        self.sums = shaped_like(self.sums, stored)


class PairedGram:
    """sum psi psi^T by products of pairs; ``sums`` (q, q(q+1)/2) holds each entry once.

    Query pairs come first: BLAS runs faster with the long side of a tile as its rows.
    """

    def __init__(self, n_dims: int) -> None:
        self.n_dims = n_dims
        self.sums = np.zeros((n_pairs(n_dims), n_pairs(n_pairs(n_dims))))

    def add(self, pairs: NDArray, queries: NDArray) -> None:
        self.add_query_pairs(pairs, pair_products(queries))

    def add_query_pairs(self, pairs: NDArray, query_pairs: NDArray) -> None:
        """As ``add``, given vech(x x^T) (q, rows) – or its sum over queries that share G."""
        hands = _deal(_tiles(len(pairs), TILE_ROWS))
        for start in range(0, pairs.shape[1], TILE_WIDTH):
            left = np.ascontiguousarray(query_pairs[:, start : start + TILE_WIDTH])
            block = np.ascontiguousarray(pairs[:, start : start + TILE_WIDTH])
            map_pieces(partial(self._multiply, left, block), hands)

    def matrix(self) -> NDArray[np.float64]:
        q, d = n_pairs(self.n_dims), self.n_dims
        pair_at, query_at = pair_position(q), pair_position(d)
        full = np.empty((q, d, q, d))

        def fill(rows: list[int]) -> None:
            for l1 in rows:
                for l2 in range(l1, d):
                    block = self.sums[query_at[l1, l2]][pair_at]
                    full[:, l1, :, l2] = full[:, l2, :, l1] = block

        map_pieces(fill, _deal(list(range(d))))
        return full.reshape(q * d, q * d)

    def restore(self, stored: NDArray) -> None:
        if stored.shape != self.sums.shape:
            explicit = ExplicitGram(self.n_dims)
            explicit.sums = shaped_like(explicit.sums, stored)
            q, d = n_pairs(self.n_dims), self.n_dims
            blocks = explicit.matrix().reshape(q, d, q, d)
            rows, columns = pair_index(q)
            stored = np.stack(
                [blocks[:, l1, :, l2][rows, columns] for l1, l2 in zip(*pair_index(d), strict=True)]
            )
        self.sums = shaped_like(self.sums, stored)

    def _multiply(self, left: NDArray, block: NDArray, tiles: list[tuple[int, int]]) -> None:
        """Add the tiles that one worker owns: no two workers write to the same place."""
        q, width = block.shape
        largest = max(n_pairs(q - first) - n_pairs(q - stop) for first, stop in tiles)
        # Fresh memory costs more than the products in it: one tile and one result serve all.
        tile, result = np.empty((largest, width)), np.empty(q * largest)
        for first, stop in tiles:
            size = _fill_tile(tile, block, first, stop)
            at = n_pairs(q) - n_pairs(q - first)
            product = result[: q * size].reshape(q, size)
            np.matmul(left, tile[:size].T, out=product)
            self.sums[:, at : at + size] += product


def shaped_like(own: NDArray[np.float64], stored: NDArray) -> NDArray[np.float64]:
    """A float64 copy of a stored array, which must have the shape of our own."""
    if stored.shape != own.shape or stored.dtype != np.float64:
        raise InvalidInput(
            f"stored sums have shape {stored.shape} and dtype {stored.dtype}; "
            f"expected float64 of shape {own.shape}."
        )
    return np.array(stored, order="K")


def _fill_tile(tile: NDArray, block: NDArray, first: int, stop: int) -> int:
    """Write block[a] * block[b] for first <= a < stop, a <= b; returns how many there are."""
    q, at = len(block), 0
    for a in range(first, stop):
        np.multiply(block[a], block[a:], out=tile[at : at + q - a])
        at += q - a
    return at


def _tiles(q: int, tile_rows: int) -> list[tuple[int, int]]:
    """Ranges first..stop of the leading index, each with about ``tile_rows`` pairs."""
    tiles, first, size = [], 0, 0
    for a in range(q):
        size += q - a
        if size >= tile_rows or a == q - 1:
            tiles.append((first, a + 1))
            first, size = a + 1, 0
    return tiles


def _deal(pieces: list) -> list[list]:
    """The pieces dealt to the workers like cards, so that all get the same amount of work."""
    workers = n_workers()
    hands = [pieces[i::workers] for i in range(workers)]
    return [hand for hand in hands if hand]
