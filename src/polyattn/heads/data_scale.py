"""The scale of the data: in which units heads are looked for, and what they change in outputs.

A loss that is small beside the largest coefficient can be all of one in other units.  So heads are
looked for where every coordinate, query and output is of size one, and judged by the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.features.cubic import apply_coef
from polyattn.features.pairs import n_pairs, pair_index, pair_position
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# Numbers of summaries that are kept to judge heads by (1 MB), and rows at the least.
SAMPLE_NUMBERS, SAMPLE_ROWS = 1 << 17, 16


@dataclass(frozen=True)
class SampleScale:
    """Summaries of some predicted positions: pairs (q, rows), queries (d, rows)."""

    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows) -> SampleScale:
        """Positions spread evenly over the sequences of positive weight."""
        most = max(SAMPLE_ROWS, SAMPLE_NUMBERS // (n_pairs(rows.width) + rows.width))
        weights, n_sequences = rows.sequence_weights, rows.n_sequences
        chosen = np.arange(n_sequences) if weights is None else np.flatnonzero(weights)
        count = max(1, min(len(chosen), most * n_sequences // rows.n_rows))
        if count < n_sequences:
            chosen = chosen[np.linspace(0, len(chosen) - 1, count).astype(np.intp)]
            batch, kept = rows.batch.chosen(chosen), None if weights is None else weights[chosen]
            none = np.empty((batch.n_rows(rows.mode), 0))
            rows = replace(rows, batch=batch, targets=none, sequence_weights=kept)
        # One sequence may be longer than the sample: then positions are left out evenly.
        step = -(-rows.n_rows // most)
        pairs, queries = [], []
        for block in rows.blocks():
            at = slice(-block.first % step, None, step)
            pairs.append(block.pairs[:, at])
            queries.append(block.queries[:, at])
        return cls(np.concatenate(pairs, axis=1), np.concatenate(queries, axis=1))

    def coordinate_powers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Squares of the sizes of the coordinates of tokens and of queries, (d,) each."""
        squares = pair_position(len(self.queries)).diagonal()
        return self.pairs[squares].sum(axis=1), (self.queries**2).sum(axis=1)

    def output_powers(self, coef: NDArray) -> NDArray[np.float64]:
        """Sums of squares of the outputs of coefficients (e, q, d) of size one, shape (e,)."""
        outputs = apply_coef(coef, self.pairs, self.queries)
        return np.einsum("ar,ar->a", outputs, outputs)


@dataclass(frozen=True)
class GramScale:
    """Moments M = sum psi psi^T (p, p), in the order (pair, l), ``width`` coordinates per token."""

    gram: NDArray[np.float64]
    width: int

    @classmethod
    def of(cls, statistics: Moments | TriangularFactor) -> GramScale:
        """From accumulated sums, tokens scaled by their power of two."""
        if isinstance(statistics, Moments):
            return cls(statistics.scaled_gram(), statistics.width)
        factor = statistics.scaled_factor()
        return cls(factor.T @ factor, statistics.width)

    def coordinate_powers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        powers = np.diag(self.gram).reshape(-1, self.width)
        squares = powers[pair_position(self.width).diagonal()]
        # The feature G_jj x_l has the fourth power of a token coordinate in its square.
        return np.sqrt(squares.sum(axis=1)), powers.sum(axis=0)

    def output_powers(self, coef: NDArray) -> NDArray[np.float64]:
        flat = coef.reshape(len(coef), -1)
        return np.maximum(np.einsum("ap,ap->a", flat @ self.gram, flat), 0.0)


# What may be known of the data behind coefficients (e, q, d).
DataScale: TypeAlias = SampleScale | GramScale


@dataclass(frozen=True)
class CoordinateUnits:
    """Powers of two by which token, query and output coordinates are divided (exponents).

    Heads of the divided problem are heads of the true one: V[j,a] gains 2**(outputs_a - tokens_j)
    and key[k,l] loses 2**(tokens_k + queries_l).
    """

    tokens: NDArray[np.intp]
    queries: NDArray[np.intp]
    outputs: NDArray[np.intp]

    @classmethod
    def of_inputs(cls, data: DataScale, n_outputs: int) -> CoordinateUnits:
        """Tokens and queries of size one."""
        tokens, queries = data.coordinate_powers()
        return cls(_exponents(tokens), _exponents(queries), np.zeros(n_outputs, dtype=np.intp))

    @classmethod
    def of(cls, data: DataScale, coef: NDArray) -> CoordinateUnits:
        """Tokens, queries and the outputs of ``coef`` (e, q, d) of size one."""
        taken = output_exponents(coef)
        powers = data.output_powers(np.ldexp(coef, -taken))
        outputs = _exponents(powers, taken.reshape(-1))
        return replace(cls.of_inputs(data, len(coef)), outputs=outputs)

    @property
    def features(self) -> NDArray[np.intp]:
        """The exponent of each feature, (q, d)."""
        rows, columns = pair_index(len(self.tokens))
        return (self.tokens[rows] + self.tokens[columns])[:, None] + self.queries

    @property
    def value(self) -> NDArray[np.intp]:
        """What values (d, e) gain when they are brought back."""
        return self.outputs - self.tokens[:, None]

    @property
    def key(self) -> NDArray[np.intp]:
        """What keys (d, d) gain when they are brought back."""
        return -(self.tokens[:, None] + self.queries)

    def moments(self, gram: NDArray) -> NDArray[np.float64]:
        """Moments (p, p) of the divided features."""
        exponents = self.features.reshape(-1)
        return np.ldexp(gram, -(exponents + exponents[:, None]))


def output_exponents(coef: NDArray) -> NDArray[np.intp]:
    """Exponents (e, 1, 1) that bring the coefficients of each output to size one."""
    return np.frexp(np.max(np.abs(coef), axis=(1, 2), keepdims=True))[1].astype(np.intp)


def _exponents(powers: NDArray, taken: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Exponents of sizes from their squares, 0 for the largest and for what is always zero.

    taken : the exponents by which sizes were divided before they were squared
    """
    if not np.all(np.isfinite(powers)):
        raise OutOfRange(
            "the squares of the data behind the coefficients leave the range of float64; fit data "
            "of order one again."
        )
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
