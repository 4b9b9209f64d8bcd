"""What a layer sees of one-hot tokens: how often each symbol is attended to, and who asks.

Of one-hot tokens x x^T is diagonal, so that S holds nothing but the (weighted) counts of symbols,
and the query is one symbol b: the features are  count_a [the query is b],  at most d^2 of them.
Positions with different queries share no feature: everything falls apart into one group for each
symbol that asks (docs/derivations/one_hot.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.errors import InvalidInput
from polyattn.form.form import Form, plain_form
from polyattn.form.pairs import n_features
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Ids of up to so many symbols are by default treated as dense tokens.
DENSE_SYMBOLS = 16

# Features of ids that are more than this are never made dense.
MOST_FEATURES = 1 << 18

# Tokens attended to that are counted together: some 100 MB on the way.
ENTRIES = 1 << 22

# More products of a position and a token that it attends to would take hours.
MOST_ATTENDED = 1 << 36


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """The predicted positions at which one symbol asks.

    query : the symbol
    rows : the numbers of the positions (rows,), ascending
    symbols : all symbols that they attend to (k,), ascending
    counts : (rows, k), the sum of the weights with which each position sees each symbol
    """

    query: int
    rows: NDArray[np.int64]
    symbols: NDArray[np.int64]
    counts: csr_array


def refusal(form: Form) -> str | None:
    """Why features of one-hot tokens in this form are more than counts; None where they are not."""
    known = replace(
        plain_form(form.mode, False), include_query=form.include_query, mean=form.mean,
        window=form.window, decay=None if form.decay == "loo" else form.decay,
    )  # fmt: skip
    several = isinstance(form.decay, tuple) and len(form.decay) > 1
    if form == known and not several:
        return None
    if form == replace(known, bias=True):
        return (
            "with bias=True features of different queries depend on each other. On one-hot tokens "
            "the constant adds no function: leave it out."
        )
    return (
        "counts of symbols stand for forms of mode, include_query, mean, window and one decay "
        f"alone; got {form!r}."
    )


def symbols_of(batch: SequenceBatch) -> OneHotTokens | None:
    """The tokens as numbers of symbols, if they were given so."""
    return batch.values if isinstance(batch.values, OneHotTokens) else None


def require_dense_ids(batch: SequenceBatch, what: str) -> None:
    """Refuse ids of so many symbols that their features are not made dense."""
    count = n_features(batch.n_dims)
    if symbols_of(batch) is not None and count > MOST_FEATURES:
        raise InvalidInput(
            f"{what} needs ids as dense tokens, and {batch.n_dims:,} symbols have {count:,} "
            "features, too many for that; fit, certify, verify and layers take them."
        )


def query_groups(batch: SequenceBatch, form: Form) -> Iterator[list[QueryGroup]]:
    """All groups of a batch made by ``from_ids``, in the order of their symbols, some at a time.

    Cost: O(log n) per token and position that attends to it.  Memory of some groups: at most
    ENTRIES pairs (position, symbol), or those of one group.
    """
    positions = _positions(batch, form)
    attended = positions.stop - positions.start
    total = int(attended.sum())
    if total > MOST_ATTENDED:
        raise InvalidInput(
            f"predicted positions attend to {total:.1e} tokens altogether, which would take hours "
            "to count. Cut long series into sequences, or give a form with a window."
        )
    asked = positions.ids[positions.query]
    order = np.argsort(asked, kind="stable")
    queries, starts = np.unique(asked[order], return_index=True)
    borders = np.append(starts, len(order))
    until = np.concatenate([[0], np.cumsum(attended[order])])[borders]
    first = 0
    while first < len(queries):
        stop = int(np.searchsorted(until, until[first] + ENTRIES, side="right")) - 1
        stop = max(stop, first + 1)
        rows = order[borders[first] : borders[stop]]
        counts = positions.counts(rows)
        local = borders[first : stop + 1] - borders[first]
        yield [
            _group(int(query), rows[a:b], counts[a:b])
            for query, a, b in zip(queries[first:stop], local[:-1], local[1:], strict=True)
        ]
        first = stop
        report(int(borders[stop]), len(order))


def equal_rows(counts: csr_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of the different rows each row is (rows,), and the first of each kind."""
    # Equal rows have equal products with random numbers, to the last bit.
    mixture = counts @ np.random.default_rng(0).standard_normal(counts.shape[1])
    _, first, places = np.unique(mixture, return_index=True, return_inverse=True)
    if len(first) < len(places):
        differences = counts - counts[first[places]]
        if differences.count_nonzero():
            every = np.arange(len(places))
            return every, every
    return places, first


@dataclass(frozen=True, eq=False)
class _Positions:
    """Which token asks at each predicted position, and the tokens start..stop it attends to."""

    ids: NDArray[np.integer]
    n_symbols: int
    query: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    decay: float
    leaves_out: bool  # the query stands between start and stop, and is not attended to
    divisors: NDArray[np.int64] | None

    def counts(self, rows: NDArray[np.int64]) -> csr_array:
        """Weighted counts (rows, n_symbols) of these positions."""
        start, query = self.start[rows], self.query[rows]
        lengths = self.stop[rows] - start
        ends = np.cumsum(lengths)
        pointers = np.concatenate([[0], ends])
        tokens = np.arange(pointers[-1]) + np.repeat(start - pointers[:-1], lengths)
        if self.decay == 1.0:
            weights = np.ones(len(tokens))
        else:
            weights = self.decay ** (np.repeat(query, lengths) - tokens).astype(np.float64)
        if self.leaves_out:
            weights[tokens == np.repeat(query, lengths)] = 0.0
        indices = self.ids[tokens].astype(np.int64)
        counts = csr_array((weights, indices, pointers), shape=(len(rows), self.n_symbols))
        counts.sum_duplicates()
        # Weights far back may have vanished, too.
        counts.eliminate_zeros()
        if self.divisors is not None:
            counts.data /= np.repeat(self.divisors[rows], np.diff(counts.indptr))
        return counts


def _positions(batch: SequenceBatch, form: Form) -> _Positions:
    tokens = symbols_of(batch)
    why = refusal(form)
    if tokens is None or why is not None:
        raise InvalidInput(why or "counts of symbols need a batch made by SequenceBatch.from_ids.")
    offsets, lengths = batch.offsets, batch.lengths
    (scale,) = form.scales
    if form.mode == "last":
        query, begin, close, seen = offsets[1:] - 1, offsets[:-1], offsets[1:], lengths
    else:
        query = np.arange(len(tokens))
        begin, close = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
        seen = np.repeat(lengths, lengths) if form.mode == "full" else query - begin + 1
    leaves_out = False
    if form.mode == "full":
        start, stop, leaves_out = begin, close, not form.include_query
    else:
        stop = np.maximum(query + 1 - scale.start, begin)
        start = begin if scale.stop is None else np.maximum(begin, query + 1 - scale.stop)
    divisors = np.maximum(form.n_attended(seen), 1) if form.mean else None
    return _Positions(
        tokens.ids, tokens.n_symbols, query, start, np.maximum(stop, start), scale.decay,
        leaves_out, divisors,
    )  # fmt: skip


def _group(query: int, rows: NDArray[np.int64], counts: csr_array) -> QueryGroup:
    """A group whose columns are the symbols that occur in it."""
    symbols, places = np.unique(counts.indices, return_inverse=True)
    own = csr_array((counts.data, places, counts.indptr), shape=(len(rows), len(symbols)))
    return QueryGroup(query, rows, symbols.astype(np.int64), own)
