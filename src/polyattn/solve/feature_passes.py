"""Products with all features, one pass over the data each, without forming the features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import add_correlation, apply_coef, features
from polyattn.numerics.parallel import map_pieces
from polyattn.stats.moments import make_sums
from polyattn.stats.passes import summed
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]


# Features of about so many numbers are formed together, where they have to be.
BLOCK_NUMBERS = 1 << 18


@dataclass(frozen=True)
class WeightedGram:
    """sum w phi phi^T: its diagonal (p,), and a function that gives it with factors (p,) put in."""

    diagonal: Array
    matrix: Callable[[Array], Array]


@dataclass(frozen=True)
class FeaturePasses:
    """Features phi of rows without weights, in the coordinates of the norm (||T|| = ||theta||)."""

    rows: Rows

    @property
    def n_features(self) -> int:
        """p, the number of features."""
        return self.rows.n_features

    @property
    def n_terms(self) -> int:
        """Terms that are added up for one output: tokens, sums and queries."""
        layout = self.rows.layout
        return self.rows.max_length + layout.n_sums + layout.n_queries

    def outputs(self, theta: Array) -> Array:
        """theta^T phi (e, rows) of theta (p, e)."""
        coef = self.rows.layout.as_coef(theta)
        outputs = np.empty((len(coef), self.rows.n_rows))

        def fill(block: RowBlock) -> None:
            outputs[:, block.first : block.stop] = apply_coef(coef, block.sums, block.queries)

        self._each(fill)
        return outputs

    def correlated(self, values: Array) -> Array:
        """sum phi v^T (p, e) of values (e, rows)."""
        return self._summed(lambda block: values[:, block.first : block.stop], len(values))

    def curvature_product(self, theta: Array, curved: Callable[[Array, int], Array]) -> Array:
        """sum phi curved(theta^T phi)^T (p, e), where ``curved`` is linear row by row."""
        coef = self.rows.layout.as_coef(theta)

        def values(block: RowBlock) -> Array:
            return curved(apply_coef(coef, block.sums, block.queries), block.first)

        return self._summed(values, len(coef))

    def norms(self, scale: Array | None = None) -> Array:
        """||phi / scale|| of each row (rows,); ``scale`` (p,) is 1 by default."""
        layout = self.rows.layout
        powers = np.ones(layout.n_features) if scale is None else scale**-2.0
        squares = layout.as_coef((powers / layout.feature_weights)[:, None])
        result = np.empty(self.rows.n_rows)

        def fill(block: RowBlock) -> None:
            found = apply_coef(squares, block.sums**2, block.queries**2)
            result[block.first : block.stop] = np.sqrt(found[0])

        self._each(fill)
        return result

    def has_features(self) -> NDArray[np.bool_]:
        """Whether any feature of a row differs from zero, (rows,), even if its square vanishes."""
        result = np.empty(self.rows.n_rows, dtype=bool)

        def fill(block: RowBlock) -> None:
            some = np.any(block.sums != 0.0, axis=0) & np.any(block.queries != 0.0, axis=0)
            result[block.first : block.stop] = some

        self._each(fill)
        return result

    def weighted_gram(self, weights: Array) -> WeightedGram:
        """sum w phi phi^T for weights (rows,)."""
        rows, layout = self.rows, self.rows.layout
        sums, roots = make_sums(layout, 0), np.sqrt(weights)
        kept = np.arange(layout.n_sums * layout.n_queries) if layout.kept is None else layout.kept

        def weighted(block: RowBlock) -> RowBlock:
            queries = block.queries * roots[block.first : block.stop]
            return RowBlock(block.first, block.stop, block.sums, queries, block.targets)

        for blocks in rows.groups():
            sums.add([weighted(block) for block in blocks])

        def matrix(factors: Array) -> Array:
            every = np.ones(layout.n_sums * layout.n_queries)
            every[kept] = factors / layout.feature_weights
            found = sums.matrix(every)
            return found if layout.kept is None else found[np.ix_(kept, kept)]

        return WeightedGram(sums.diagonal()[kept] / layout.feature_weights**2, matrix)

    def projected_gram(self, weights: Array, basis: Array) -> tuple[Array, Array]:
        """sum w z z^T (k, k) of z = basis^T phi, and ||z|| (rows,); basis (p, k)."""
        gram, norms = np.zeros((basis.shape[1],) * 2), np.empty(self.rows.n_rows)
        for some, phi in self._explicit():
            z = phi @ basis
            norms[some] = np.sqrt(np.einsum("rk,rk->r", z, z))
            z *= np.sqrt(weights[some])[:, None]
            gram += z.T @ z
        return gram, norms

    def triangular_factor(self, weights: Array, factors: Array) -> Array:
        """R (p, p) at most, with R^T R = sum w phi phi^T, of features times factors (p,)."""
        factor = np.zeros((0, self.n_features))
        for some, phi in self._explicit():
            more = phi * factors * np.sqrt(weights[some])[:, None]
            factor = np.asarray(np.linalg.qr(np.concatenate([factor, more]), mode="r"))
        return factor

    def _explicit(self) -> Iterator[tuple[slice, Array]]:
        """Rows, and their features (rows, p), block by block."""
        layout = self.rows.layout
        n_rows = max(BLOCK_NUMBERS // self.n_features, 2 * self.n_features)
        for block in self.rows.blocks(n_rows):
            psi = features(layout, block.sums, block.queries)
            yield slice(block.first, block.stop), psi.T / layout.feature_weights

    def _each(self, fill: Callable[[RowBlock], None]) -> None:
        for blocks in self.rows.groups():
            map_pieces(fill, blocks)

    def _summed(self, values: Callable[[RowBlock], Array], n_outputs: int) -> Array:
        layout = self.rows.layout
        [total] = summed(self.rows, _correlated, values, n_outputs)
        return layout.select(total.reshape(-1, n_outputs)) / layout.feature_weights[:, None]


def _correlated(
    rows: Rows, blocks: list[RowBlock], values: Callable[[RowBlock], Array], n_outputs: int
) -> tuple[Array]:
    """sum S u v^T (m, r, e) of some blocks."""
    total = np.zeros((rows.layout.n_sums, rows.layout.n_queries, n_outputs))
    for block in blocks:
        turned = np.ascontiguousarray(values(block))
        add_correlation(total, block.sums, block.queries, turned)
    return (total,)
