"""Rows in whitened coordinates and single precision: products with their equations, at half cost.

Whitened sums and queries are of size one, so single precision rounds all of them alike, whatever
the units and correlations of the tokens.  What a descent with such products misses is a small part
of the gradient, which the next one starts from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import BLOCK_NUMBERS, MIN_ROWS
from polyattn.numerics.parallel import MOST_GROUPS, deal, map_pieces
from polyattn.solve.whitening import Whitening
from polyattn.stats.rows import RowBlock, Rows

Single: TypeAlias = NDArray[np.float32]

# Fewer numbers (rows times features) are not worth a copy.
LEAST_NUMBERS = 1 << 20

# Rows times features that a worker takes at a time: less would be lost in waiting for each other.
GROUP_NUMBERS = 1 << 23

# Whitening the rows takes (m/r + r/m) / 2 passes; it has to save more than that.
MOST_UNEVEN = 20.0


class WhitenedBlock(NamedTuple):
    """Some rows."""

    sums: Single  # (m, rows)
    queries: Single  # (r, rows)
    beside: Single  # (k, rows), the features beside the products


@dataclass(frozen=True)
class WhitenedRows:
    """All rows, and what a ridge does to the equations.

    shrinkage : (m, r), the root of the part of each whitened feature that a ridge leaves
    penalty : (p, 1), what a ridge of one adds to the diagonal of the equations
    """

    blocks: list[WhitenedBlock]
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
        of_sums = of_sums / rows.layout.norm_weights[:m]
        of_beside = whitening.beside / whitening.scale[m * r :, 0]
        step = max(MIN_ROWS, BLOCK_NUMBERS // (r * max(1, rows.n_outputs)))

        def whitened(block: RowBlock) -> list[WhitenedBlock]:
            found = []
            for start in range(0, block.stop - block.first, step):
                some = slice(start, start + step)
                sums, queries = block.sums[:, some], block.queries[:, some]
                beside = np.multiply.outer(of_beside, sums[-1] * queries[-1])
                arrays = (of_sums @ sums[:m], of_queries @ queries[:r], beside)
                found.append(WhitenedBlock(*(array.astype(np.float32) for array in arrays)))
            return found

        lists = [some for blocks in rows.groups() for some in map_pieces(whitened, blocks)]
        roots = np.append(whitening.roots, whitening.beside)
        shrinkage = whitening.roots * np.multiply.outer(*sizes)
        return cls(list(chain.from_iterable(lists)), shrinkage, roots[:, None] ** 2)

    def product(self, columns: NDArray, ridge: float) -> NDArray[np.float64]:
        """L^T (sum phi phi^T + ridge) L of some columns (p, k), to single precision."""
        m, r = self.shrinkage.shape
        n_columns, size = columns.shape[1], m * r
        block = self.shrinkage * columns[:size].T.reshape(n_columns, m, r)
        by_query = block.transpose(0, 2, 1).reshape(n_columns * r, m).astype(np.float32)
        beside = columns[size:].T.astype(np.float32)

        def part(blocks: list[WhitenedBlock]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            total = np.zeros((m, n_columns * r))
            total_beside = np.zeros((len(columns) - size, n_columns))
            for some in blocks:
                products = (by_query @ some.sums).reshape(n_columns, r, -1)
                outputs = np.einsum("alr,lr->ar", products, some.queries) + beside @ some.beside
                np.multiply(outputs[:, None], some.queries, out=products)
                total += some.sums @ products.reshape(n_columns * r, -1).T
                total_beside += some.beside @ outputs.T
            return total, total_beside

        n_numbers = size * sum(some.sums.shape[1] for some in self.blocks)
        n_groups = min(MOST_GROUPS, -(-n_numbers // GROUP_NUMBERS))
        parts = map_pieces(part, deal(self.blocks, n_groups))
        total, total_beside = (np.sum(each, axis=0) for each in zip(*parts, strict=True))
        turned = self.shrinkage * total.reshape(m, n_columns, r).transpose(1, 0, 2)
        found = np.concatenate([turned.reshape(n_columns, size).T, total_beside])
        return np.asarray(found + ridge * self.penalty * columns)


def _inverse(sizes: NDArray) -> NDArray[np.float64]:
    """One over sizes, and 0 for those that are zero."""
    return np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
