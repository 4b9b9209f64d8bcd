"""The features of rows: entries of the token Gram that ever occur, and the last token.

A layer sees a row (G, x) through its features G[j,k] x[l].  Of the d(d+1)/2 pairs most are zero
in every trace (two values of a one-hot block never meet in a token): they are dropped at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.learning.learned import float_tokens
from polyattn.programs.traces import Trace, TraceRows


@dataclass(frozen=True, eq=False)
class ActivePairs:
    """The pairs j <= k of coordinates that some token of the training data holds together.

    n_dims : d, the coordinates of a token
    first, second : integer arrays (u,), j and k of each pair, in the order of ``pair_index``
    """

    n_dims: int
    first: NDArray[np.intp]
    second: NDArray[np.intp]

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> ActivePairs:
        """The pairs with G[j,k] != 0 in some row; one pass over the rows."""
        if not traces:
            raise InvalidInput("learning needs at least one trace; got none.")
        n_dims = traces[0].prompt.shape[1]
        seen = np.zeros((n_dims, n_dims), dtype=bool)
        for trace in traces:
            width = trace.prompt.shape[1]
            if width != n_dims:
                raise InvalidInput(
                    f"all traces must have tokens of the same width; got {n_dims} and {width}."
                )
            seen |= TraceRows.of(trace).grams.any(axis=0)
        return cls(n_dims, *np.nonzero(np.triu(seen)))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def multiplicity(self) -> NDArray[np.float64]:
        """How often each pair stands in G (u,): 1 on the diagonal, 2 off it.

        With these weights <G, G'>_F is a sum over pairs, and the norm is that of T.
        """
        return np.where(self.first == self.second, 1.0, 2.0)

    @cached_property
    def flat(self) -> NDArray[np.intp]:
        """The places of the pairs in a flattened (d, d) matrix."""
        return self.first * self.n_dims + self.second

    def of_grams(self, grams: NDArray) -> NDArray[np.float64]:
        """The active entries (m, u) of Gram matrices (m, d, d)."""
        return grams.reshape(len(grams), -1)[:, self.flat].astype(np.float64, copy=False)

    def strangers(self, grams: NDArray) -> NDArray[np.bool_]:
        """Which of the Gram matrices (m, d, d) have an entry that training never had."""
        unknown = np.ones((self.n_dims, self.n_dims), dtype=bool)
        unknown[self.first, self.second] = unknown[self.second, self.first] = False
        return np.any(grams.reshape(len(grams), -1)[:, unknown.ravel()] != 0, axis=1)


@dataclass(frozen=True, eq=False)
class PairRows:
    """Rows reduced to what their features are products of.

    pairs : array (m, u), the active entries of G, not weighted
    queries : array (m, d), the last tokens
    """

    active: ActivePairs
    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def weighted(self) -> NDArray[np.float64]:
        """The pairs, each weighted by how often it stands in G."""
        return self.pairs * self.active.multiplicity

    def kernel(self, other: PairRows) -> NDArray[np.float64]:
        """<G, G'>_F <x, x'> between these rows and others, shape (rows, other rows).

        Guarantee: exact for integers while the products stay below 2^53.
        Cost: 2 u flops per entry, memory of two results.
        """
        result = self.weighted @ other.pairs.T
        result *= self.queries @ other.queries.T
        return result

    def unit(self) -> PairRows:
        """The rows scaled to features of norm one; rows without features stay zero."""
        of_pairs = np.sqrt((self.pairs**2) @ self.active.multiplicity)
        of_queries = np.linalg.norm(self.queries, axis=1)
        return PairRows(
            self.active,
            self.pairs / np.where(of_pairs > 0, of_pairs, 1.0)[:, None],
            self.queries / np.where(of_queries > 0, of_queries, 1.0)[:, None],
        )


@dataclass(frozen=True, eq=False)
class RowFeatures(PairRows):
    """The rows of training data.

    targets : array (N, e), the tokens to follow
    owners : integer array (N,), the number of each row's trace
    """

    targets: NDArray[np.float64]
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, traces: Iterable[Trace], active: ActivePairs | None = None) -> RowFeatures:
        """The rows of all traces; pairs that are not active are left out.

        Cost: memory of N (u + 2 d) numbers; the Gram matrices of one trace at a time.
        """
        listed = list(traces)
        active = active or ActivePairs.of(listed)
        pairs, queries, targets = [], [], []
        for trace in listed:
            part = TraceRows.of(trace)
            pairs.append(active.of_grams(part.grams))
            queries.append(part.queries)
            targets.append(part.targets)
        owners = np.repeat(np.arange(len(listed)), [len(part) for part in queries])
        return cls(
            active, np.concatenate(pairs), np.concatenate(queries).astype(np.float64),
            np.concatenate(targets).astype(np.float64), owners,
        )  # fmt: skip

    @property
    def n_traces(self) -> int:
        """M, the number of traces."""
        return int(self.owners.max(initial=-1)) + 1

    def joined(self, traces: Sequence[Trace]) -> RowFeatures:
        """These rows and those of further traces, which may hold further pairs."""
        fresh = ActivePairs.of(traces)
        flat = np.union1d(self.active.flat, fresh.flat)
        new = RowFeatures.of(traces, ActivePairs(fresh.n_dims, *np.divmod(flat, fresh.n_dims)))
        old = np.zeros((len(self), len(flat)))
        old[:, np.searchsorted(flat, self.active.flat)] = self.pairs
        return RowFeatures(
            new.active, np.concatenate([old, new.pairs]),
            np.concatenate([self.queries, new.queries]),
            np.concatenate([self.targets, new.targets]),
            np.concatenate([self.owners, self.n_traces + new.owners]),
        )  # fmt: skip

    def take(self, which: NDArray) -> RowFeatures:
        """Some of the rows."""
        return RowFeatures(
            self.active, self.pairs[which], self.queries[which], self.targets[which],
            self.owners[which],
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ActiveLayer:
    """y_a = sum over l, (jk) of matrices[l, a, (jk)] G[j,k] x[l], over active pairs alone.

    matrices : array (d, e, u), the coefficients P[a, (jk), l]; pairs that never occurred have
        coefficient zero, which is what the minimum of ||T|| gives them
    """

    active: ActivePairs
    matrices: NDArray[np.float64]

    def step(self, entries: NDArray, query: NDArray) -> NDArray[np.float64]:
        """One output (e,) from the active entries (u,) of G and the last token (d,).

        Cost: 2 e u flops per coordinate that the last token holds.
        """
        result = np.zeros(self.matrices.shape[1])
        for held in np.flatnonzero(query):
            result += query[held] * (self.matrices[held] @ entries)
        return result

    def outputs(self, rows: PairRows) -> NDArray[np.float64]:
        """Outputs (m, e) for rows.

        Cost: 2 e u flops for each coordinate that a last token holds.
        """
        pairs, queries = rows.pairs, rows.queries
        result = np.zeros((len(queries), self.matrices.shape[1]))
        for coordinate in np.flatnonzero(queries.any(axis=0)):
            held = np.flatnonzero(queries[:, coordinate])
            scaled = pairs[held] * queries[held, coordinate, None]
            result[held] += scaled @ self.matrices[coordinate].T
        return result


def combine(rows: PairRows, alpha: NDArray) -> NDArray[np.float64]:
    """The matrices (d, e, u) of T = sum_i alpha_i phi_i, features in the norm of T.

    Cost: 2 e u flops for each coordinate that a last token holds.
    """
    queries = rows.queries
    matrices = np.zeros((queries.shape[1], alpha.shape[1], len(rows.active)))
    for coordinate in np.flatnonzero(queries.any(axis=0)):
        held = np.flatnonzero(queries[:, coordinate])
        weights = alpha[held] * queries[held, coordinate, None]
        matrices[coordinate] = weights.T @ rows.pairs[held]
    # <phi_i, phi> = sum over pairs of multiplicity G_i G: the weight goes to the coefficient.
    matrices *= rows.active.multiplicity
    return matrices


class DensePredictor:
    """Predicts the next token of one history by a layer with any coefficients.

    Cost: u numbers to update and 2 d u flops for each coordinate that the last token holds, with
    u active pairs.
    """

    def __init__(self, schema: Schema, layer: ActiveLayer) -> None:
        self._schema, self._layer = schema, layer
        self._entries = np.zeros(len(layer.active))
        self._last = np.zeros(schema.n_dims)

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        tokens = float_tokens(self._schema, prompt)
        active = self._layer.active
        self._entries = np.sum(tokens[:, active.first] * tokens[:, active.second], axis=0)
        self._last = tokens[-1]

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        return self._layer.step(self._entries, self._last)

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        rounded = self._schema.round(self.output())
        self._last = rounded.astype(np.float64)
        active = self._layer.active
        self._entries += self._last[active.first] * self._last[active.second]
        return self._schema.decode(rounded)
