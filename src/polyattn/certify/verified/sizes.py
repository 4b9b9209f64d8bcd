"""What the rounding errors of features are measured by: their sums without cancellation.

A computed sum of products errs by at most gamma times the same sum of absolute values.  Where
every column is both key and value, its diagonal entries bound that (Cauchy-Schwarz):

    sum_s w |x_j| |x_k|  <=  sqrt(G_jj G_kk).

For other forms the sums are made once more, of absolute values; columns that a matrix makes are
x^T W, and stand for |x|^T |W|, whose rounding they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.features.unsigned import absolute_layout
from polyattn.form.layout import Layout
from polyattn.numerics.arrays import even_ranges
from polyattn.stats.magnitudes import by_diagonal
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

# Numbers of one block of features.
BLOCK_NUMBERS = 1 << 20

# Sums below this power of two, beside tokens of size one, may have lost bits to underflow.
LEAST_EXPONENT = -900


@dataclass(frozen=True)
class SizedRows:
    """Summaries of some rows, and the sizes that rounding in them is relative to."""

    sums: NDArray[np.float64]  # S (m, rows)
    queries: NDArray[np.float64]  # u (r, rows)
    sum_sizes: NDArray[np.float64]  # (m, rows)
    query_sizes: NDArray[np.float64]  # (r, rows)

    def features(self, space: FeatureSpace) -> NDArray[np.float64]:
        """phi (dimension, rows)."""
        return space.features(self.sums, self.queries)

    def magnitudes(self, space: FeatureSpace) -> NDArray[np.float64]:
        """The same without cancellation: phi errs by gamma times this."""
        return space.features(self.sum_sizes, self.query_sizes)

    def squares(self, space: FeatureSpace) -> NDArray[np.float64]:
        """Sums of squared magnitudes (dimension,); infinite where they leave float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.sum(self.magnitudes(space) ** 2, axis=1)
        return np.where(np.isnan(found), np.inf, found)


def row_pieces(rows: Rows, space: FeatureSpace, normalised: bool = False) -> Iterator[SizedRows]:
    """All rows with their sizes, so many together that their features fit a cache.

    normalised : each row times powers of two that bring its sums and its query near one
    """
    step = max(64, BLOCK_NUMBERS // space.dimension)
    layout = rows.layout
    others: Iterator[RowBlock | None] = repeat(None)
    if not by_diagonal(layout):
        others = _unsigned_blocks(rows)
    for block, sized in zip(rows.blocks(), others, strict=False):
        for first, stop in even_ranges(block.stop - block.first, step):
            some = slice(first, stop)
            sums, queries = block.sums[:, some], block.queries[:, some]
            exponents = (exponents_of(sums), exponents_of(queries)) if normalised else (0, 0)
            if normalised:
                sums, queries = np.ldexp(sums, -exponents[0]), np.ldexp(queries, -exponents[1])
                # Powers of decays may have lost bits in here; without a row nothing is proved
                # that does not hold with it.
                queries = np.where(exponents[0] < LEAST_EXPONENT, 0.0, queries)
            if sized is None:
                yield SizedRows(sums, queries, sizes_of_sums(layout, sums), np.abs(queries))
                continue
            sizes = sized.sums[:, some], sized.queries[:, some]
            yield SizedRows(sums, queries, *map(np.ldexp, sizes, np.negative(exponents)))


def _unsigned_blocks(rows: Rows) -> Iterator[RowBlock]:
    """The blocks of rows without signs; infinite where what a matrix cancels leaves float64."""
    blocks = iter(replace(rows, layout=absolute_layout(rows.layout)).blocks())
    while True:
        with np.errstate(over="ignore", invalid="ignore"):
            block = next(blocks, None)
        if block is None:
            return
        yield block


def exponents_of(columns: NDArray) -> NDArray[np.intp]:
    """The power of two that the largest entry of each column is near to; 1 where all are zero."""
    largest = np.abs(columns).max(axis=0)
    return np.frexp(np.where(largest > 0, largest, 1.0))[1]


def diagonal_places(layout: Layout) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each sum the two diagonal sums whose roots bound it; a constant bounds itself."""
    pairs = layout.pairs
    diagonal = pairs.position.diagonal()
    one, other = (diagonal[each] for each in pairs.first)
    shifts = len(pairs) * np.arange(layout.n_scales)
    first, second = ((shifts[:, None] + each).ravel() for each in (one, other))
    constant = np.arange(layout.n_products, layout.n_sums)
    return np.append(first, constant), np.append(second, constant)


def sizes_of_sums(layout: Layout, sums: NDArray) -> NDArray[np.float64]:
    """sqrt(S_jj S_kk) for each sum; only where ``by_diagonal``."""
    first, second = diagonal_places(layout)
    used, inverse = np.unique(np.concatenate([first, second]), return_inverse=True)
    roots = np.sqrt(sums[used])
    one, other = inverse[: len(first)], inverse[len(first) :]
    return np.take(roots, one, axis=0) * np.take(roots, other, axis=0)
