"""NextToken: what a linear layer says of the newest tokens, and the derivative of that.

With columns c of a token (what the form sees of it), sums S of products of columns, and the query
u among the columns, the output is y = P S u + W^T u + b.  Along a direction of all tokens,

    dy = (P S) du + (P u) dS + W^T du,      dS = sum_s w(t, s) (dv k^T + v dk^T):

the products P S and P u are made once, however many directions are followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.features.running_sums import products_of
from polyattn.form.columns import Columns
from polyattn.form.layout import Layout
from polyattn.form.token_maps import applied
from polyattn.model.forward import coef_parts, ordinary_sequences
from polyattn.model.layer import far_apart
from polyattn.numerics import scaling
from polyattn.sequences import SequenceBatch

# Central differences through functions of tokens: a third of the digits is the best step.
DIFFERENCE = float(np.cbrt(np.finfo(np.float64).eps))


@dataclass(frozen=True)
class NextToken:
    """A layer in units in which columns and coefficients are of order one.

    coef : of products (e, n_products, r), divided by 2**coef_power
    power : columns are divided by 2**power
    """

    layout: Layout
    coef: NDArray[np.float64]
    coef_power: int
    skip: NDArray[np.float64] | None
    intercept: NDArray[np.float64] | None
    power: int

    @classmethod
    def of(cls, layout: Layout, coef: NDArray, batch: SequenceBatch) -> NextToken:
        """The layer of folded coefficients (e, m, r), in units that suit these sequences."""
        products, skip, intercept = coef_parts(layout, coef)
        coef_power = scaling.exponent_for(scaling.largest_magnitude(products)) or 0
        seen = ordinary_sequences(layout, batch, None, far_apart([products], 3))
        scaled = scaling.scaled(products, -coef_power)
        return cls(layout, scaled, coef_power, skip, intercept, seen.exponent)

    def columns(self, tokens: NDArray) -> NDArray[np.float64]:
        """What is seen of tokens (B, d): (n_columns, B)."""
        return np.ldexp(self.layout.columns.read(tokens), -self.power)

    def column_derivatives(self, tokens: NDArray, directions: NDArray) -> NDArray[np.float64]:
        """How columns of tokens (B, d) change along directions (B, K, d): (n_columns, B, K)."""
        found = _derivatives(self.layout.columns, tokens, directions)
        return np.ldexp(found, -self.power)

    def products(self, columns: NDArray) -> NDArray[np.float64]:
        """Products of values and keys (pairs, B) of columns (n_columns, B)."""
        return products_of(self.layout, columns)

    def product_derivatives(self, columns: NDArray, changes: NDArray) -> NDArray[np.float64]:
        """How products change with columns: (pairs, B, K) of changes (n_columns, B, K)."""
        pairs = self.layout.pairs
        value, key = np.array(pairs.value)[pairs.first[0]], np.array(pairs.key)[pairs.first[1]]
        one = columns[value][..., None] * changes[key]
        return np.asarray(one + columns[key][..., None] * changes[value])

    def output(
        self,
        columns: NDArray,
        sums: NDArray,
        changes: NDArray,
        sum_changes: NDArray,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Outputs (B, e), and how they change (B, K, e).

        columns, sums : (n_columns, B) of the newest tokens, (n_products, B) as these see them
        changes, sum_changes : derivatives of both, with a last axis K
        """
        n_outputs, n_sums, n_queries = self.coef.shape
        queries = columns[self.layout.query]
        by_query = self.coef.transpose(0, 2, 1).reshape(-1, n_sums)
        per_query = (by_query @ sums).reshape(n_outputs, n_queries, -1)
        power = self.coef_power + 3 * self.power
        outputs = np.ldexp(np.einsum("arb,rb->ba", per_query, queries), power)
        if self.skip is not None:
            outputs = outputs + np.ldexp(queries.T @ self.skip, self.power)
        if self.intercept is not None:
            outputs = outputs + self.intercept
        per_sum = (self.coef.reshape(-1, n_queries) @ queries).reshape(n_outputs, n_sums, -1)
        query_changes = changes[self.layout.query]
        # One matrix product for each sequence.
        slopes = per_query.transpose(2, 0, 1) @ query_changes.transpose(1, 0, 2)
        slopes = slopes + per_sum.transpose(2, 0, 1) @ sum_changes.transpose(1, 0, 2)
        slopes = np.ldexp(slopes, power).transpose(0, 2, 1)
        if self.skip is not None:
            slopes = slopes + np.ldexp(query_changes.transpose(1, 2, 0) @ self.skip, self.power)
        return outputs, slopes


def _derivatives(columns: Columns, tokens: NDArray, directions: NDArray) -> NDArray[np.float64]:
    """Exact for coordinates and matrices; by central differences for functions, to about 1e-10."""
    n_sequences, n_directions, n_dims = directions.shape
    found = np.zeros((columns.n_columns, n_sequences, n_directions))
    chosen = directions if columns.coordinates is None else directions[..., columns.coordinates]
    at = chosen.shape[-1]
    found[:at] = np.moveaxis(chosen, -1, 0)
    for name, given, width in columns.maps:
        if isinstance(given, np.ndarray):
            along = directions @ given
        else:
            sizes = np.abs(tokens).max(axis=1)[:, None, None]
            lengths = np.abs(directions).max(axis=2, keepdims=True)
            lengths[lengths == 0.0] = 1.0
            step = DIFFERENCE * np.where(sizes == 0.0, 1.0, sizes) / lengths
            ends = [
                applied(
                    given, (tokens[:, None] + side * step * directions).reshape(-1, n_dims), name
                )
                for side in (1.0, -1.0)
            ]
            along = (ends[0] - ends[1]).reshape(n_sequences, n_directions, -1) / (2.0 * step)
        found[at : at + width] = np.moveaxis(along, -1, 0)
        at += width
    return found
