"""The exhaustive certificate as a theorem: nothing rests on rounding, nor on luck.

Let r training rows be independent modulo a prime; then the rank of the training rows is at least
r.  Let n - r independent integer vectors, n the number of features that ever occur, be orthogonal
to every row of training and domain, checked in integers; then the rank of all of these together
is at most r.  Hence both are r, and every row of the domain is in the span of the training rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.integers import annihilated
from polyattn.certify.exact.rank import exact_rank, null_space
from polyattn.errors import InvalidInput
from polyattn.features.pairs import pair_index
from polyattn.programs.certificates.certificate import Leaving, ProgramCertificate
from polyattn.programs.certificates.outcomes import (
    EXHAUSTIVE,
    NOT_SATURATED,
    SATURATED,
    UNDECIDED,
    Verdict,
)
from polyattn.programs.traces import Trace, TraceRows
from polyattn.sequences import SequenceBatch, as_batch

# Tokens that are looked at together.
CHUNK_TOKENS = 1 << 20


def prove_domain(training: Sequence[Trace], domain: Iterable[Trace]) -> ProgramCertificate:
    """Whether every row of ALL traces of a domain is in the span of the training rows, proved.

    Guarantee: "saturated" is a theorem.  So is "not_saturated" by a row with a feature that
    training never had, or by an integer vector that is orthogonal to all training rows and not
    to this one.  "undecided" if the null vectors were not found within their effort.
    Cost: that of the exact rank of the training rows, and 2 u d flops per row of the domain, null
    vector and limb; meant for some thousand features and some ten thousand rows.
    """
    listed, everything = list(training), list(domain)
    if not listed or not everything:
        raise InvalidInput("a proof needs training traces and the traces of a domain; got none.")
    columns = _active_columns(listed)
    rows = FeatureRows(_prefixes(listed), columns=columns)
    found = exact_rank(rows)

    def certificate(verdict: Verdict, leaving: Leaving | None = None) -> ProgramCertificate:
        return ProgramCertificate(
            verdict, EXHAUSTIVE, "integers", verdict != UNDECIDED, found.rank,
            rows.n_rows, len(listed), len(everything), sum(t.n_rows for t in everything),
            leaving=leaving,
        )  # fmt: skip

    stranger = _first_stranger(everything, columns)
    if stranger is not None:
        return certificate(NOT_SATURATED, stranger)
    vectors = null_space(rows, found)
    if vectors is None:
        return certificate(UNDECIDED)
    if not vectors:
        return certificate(SATURATED)
    for first, some in _chunks(everything):
        orthogonal = annihilated(FeatureRows(_prefixes(some), columns=columns), vectors)
        if not orthogonal.all():
            shown = [vectors[i] for i in np.flatnonzero(~orthogonal)[:1]]
            return certificate(NOT_SATURATED, _first_shown(some, first, columns, shown))
    return certificate(SATURATED)


def _active_columns(traces: Sequence[Trace]) -> NDArray[np.int64]:
    """The features G[j,k] x[l] that are not zero in some row, in the order of cubic features."""
    n_dims = traces[0].prompt.shape[1]
    seen = np.zeros((len(pair_index(n_dims)[0]), n_dims), dtype=bool)
    for trace in traces:
        pairs, queries = _occurring(trace)
        seen |= (pairs.T.astype(float) @ queries.astype(float)) > 0
    return np.flatnonzero(seen.ravel())


def _first_stranger(traces: Sequence[Trace], columns: NDArray[np.int64]) -> Leaving | None:
    """The first row with a feature that is in none of the columns."""
    n_dims = traces[0].prompt.shape[1]
    unknown = np.ones((len(pair_index(n_dims)[0]), n_dims))
    unknown.ravel()[columns] = 0.0
    for number, trace in enumerate(traces):
        pairs, queries = _occurring(trace)
        new = np.einsum("mp,pl,ml->m", pairs.astype(float), unknown, queries.astype(float),
                        optimize=True)  # fmt: skip
        if new.any():
            return Leaving(number, int(np.flatnonzero(new)[0]))
    return None


def _occurring(trace: Trace) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which pairs (m, q) and which coordinates of the last token (m, d) each row has."""
    rows = TraceRows.of(trace)
    first, second = pair_index(rows.queries.shape[1])
    return rows.grams[:, first, second] != 0, rows.queries != 0


def _first_shown(
    traces: Sequence[Trace], first: int, columns: NDArray[np.int64], vectors: list[tuple[int, ...]]
) -> Leaving:
    """The first row that is not orthogonal to a null vector."""
    for number, trace in enumerate(traces):
        for row in range(trace.n_rows):
            one = as_batch([_prefix(trace, row)], keep_integers=True)
            if not annihilated(FeatureRows(one, columns=columns), vectors).all():
                return Leaving(first + number, row)
    raise AssertionError("a vector that some row is not orthogonal to")


def _prefixes(traces: Sequence[Trace]) -> SequenceBatch:
    """What stands before each predicted token, one sequence per row."""
    prefixes = [_prefix(trace, row) for trace in traces for row in range(trace.n_rows)]
    return as_batch(prefixes, keep_integers=True)


def _prefix(trace: Trace, row: int) -> NDArray:
    tokens = trace.tokens[: len(trace.prompt) + row]
    small = tokens.dtype.kind in "iu" and np.abs(tokens).max(initial=0) < 128
    return tokens.astype(np.int8) if small else tokens


def _chunks(traces: Sequence[Trace]) -> Iterable[tuple[int, Sequence[Trace]]]:
    """Traces in chunks of bounded memory, each with the number of its first."""
    first, n_tokens = 0, 0
    for number, trace in enumerate(traces):
        n_tokens += trace.n_rows * len(trace.tokens)
        if n_tokens >= CHUNK_TOKENS:
            yield first, traces[first : number + 1]
            first, n_tokens = number + 1, 0
    if first < len(traces):
        yield first, traces[first:]
