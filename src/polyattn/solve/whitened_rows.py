"""Rows in whitened coordinates and single precision: products with their equations, at half cost.

Whitened sums and queries are of size one, so single precision rounds all of them alike, whatever
the units and correlations of the tokens.  What a descent with such products misses is a small part
of the gradient, which the next one starts from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import BLOCK_NUMBERS, MIN_ROWS
from polyattn.numerics.parallel import MOST_GROUPS, deal, map_pieces
from polyattn.solve.whitening import Whitening
from polyattn.stats.passes import PartsOfRows, folded
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

Single: TypeAlias = NDArray[np.float32]

# Fewer numbers (rows times features) are not worth a copy.
LEAST_NUMBERS = 1 << 20

# Rows times features that a worker takes at a time: less would be lost in waiting for each other.
GROUP_NUMBERS = 1 << 23

# Whitening the rows takes (m/r + r/m) / 2 passes; it has to save more than that.
MOST_UNEVEN = 100.0


class WhitenedBlock(NamedTuple):
    """Some rows."""

    sums: Single  # (m, rows)
    queries: Single  # (r, rows)
    beside: Single  # (k, rows), the features beside the products


@dataclass(frozen=True)
class WhitenedPart:
    """The rows of one of the parts."""

    blocks: list[WhitenedBlock]

    @property
    def held_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(array.nbytes for block in self.blocks for array in block)


class Maps(NamedTuple):
    """How rows are whitened: matrices for sums (m, m) and queries (r, r), factors for others (k,).

    step : how many rows stand together
    """

    sums: NDArray[np.float64]
    queries: NDArray[np.float64]
    beside: NDArray[np.float64]
    step: int


@dataclass(frozen=True)
class WhitenedRows:
    """All rows, and what a ridge does to the equations.

    parts : each a ``WhitenedPart``, here or on workers
    shrinkage : (m, r), the root of the part of each whitened feature that a ridge leaves
    penalty : (p, 1), what a ridge of one adds to the diagonal of the equations
    """

    parts: PartsOfRows
    shrinkage: NDArray[np.float64]
    penalty: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows, whitening: Whitening) -> WhitenedRows | None:
        """Those of the rows; None where a copy in memory does not fit or does not pay."""
        m, r = whitening.roots.shape
        if not (rows.keeps_summaries and whitening.has_diagonal_ridge and m and r):
            return None
        if rows.n_rows * m * r < LEAST_NUMBERS or m / r + r / m > MOST_UNEVEN:
            return None
        factors = (whitening.sums, whitening.queries)
        sizes = [np.sqrt(factor.values) for factor in factors]
        of_sums, of_queries = (
            (factor.vectors * _inverse(size)).T / factor.unit
            for factor, size in zip(factors, sizes, strict=True)
        )
        maps = Maps(
            of_sums / rows.layout.norm_weights[:m],
            of_queries,
            whitening.beside / whitening.scale[m * r :, 0],
            max(MIN_ROWS, BLOCK_NUMBERS // (r * max(1, rows.n_outputs))),
        )
        roots = np.append(whitening.roots, whitening.beside)
        shrinkage = whitening.roots * np.multiply.outer(*sizes)
        return cls(PartsOfRows.of(rows).made(_whitened, maps), shrinkage, roots[:, None] ** 2)

    def product(self, columns: NDArray, ridge: float) -> NDArray[np.float64]:
        """L^T (sum phi phi^T + ridge) L of some columns (p, k), to single precision."""
        m, r = self.shrinkage.shape
        n_columns, size = columns.shape[1], m * r
        block = self.shrinkage * columns[:size].T.reshape(n_columns, m, r)
        by_query = block.transpose(0, 2, 1).reshape(n_columns * r, m).astype(np.float32)
        beside = columns[size:].T.astype(np.float32)
        total, total_beside = folded(self.parts.results(_products, by_query, beside))
        turned = self.shrinkage * total.reshape(m, n_columns, r).transpose(1, 0, 2)
        found = np.concatenate([turned.reshape(n_columns, size).T, total_beside])
        return np.asarray(found + ridge * self.penalty * columns)


def _whitened(rows: Rows, maps: Maps) -> WhitenedPart:
    """The whitened rows of a part."""
    of_block = partial(_whitened_block, maps=maps)
    lists = [some for blocks in rows.groups() for some in map_pieces(of_block, blocks)]
    return WhitenedPart(list(chain.from_iterable(lists)))


def _whitened_block(block: RowBlock, maps: Maps) -> list[WhitenedBlock]:
    m, r, found = len(maps.sums), len(maps.queries), []
    for start in range(0, block.stop - block.first, maps.step):
        some = slice(start, start + maps.step)
        sums, queries = block.sums[:, some], block.queries[:, some]
        beside = np.multiply.outer(maps.beside, sums[-1] * queries[-1])
        arrays = (maps.sums @ sums[:m], maps.queries @ queries[:r], beside)
        found.append(WhitenedBlock(*(array.astype(np.float32) for array in arrays)))
    return found


def _products(part: WhitenedPart, by_query: Single, beside: Single) -> list[NDArray[np.float64]]:
    """Sums of S ⊗ u times outputs, (m, k r), and of the others (k, columns), over a part."""
    n_columns, m = len(beside), by_query.shape[1]
    size = m * len(by_query) // n_columns
    n_numbers = size * sum(some.sums.shape[1] for some in part.blocks)
    n_groups = min(MOST_GROUPS, -(-n_numbers // GROUP_NUMBERS))
    of_blocks = partial(_products_of, by_query=by_query, beside=beside)
    return folded(map_pieces(of_blocks, deal(part.blocks, n_groups)))


def _products_of(
    blocks: list[WhitenedBlock], by_query: Single, beside: Single
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n_columns, (height, m) = len(beside), by_query.shape
    total, total_beside = np.zeros((m, height)), np.zeros((beside.shape[1], n_columns))
    for some in blocks:
        products = (by_query @ some.sums).reshape(n_columns, height // n_columns, -1)
        outputs = np.einsum("alr,lr->ar", products, some.queries) + beside @ some.beside
        np.multiply(outputs[:, None], some.queries, out=products)
        total += some.sums @ products.reshape(height, -1).T
        total_beside += some.beside @ outputs.T
    return total, total_beside


def _inverse(sizes: NDArray) -> NDArray[np.float64]:
    """One over sizes, and 0 for those that are zero."""
    return np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
