"""The rows of traces as facts: which products G[j, k] x[l] each row offers, which y[a] it wants.

Facts are kept by kinds and parts, so that traces of machines of different sizes lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.rules.layout import Layout
from polyattn.programs.traces import Trace, TraceRows


@dataclass(frozen=True, eq=False)
class Entries:
    """Non-zero numbers of all rows for one kind, or for one pair of kinds.

    rows : array (n,), in order
    parts : array (w, n), the parts of the coordinate (first those of j, then those of k)
    values : array (n,)
    """

    rows: NDArray[np.int64]
    parts: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Facts:
    """All rows of traces.

    pairs : for kinds J <= K, the entries of G; for J = K in both orders of j and k
    queries : for each kind, the entries of the last tokens x
    targets : for each kind, a dense array (n_rows, D) of the wanted y, see ``places``
    trace_of : array (n_rows,), which trace a row belongs to
    sizes : for each kind, array (slots, n_rows) of how many numbered values fit
    circles : for each circle, array (n_rows,) of its size
    """

    layout: Layout
    pairs: dict[tuple[int, int], Entries]
    queries: dict[int, Entries]
    targets: dict[int, NDArray[np.float64]]
    trace_of: NDArray[np.int64]
    sizes: dict[int, NDArray[np.int64]]
    circles: dict[str, NDArray[np.int64]]

    @property
    def n_rows(self) -> int:
        """The rows of all traces together."""
        return len(self.trace_of)

    def strides(self, kind: int) -> list[int]:
        """The steps of ``targets[kind]`` for each part: place = sum of parts times strides."""
        return strides_of(self.layout, kind)


def strides_of(layout: Layout, kind: int) -> list[int]:
    """Steps such that parts times steps number all values of a kind at all sizes of a layout."""
    steps = [1]
    for sort in reversed(layout.kinds[kind].sorts):
        steps.append(steps[-1] * layout.radix(sort))
    return steps[-2::-1]


def facts_of(layout: Layout, traces: Sequence[Trace]) -> Facts:
    """The facts of traces.

    Cost: O(sum over rows of the non-zeros of G).
    """
    pair_parts: dict[tuple[int, int], list[Entries]] = {}
    query_parts: dict[int, list[Entries]] = {}
    n_rows = sum(trace.n_rows for trace in traces)
    targets = {
        kind: np.zeros((n_rows, _n_places(layout, kind))) for kind in range(len(layout.kinds))
    }
    sizes = {
        kind: np.zeros((len(each.sorts), n_rows), dtype=np.int64)
        for kind, each in enumerate(layout.kinds)
    }
    circles = {
        name: np.zeros(n_rows, dtype=np.int64)
        for name, sort in layout.sorts.items()
        if sort.kind == "circle"
    }
    start = 0
    for trace in traces:
        rows, found = TraceRows.of(trace), layout.coordinates(trace.schema)
        here = slice(start, start + trace.n_rows)
        _add_pairs(pair_parts, found.kinds, found.parts, rows.grams, start)
        _add_queries(query_parts, found.kinds, found.parts, rows.queries, start)
        for kind, own in targets.items():
            at = np.flatnonzero(found.kinds == kind)
            steps = np.array(strides_of(layout, kind), dtype=np.int64)
            places = found.parts[at, : len(steps)] @ steps
            own[here, places] = rows.targets[:, at]
            sizes[kind][:, here] = np.array(found.sizes[kind], dtype=np.int64)[:, None]
        for name, size in found.circles.items():
            circles[name][here] = size
        start += trace.n_rows
    counts = [trace.n_rows for trace in traces]
    return Facts(
        layout,
        {kinds: _joined(found) for kinds, found in pair_parts.items()},
        {kind: _joined(found) for kind, found in query_parts.items()},
        targets,
        np.repeat(np.arange(len(traces)), counts),
        sizes,
        circles,
    )


def _n_places(layout: Layout, kind: int) -> int:
    return int(np.prod([layout.radix(sort) for sort in layout.kinds[kind].sorts], dtype=np.int64))


def _add_pairs(
    found: dict[tuple[int, int], list[Entries]],
    kinds: NDArray[np.int64],
    parts: NDArray[np.int64],
    grams: NDArray[np.float64],
    start: int,
) -> None:
    row, j, k = np.nonzero(grams)
    ordered = kinds[j] <= kinds[k]
    row, j, k = row[ordered], j[ordered], k[ordered]
    code = kinds[j] * (kinds.max() + 1) + kinds[k]
    order = np.argsort(code, kind="stable")
    for chosen in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        if not len(chosen):
            continue
        r, left, right = row[chosen], j[chosen], k[chosen]
        both = np.concatenate([parts[left].T, parts[right].T])
        found.setdefault((int(kinds[left[0]]), int(kinds[right[0]])), []).append(
            Entries(r + start, both[(both >= 0).any(axis=1)], grams[r, left, right])
        )


def _add_queries(
    found: dict[int, list[Entries]],
    kinds: NDArray[np.int64],
    parts: NDArray[np.int64],
    queries: NDArray[np.float64],
    start: int,
) -> None:
    row, at = np.nonzero(queries)
    for kind in np.unique(kinds[at]):
        chosen = kinds[at] == kind
        r, own = row[chosen], parts[at[chosen]].T
        found.setdefault(int(kind), []).append(
            Entries(r + start, own[(own >= 0).any(axis=1)], queries[r, at[chosen]])
        )


def _joined(found: list[Entries]) -> Entries:
    return Entries(
        np.concatenate([each.rows for each in found]),
        np.concatenate([each.parts for each in found], axis=1),
        np.concatenate([each.values for each in found]),
    )
