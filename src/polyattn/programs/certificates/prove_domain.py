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
from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_index
from polyattn.programs.certificates.certificate import Leaving, ProgramCertificate
from polyattn.programs.certificates.certify_traces import blocks
from polyattn.programs.certificates.outcomes import Verdict
from polyattn.programs.traces import Trace, TraceRows
from polyattn.sequences import as_batch

# Tokens that are looked at together.
BLOCK_TOKENS = 1 << 20


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
    # Which features G[j,k] x[l] occur in training, by pair and l: the order of cubic features.
    n_dims = listed[0].prompt.shape[1]
    seen = np.zeros((len(pair_index(n_dims)[0]), n_dims), dtype=bool)
    for trace in listed:
        pairs, queries = _occurring(trace)
        seen |= (pairs.T @ queries) > 0
    columns, unknown = np.flatnonzero(seen.ravel()), (~seen).astype(float)
    rows = _feature_rows(listed, _places(listed), columns)
    found = exact_rank(rows)

    def certificate(verdict: Verdict, leaving: Leaving | None = None) -> ProgramCertificate:
        return ProgramCertificate(
            verdict, "exhaustive", "integers", verdict != "undecided", found.rank,
            rows.n_rows, len(listed), len(everything), sum(t.n_rows for t in everything),
            leaving=leaving,
        )  # fmt: skip

    for number, trace in enumerate(everything):
        pairs, queries = _occurring(trace)
        new = np.einsum("mp,pl,ml->m", pairs, unknown, queries, optimize=True)
        if new.any():
            return certificate("not_saturated", Leaving(number, int(np.flatnonzero(new)[0])))
    vectors = null_space(rows, found)
    if vectors is None:
        return certificate("undecided")
    if not vectors:
        return certificate("saturated")
    parts = blocks(everything, lambda trace: trace.n_rows * len(trace.tokens), BLOCK_TOKENS)
    for first, some in parts:
        places = _places(some)
        orthogonal = annihilated(_feature_rows(some, places, columns), vectors)
        if not orthogonal.all():
            vector = [vectors[int(np.flatnonzero(~orthogonal)[0])]]
            number, row = next(
                place
                for place in places
                if not annihilated(_feature_rows(some, [place], columns), vector).all()
            )
            return certificate("not_saturated", Leaving(first + number, row))
    return certificate("saturated")


def _occurring(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One for each pair (m, q) and each coordinate of the last token (m, d) that a row has."""
    rows = TraceRows.of(trace)
    first, second = pair_index(rows.queries.shape[1])
    return (rows.grams[:, first, second] != 0).astype(float), (rows.queries != 0).astype(float)


def _places(traces: Sequence[Trace]) -> list[tuple[int, int]]:
    """The number of a trace and of its predicted token, for each row."""
    return [(number, row) for number, trace in enumerate(traces) for row in range(trace.n_rows)]


def _feature_rows(
    traces: Sequence[Trace], places: Iterable[tuple[int, int]], columns: NDArray[np.int64]
) -> FeatureRows:
    """The features of what stands before each of these tokens, one sequence per row."""
    prefixes = []
    for number, row in places:
        tokens = traces[number].tokens[: len(traces[number].prompt) + row]
        low, high = tokens.min(initial=0), tokens.max(initial=0)
        small = tokens.dtype.kind in "iu" and low > -128 and high < 128
        prefixes.append(tokens.astype(np.int8) if small else tokens)
    batch = as_batch(prefixes, keep_integers=True)
    return FeatureRows(batch, columns, Layout.plain(batch.n_dims))
