"""The features of rows: entries of the token Gram that ever occur, and the last token.

A layer sees a row (G, x) through its features G[j,k] x[l].  Of the d(d+1)/2 pairs most are zero
in every trace (two values of a one-hot block never meet in a token): they are dropped at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.traces import Trace, TraceRows


@dataclass(frozen=True, eq=False)
class ActivePairs:
    """The pairs j <= k of coordinates that some token of the training data holds together.

    Parameters
    ----------
    n_dims : int
        d, the coordinates of a token.
    first, second : integer arrays (u,)
        j and k of each pair, in the order of ``features.pairs.pair_index``.
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
        first, second = np.nonzero(np.triu(seen))
        return cls(n_dims, first, second)

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
class RowFeatures:
    """TraceRows of training data, reduced to what their features are products of.

    pairs : array (N, u), the active entries of G, not weighted
    queries : array (N, d), the last tokens
    targets : array (N, e), the tokens to follow
    owners : integer array (N,), the number of each row's trace
    """

    active: ActivePairs
    pairs: NDArray[np.float64]
    queries: NDArray[np.float64]
    targets: NDArray[np.float64]
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, traces: Iterable[Trace], active: ActivePairs | None = None) -> RowFeatures:
        """The rows of all traces; pairs that are not active are left out.

        Cost: memory of N (u + 2 d) numbers; the Gram matrices of one trace at a time.
        """
        listed = list(traces)
        active = active or ActivePairs.of(listed)
        pairs, queries, targets, owners = [], [], [], []
        for number, trace in enumerate(listed):
            part = TraceRows.of(trace)
            pairs.append(active.of_grams(part.grams))
            queries.append(part.queries)
            targets.append(part.targets)
            owners.append(np.full(len(part.queries), number))
        return cls(
            active, np.concatenate(pairs), np.concatenate(queries).astype(np.float64),
            np.concatenate(targets).astype(np.float64), np.concatenate(owners),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def n_traces(self) -> int:
        """M, the number of traces."""
        return int(self.owners.max(initial=-1)) + 1

    def joined(self, traces: Sequence[Trace]) -> RowFeatures:
        """These rows and those of further traces, which may hold further pairs."""
        fresh = ActivePairs.of(traces)
        flat = np.union1d(self.active.flat, fresh.flat)
        first, second = np.divmod(flat, fresh.n_dims)
        new = RowFeatures.of(traces, ActivePairs(fresh.n_dims, first, second))
        old = np.zeros((len(self), len(flat)))
        old[:, np.searchsorted(flat, self.active.flat)] = self.pairs
        return RowFeatures(
            new.active, np.concatenate([old, new.pairs]),
            np.concatenate([self.queries, new.queries]),
            np.concatenate([self.targets, new.targets]),
            np.concatenate([self.owners, self.n_traces + new.owners]),
        )  # fmt: skip

    def labelled(self, targets: NDArray) -> RowFeatures:
        """The same rows with other targets (N, e)."""
        return replace(self, targets=targets)

    def take(self, which: NDArray) -> RowFeatures:
        """Some of the rows."""
        return RowFeatures(
            self.active, self.pairs[which], self.queries[which], self.targets[which],
            self.owners[which],
        )  # fmt: skip


def kernel(
    active: ActivePairs,
    pairs: NDArray, queries: NDArray, other_pairs: NDArray, other_queries: NDArray,
) -> NDArray[np.float64]:  # fmt: skip
    """<G, G'>_F <x, x'> between two sets of rows, shape (rows, other rows).

    Guarantee: exact for integers while the products stay below 2^53.
    Cost: 2 u flops per entry, memory of two results.
    """
    result = (pairs * active.multiplicity) @ other_pairs.T
    result *= queries @ other_queries.T
    return result
