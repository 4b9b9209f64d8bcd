"""Magnitudes of features: what rounding in their sums is relative to, and which never occur.

A computed sum over tokens errs by at most gamma times the same sum of absolute values, and a
feature by that times |u|.  So with A_i = sum_s w |v| |k|,

    magnitude of feature (i, l)  =  sum over rows of  A_i^2 u_l^2

bounds the errors of all its values together.  Where every column is both key and value, diagonal
sums bound A_i^2 <= S_jj S_kk (Cauchy-Schwarz), and the magnitude is an entry of the sums that are
kept anyway.  In other forms it is added up beside them.

A sum of squares that is zero may have been lost to underflow.  So where one is, the rows are read
once more for terms that are not zero.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.features.summaries import default_block_rows
from polyattn.features.tokens import Tokens
from polyattn.features.unsigned import absolute_layout, present_layout
from polyattn.files.fields import Check, array, require
from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_position
from polyattn.numerics.arrays import even_ranges
from polyattn.stats.rows import Rows


class Magnitudes:
    """Sums of squares of features without cancellation, tokens scaled; and the absent features.

    squares : (p,), or None where entries of the other sums bound them (``by_diagonal``)
    absent : (p,), the features without a term other than zero in any row of positive weight
    """

    def __init__(self, layout: Layout) -> None:
        self.squares = None if by_diagonal(layout) else np.zeros(layout.n_features)
        self.absent = np.ones(layout.n_features, dtype=bool)

    def add(self, rows: Rows, powers: NDArray[np.float64]) -> None:
        """Add rows; ``powers`` (p,) are the sums of squared features, those of the rows included.

        Cost: a pass over the rows where magnitudes are added up, and one where a power is zero.
        """
        if self.squares is not None:
            # What a matrix cancels may be of any size: infinity says that nothing is known.
            with np.errstate(over="ignore", invalid="ignore"):
                self.squares += _squares(rows)
            self.squares[np.isnan(self.squares)] = np.inf
        self.absent &= powers == 0.0
        if self.absent.any() and np.any(self.absent & ~_without_columns(rows)):
            self.absent &= ~_occurring(rows)

    def absorb(self, other: Magnitudes) -> None:
        """Add those of other rows, at the same powers of two."""
        if self.squares is not None and other.squares is not None:
            self.squares += other.squares
        self.absent &= other.absent

    def down_weigh(self, factor: float) -> None:
        """Multiply all weights so far by a positive factor."""
        if self.squares is not None:
            self.squares *= factor

    def rescale(self, tokens: int) -> None:
        """Multiply the tokens seen so far by 2**tokens."""
        if self.squares is not None:
            np.ldexp(self.squares, 6 * tokens, out=self.squares)

    @staticmethod
    def stored(layout: Layout) -> tuple[dict[str, Check], dict[str, Check]]:
        """The checks of the arrays that files must hold, and of those that they may."""
        p = layout.n_features
        squares = {"magnitudes": array((p,), least=0.0, finite=False)}
        absent = {"absent": array((None,), least=0, most=p - 1, dtype="int64")}
        return {} if by_diagonal(layout) else squares, absent

    def arrays(self) -> dict[str, NDArray]:
        """The content by name; the places of absent features, where there are any."""
        named: dict[str, NDArray] = {} if self.squares is None else {"magnitudes": self.squares}
        return named | ({"absent": np.flatnonzero(self.absent)} if self.absent.any() else {})

    def restore(self, arrays: dict[str, NDArray], powers: NDArray[np.float64]) -> None:
        """Take copies of stored arrays, which must not contradict the ``powers`` of features."""
        if self.squares is not None:
            self.squares = np.array(arrays["magnitudes"])
        self.absent[:] = False
        self.absent[arrays.get("absent", [])] = True
        seen = float(powers[self.absent].max(initial=0.0))
        require(seen == 0.0, "arrays.absent", "of features whose sums of squares are zero", seen)


def by_diagonal(layout: Layout) -> bool:
    """Whether every sum is bounded by diagonal entries among the sums."""
    exact = not any(columns.maps for columns in (layout.columns, layout.pair_columns))
    return exact and layout.pairs.value == layout.pairs.key


def _squares(rows: Rows) -> NDArray[np.float64]:
    """sum A^2 u^2 (p,) over rows, weights included."""
    layout = rows.layout
    seen = replace(rows, layout=absolute_layout(layout), kept_numbers=None)
    total = np.zeros((layout.n_sums, layout.n_queries))
    if layout.form.shares_sums:
        squares = pair_position(layout.n_queries).diagonal()
        for sums, query_pairs in seen.shared_moments():
            total += sums**2 @ query_pairs[squares].T
    else:
        for block in seen.blocks():
            total += block.sums**2 @ (block.queries**2).T
    return layout.select(total.ravel())


def _without_columns(rows: Rows) -> NDArray[np.bool_]:
    """Features (p,) that are absent because a column is zero in all queries, or all tokens.

    That is seen faster than what occurs together.  Zeros that a matrix makes may be rounded.
    """
    layout = rows.layout
    if layout.columns.maps or layout.pair_columns.maps:
        return np.zeros(layout.n_features, dtype=bool)
    asked = rows.coordinate_sizes[layout.query] > 0.0
    if layout.form.mode == "last":
        last, tokens = rows.batch.offsets[1:] - 1, Tokens(rows.batch, layout.columns)
        ranges = even_ranges(len(last), default_block_rows(layout))
        blocks = (tokens.read(last[first:stop])[layout.query] for first, stop in ranges)
        asked = np.any([block.any(axis=1) for block in blocks], axis=0)
    sizes = rows.coordinate_sizes[-layout.pair_columns.n_columns :]
    at_value, at_key = layout.pairs.first
    value, key = (np.array(each) for each in (layout.pairs.value, layout.pairs.key))
    there = np.tile((sizes[value[at_value]] > 0.0) & (sizes[key[at_key]] > 0.0), layout.n_scales)
    grid = np.ones((layout.n_sums, layout.n_queries), dtype=bool)
    grid[: layout.n_products] &= there[:, None]
    grid[:, : len(asked)] &= asked
    return layout.select(~grid.ravel())


def _occurring(rows: Rows) -> NDArray[np.bool_]:
    """Which features (p,) have a term that is not zero in some row of positive weight."""
    layout = present_layout(rows.layout)
    seen = replace(rows, layout=layout, token_exponent=0, kept_numbers=None)
    together = np.zeros((layout.n_sums, layout.n_queries))
    for block in seen.blocks():
        together += (block.sums > 0.0).astype(np.float64) @ (block.queries > 0.0).T
    return layout.select(together.ravel()) > 0.0
