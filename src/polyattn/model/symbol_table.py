"""Coefficients of pairs of symbols: what data of one-hot tokens can see of a layer, kept sparse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import query_groups
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.numerics import scaling
from polyattn.sequences import SequenceBatch

# Heads and dense coefficients of more numbers (1 GB) are not made.
MOST_NUMBERS = 1 << 27


@dataclass(frozen=True, eq=False)
class SymbolTable:
    """theta[a, b]: what each token of symbol a adds to the outputs where symbol b asks.

        y = sum over the tokens s attended to of  w(t, s) theta[symbol of s, symbol of t]

    n_symbols : d
    queries : the symbols b that ask, (B,), ascending
    borders : the pairs of queries[i] stand at borders[i]..borders[i + 1], (B + 1,)
    symbols : the symbols a of the pairs, (pairs,), ascending for each b
    values : theta of the pairs, (pairs, e); all others are 0
    """

    n_symbols: int
    queries: NDArray[np.int64]
    borders: NDArray[np.int64]
    symbols: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        n_symbols: int,
        queries: Sequence[int],
        symbols: Sequence[NDArray],
        values: Sequence[NDArray],
    ) -> SymbolTable:
        """From the symbols (k,) and the coefficients (k, e) of each query."""
        borders = np.concatenate([[0], np.cumsum([len(each) for each in symbols])])
        arrays = [
            np.array(queries, dtype=np.int64), borders.astype(np.int64),
            np.concatenate(symbols).astype(np.int64), np.concatenate(values),
        ]  # fmt: skip
        for each in arrays:
            each.setflags(write=False)
        return cls(n_symbols, *arrays)

    @property
    def n_pairs(self) -> int:
        """How many pairs of symbols occur."""
        return len(self.symbols)

    @property
    def n_outputs(self) -> int:
        """e, the target coordinates."""
        return self.values.shape[1]

    def matrices(self) -> list[csr_array]:
        """theta of each output as a sparse matrix (d, d): symbols that ask, symbols seen."""
        shape, asked = (self.n_symbols, self.n_symbols), self._asked
        return [
            csr_array((self.values[:, output], (asked, self.symbols)), shape=shape)
            for output in range(self.n_outputs)
        ]

    def forward(self, batch: SequenceBatch, form: Form) -> NDArray[np.float64]:
        """Outputs (n_rows, e) for one-hot tokens made by ``from_ids``.

        Cost: O(log d + e) per token and position that attends to it, never a dense token.
        """
        exponent = scaling.exponent_for(scaling.largest_magnitude(self.values)) or 0
        values = scaling.scaled(self.values, -exponent)
        outputs = np.zeros((batch.n_rows(form.mode), self.n_outputs))
        for groups in query_groups(batch, form):
            for group in groups:
                at = int(np.searchsorted(self.queries, group.query))
                if at == len(self.queries) or self.queries[at] != group.query:
                    continue
                first, stop = self.borders[at : at + 2]
                own = self.symbols[first:stop]
                places = np.searchsorted(own, group.symbols)
                known = np.append(own, -1)[places] == group.symbols
                theta = np.zeros((len(places), self.n_outputs))
                theta[known] = values[first + places[known]]
                outputs[group.rows] = group.counts @ theta
        return scaling.restored(outputs, exponent, "outputs")

    def heads(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Heads attn (H, d, d) and value (H, d, e) that compute it on one-hot tokens.

        One head for each output: A[b, a] = theta[a, b], and every token has the value 1 there.
        With more outputs than symbols one for each symbol that asks: A[b, a] = 1 for that b alone,
        V = theta[., b].
        """
        d, n_outputs = self.n_symbols, self.n_outputs
        n_heads = min(d, n_outputs)
        require_numbers(n_heads * d * (d + n_outputs), f"the {n_heads} heads of this layer")
        attn, value = np.zeros((n_heads, d, d)), np.zeros((n_heads, d, n_outputs))
        if n_outputs <= d:
            attn[:, self._asked, self.symbols] = self.values.T
            value[np.arange(n_heads), :, np.arange(n_heads)] = 1.0
        else:
            attn[np.arange(d), np.arange(d), :] = 1.0
            value[self._asked, self.symbols] = self.values
        return attn, value

    def coef(self, layout: Layout) -> NDArray[np.float64]:
        """The folded coefficients P (e, m, r): theta where key and value are one symbol."""
        shape = (self.n_outputs, layout.n_sums, layout.n_queries)
        require_numbers(self.n_outputs * layout.n_features, "the coefficients of this layer")
        coef = np.zeros(shape)
        coef[:, layout.pairs.position[self.symbols, self.symbols], self._asked] = self.values.T
        coef.setflags(write=False)
        return coef

    def each(self) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float64]]]:
        """(b, symbols, theta) of each query."""
        for query, first, stop in zip(
            self.queries, self.borders[:-1], self.borders[1:], strict=True
        ):
            yield int(query), self.symbols[first:stop], self.values[first:stop]

    @property
    def _asked(self) -> NDArray[np.int64]:
        """The symbol that asks, of each pair."""
        return np.repeat(self.queries, np.diff(self.borders))


def require_numbers(count: int, what: str) -> None:
    """Refuse to make so large an array."""
    if count > MOST_NUMBERS:
        raise InvalidInput(
            f"{what} would be {count:,} numbers, too many to be made dense. result.table holds "
            "those that are not zero, and result.predict computes with them."
        )
