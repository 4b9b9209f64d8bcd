"""The scale of the data: in which units heads are looked for, and what they change in outputs.

A loss that is small beside the largest coefficient can be all of one in other units.  So heads are
looked for where every column, query and output is of size one, and judged by the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.features.products import apply_coef
from polyattn.form.layout import Layout
from polyattn.form.pairs import FoldedPairs
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.passes import of_parts
from polyattn.stats.rows import Rows

# Numbers of summaries that are kept to judge heads by (1 MB), and rows at the least.
SAMPLE_NUMBERS, SAMPLE_ROWS = 1 << 17, 16


@dataclass(frozen=True)
class SampleScale:
    """Summaries of some predicted positions: sums (m, rows), queries (r, rows)."""

    sums: NDArray[np.float64]
    queries: NDArray[np.float64]
    layout: Layout

    @classmethod
    def of(cls, rows: Rows) -> SampleScale:
        """Positions spread evenly over the sequences of positive weight."""
        layout = rows.layout
        most = max(SAMPLE_ROWS, SAMPLE_NUMBERS // (layout.n_sums + layout.n_queries))
        weights, n_sequences = rows.sequence_weights, rows.n_sequences
        chosen = np.arange(n_sequences) if weights is None else np.flatnonzero(weights)
        count = max(1, min(len(chosen), most * n_sequences // rows.n_rows))
        if count < n_sequences:
            chosen = chosen[np.linspace(0, len(chosen) - 1, count).astype(np.intp)]
        sizes = np.diff(rows.borders)
        # One sequence may be longer than the sample: then positions are left out evenly.
        step = -(-int(sizes[chosen].sum()) // most)
        places: dict[int, tuple[NDArray[np.intp], int]] = {}
        first = 0
        for part in rows.parts:
            own = chosen[(chosen >= first) & (chosen < first + part.n_sequences)]
            n_before = int(sizes[chosen[chosen < first]].sum())
            places[part.base] = (own - first, n_before)
            first += part.n_sequences
        found = list(of_parts(rows, _sampled, places, step))
        sums, queries = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        return cls(sums, queries, layout)

    def token_powers(self) -> NDArray[np.float64]:
        """Squares of the sizes of token coordinates (d,), where keys and values are all of them."""
        squares = self.layout.pairs.position.diagonal()
        by_scale = self._products[:, squares]
        return np.asarray(by_scale.sum(axis=(0, 2)))

    def product_powers(self) -> NDArray[np.float64]:
        """Squares of the sizes of the products of each scale, (J, q)."""
        products = self._products
        return np.einsum("jqr,jqr->jq", products, products)

    def query_powers(self) -> NDArray[np.float64]:
        """Squares of the sizes of the columns of queries, (r,)."""
        return np.asarray((self.queries[: len(self.layout.query)] ** 2).sum(axis=1))

    def output_powers(self, coef: NDArray) -> NDArray[np.float64]:
        """Sums of squares of the outputs of coefficients (e, m, r) of size one, shape (e,)."""
        outputs = apply_coef(coef, self.sums, self.queries)
        return np.einsum("ar,ar->a", outputs, outputs)

    @property
    def _products(self) -> NDArray[np.float64]:
        """The products of each scale, (J, q, rows)."""
        layout = self.layout
        return self.sums[: layout.n_products].reshape(layout.n_scales, len(layout.pairs), -1)


def _sampled(
    rows: Rows, places: dict[int, tuple[NDArray[np.intp], int]], step: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums (m, k) and queries (r, k) of every step-th row of some sequences of a part.

    places : for the number of the first row of each part, the sequences of it, and how many rows
        are before these
    """
    layout = rows.layout
    chosen, n_before = places[rows.base]
    sums, queries = [np.empty((layout.n_sums, 0))], [np.empty((layout.n_queries, 0))]
    if len(chosen) and len(chosen) < rows.n_sequences:
        weights, context = rows.sequence_weights, rows.context
        batch = rows.batch.chosen(chosen)
        rows = replace(
            rows,
            batch=batch,
            context=None if context is None else context.chosen(chosen),
            targets=np.empty((batch.n_rows(rows.mode), 0)),
            sequence_weights=None if weights is None else weights[chosen],
            base=n_before,
            share=None,
        )
    for block in rows.blocks() if len(chosen) else ():
        at = slice(-(block.first - rows.base + n_before) % step, None, step)
        sums.append(block.sums[:, at])
        queries.append(block.queries[:, at])
    return np.concatenate(sums, axis=1), np.concatenate(queries, axis=1)


@dataclass(frozen=True)
class GramScale:
    """Moments M = sum psi psi^T (p, p) of the features of a layout, in their order (sum, l)."""

    gram: NDArray[np.float64]
    layout: Layout

    @classmethod
    def of(cls, statistics: Moments | TriangularFactor) -> GramScale:
        """From accumulated sums, tokens scaled by their power of two."""
        if isinstance(statistics, Moments):
            return cls(statistics.scaled_gram(), statistics.layout)
        factor = statistics.scaled_factor()
        return cls(factor.T @ factor, statistics.layout)

    def token_powers(self) -> NDArray[np.float64]:
        # The feature G_jj x_l has the fourth power of a token coordinate in its square.
        squares = self.layout.pairs.position.diagonal()
        return np.sqrt(self._powers.sum(axis=0)[squares].sum(axis=1))

    def product_powers(self) -> NDArray[np.float64]:
        return np.asarray(self._powers.sum(axis=2))

    def query_powers(self) -> NDArray[np.float64]:
        return np.asarray(self._powers.sum(axis=(0, 1)))

    def output_powers(self, coef: NDArray) -> NDArray[np.float64]:
        flat = coef.reshape(len(coef), -1)
        flat = flat if self.layout.kept is None else flat[:, self.layout.kept]
        return np.maximum(np.einsum("ap,ap->a", flat @ self.gram, flat), 0.0)

    @property
    def _powers(self) -> NDArray[np.float64]:
        """Squares of the sizes of the features that heads make, (J, q, r)."""
        layout = self.layout
        n_queries = len(layout.query)
        powers = np.diag(self.gram)[: layout.n_products * n_queries]
        return powers.reshape(layout.n_scales, len(layout.pairs), n_queries)


# What may be known of the data behind coefficients (e, m, r).
DataScale: TypeAlias = SampleScale | GramScale


@dataclass(frozen=True)
class CoordinateUnits:
    """Powers of two by which columns, scales and outputs are divided (exponents).

    Heads of the divided problem are heads of the true one: V[c,a] of a head of scale j gains
    2**(outputs_a - values_c - scales_j), and key[b,l] loses 2**(keys_b + queries_l).

    values, keys : equal where they are the same column, so that the fold stays what it is
    """

    pairs: FoldedPairs
    values: NDArray[np.intp]
    keys: NDArray[np.intp]
    queries: NDArray[np.intp]
    scales: NDArray[np.intp]
    outputs: NDArray[np.intp]

    @classmethod
    def none(cls, layout: Layout, n_outputs: int) -> CoordinateUnits:
        """Nothing is divided."""
        pairs = layout.pairs
        sizes = (pairs.n_values, pairs.n_keys, len(layout.query), layout.n_scales, n_outputs)
        return cls(pairs, *(np.zeros(size, dtype=np.intp) for size in sizes))

    @classmethod
    def of_inputs(cls, data: DataScale, n_outputs: int) -> CoordinateUnits:
        """Columns, queries and the sums of each scale of size one."""
        layout = data.layout
        units, pairs = cls.none(layout, n_outputs), layout.pairs
        if pairs.value == pairs.key:
            values = keys = _exponents(data.token_powers())
        else:
            values, keys = _column_exponents(data.product_powers().sum(axis=0), pairs)
        units = replace(units, values=values, keys=keys, queries=_exponents(data.query_powers()))
        if layout.n_scales == 1:
            return units
        divided = np.ldexp(data.product_powers(), -2 * units.products)
        return replace(units, scales=_exponents(divided.sum(axis=1)))

    @classmethod
    def of(cls, data: DataScale, coef: NDArray) -> CoordinateUnits:
        """Columns, queries and the outputs of ``coef`` (e, m, r) of size one."""
        taken = output_exponents(coef)
        powers = data.output_powers(np.ldexp(coef, -taken))
        outputs = _exponents(powers, taken.reshape(-1))
        return replace(cls.of_inputs(data, len(coef)), outputs=outputs)

    @property
    def products(self) -> NDArray[np.intp]:
        """The exponent of each pair, (q,)."""
        at_value, at_key = self.pairs.first
        return np.asarray(self.values[at_value] + self.keys[at_key])

    @property
    def features(self) -> NDArray[np.intp]:
        """The exponent of each feature that heads make, (J q, r)."""
        sums = (self.scales[:, None] + self.products).ravel()
        return np.asarray(sums[:, None] + self.queries)

    @property
    def value(self) -> NDArray[np.intp]:
        """What values of each scale (J, n_values, e) gain when they are brought back."""
        return np.asarray(self.outputs - self.values[:, None] - self.scales[:, None, None])

    @property
    def key(self) -> NDArray[np.intp]:
        """What keys (n_keys, r) gain when they are brought back."""
        return np.asarray(-(self.keys[:, None] + self.queries))

    def moments(self, gram: NDArray) -> NDArray[np.float64]:
        """Moments of the divided features that heads make."""
        exponents = self.features.reshape(-1)
        return np.ldexp(gram, -(exponents + exponents[:, None]))


def output_exponents(coef: NDArray) -> NDArray[np.intp]:
    """Exponents (e, 1, 1) that bring the coefficients of each output to size one."""
    return np.frexp(np.max(np.abs(coef), axis=(1, 2), keepdims=True))[1].astype(np.intp)


def _exponents(powers: NDArray, taken: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Exponents of sizes from their squares, 0 for the largest and for what is always zero.

    taken : the exponents by which sizes were divided before they were squared
    """
    _require_finite(powers)
    exponents = np.zeros(len(powers), dtype=np.intp)
    known = powers > 0
    if np.any(known):
        # From the first on: no factor of all, nor a power of two in one, changes how others round.
        logarithms = np.log2(powers[known])
        halves = np.round(0.5 * (logarithms - logarithms[0])).astype(np.intp)
        if taken is not None:
            halves += taken[known]
        exponents[known] = halves - halves.max()
    return exponents


def _column_exponents(
    powers: NDArray, pairs: FoldedPairs
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Exponents of values and keys whose sums are nearest to those of the products (q,).

    They are the least squares of logarithms, so that a factor of one column changes only its own.
    """
    _require_finite(powers)
    columns = np.unique([*pairs.value, *pairs.key])
    at_value, at_key = np.searchsorted(columns, pairs.value), np.searchsorted(columns, pairs.key)
    known = powers > 0
    ends = at_value[pairs.first[0][known]], at_key[pairs.first[1][known]]
    design = np.zeros((len(columns), len(columns)))
    goal = np.zeros(len(columns))
    logarithms = 0.5 * np.log2(powers[known])
    for one in ends:
        np.add.at(goal, one, logarithms)
        for other in ends:
            np.add.at(design, (one, other), 1.0)
    sizes = np.linalg.lstsq(design, goal, rcond=1e-10)[0]
    exponents = np.round(sizes).astype(np.intp)
    return exponents[at_value], exponents[at_key]


def _require_finite(powers: NDArray) -> None:
    if not np.all(np.isfinite(powers)):
        raise OutOfRange(
            "the squares of the data behind the coefficients leave the range of float64; fit data "
            "of order one again."
        )
