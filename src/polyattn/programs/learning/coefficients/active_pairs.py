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

    def unknown(self, grams: NDArray) -> NDArray[np.bool_]:
        """Which of the Gram matrices (m, d, d) have an entry that training never had."""
        never = np.ones((self.n_dims, self.n_dims), dtype=bool)
        never[self.first, self.second] = never[self.second, self.first] = False
        return np.any(grams.reshape(len(grams), -1)[:, never.ravel()] != 0, axis=1)


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
        pairs = self.pairs / np.where(of_pairs > 0, of_pairs, 1.0)[:, None]
        queries = self.queries / np.where(of_queries > 0, of_queries, 1.0)[:, None]
        return PairRows(self.active, pairs, queries)


@dataclass(frozen=True, eq=False)
class RowFeatures(PairRows):
    """The rows of training data.

    targets : array (N, e), the tokens to follow
    owners : integer array (N,), the number of each row's trace
    """

    targets: NDArray[np.float64]
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> RowFeatures:
        """The rows of all traces.

        Cost: memory of N (u + 2 d) numbers; the Gram matrices of one trace at a time.
        """
        listed = list(traces)
        active = ActivePairs.of(listed)
        parts = [
            (active.of_grams(rows.grams), rows.queries, rows.targets)
            for rows in map(TraceRows.of, listed)
        ]
        pairs, queries, targets = map(np.concatenate, zip(*parts, strict=True))
        owners = np.repeat(np.arange(len(listed)), [trace.n_rows for trace in listed])
        return cls(active, pairs, queries, targets, owners)

    @property
    def n_traces(self) -> int:
        """M, the number of traces."""
        return int(self.owners.max(initial=-1)) + 1

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

    @classmethod
    def zero(cls, rows: RowFeatures) -> ActiveLayer:
        """The layer without coefficients, for rows like these."""
        sizes = rows.active.n_dims, rows.targets.shape[1], len(rows.active)
        return cls(rows.active, np.zeros(sizes))

    def add(self, rows: PairRows, alpha: NDArray) -> None:
        """Add sum_i alpha_i phi_i, features in the norm of T; the cost is that of ``outputs``."""
        queries, weights = rows.queries, self.active.multiplicity
        for coordinate in np.flatnonzero(queries.any(axis=0)):
            held = np.flatnonzero(queries[:, coordinate])
            scaled = alpha[held] * queries[held, coordinate, None]
            # <phi_i, phi> = sum over pairs of weight G_i G: the weight goes to the coefficient.
            self.matrices[coordinate] += (scaled.T @ rows.pairs[held]) * weights

    def step(self, gram: NDArray, query: NDArray) -> NDArray[np.float64]:
        """One output (e,) from G (d, d) and the last token (d,), at the cost of ``outputs``."""
        entries, result = gram.ravel()[self.active.flat], np.zeros(self.matrices.shape[1])
        for held in np.flatnonzero(query):
            result += query[held] * (self.matrices[held] @ entries)
        return result

    def outputs(self, rows: PairRows) -> NDArray[np.float64]:
        """Outputs (m, e) for rows.  Cost: 2 e u flops per coordinate that a last token holds."""
        pairs, queries = rows.pairs, rows.queries
        result = np.zeros((len(queries), self.matrices.shape[1]))
        for coordinate in np.flatnonzero(queries.any(axis=0)):
            held = np.flatnonzero(queries[:, coordinate])
            scaled = pairs[held] * queries[held, coordinate, None]
            result[held] += scaled @ self.matrices[coordinate].T
        return result

    def largest_miss(self, rows: RowFeatures) -> float:
        """The largest |y - T . phi| over rows, relative to labels of size one or more."""
        missed = float(np.abs(rows.targets - self.outputs(rows)).max(initial=0.0))
        return missed / max(1.0, float(np.abs(rows.targets).max(initial=0.0)))
