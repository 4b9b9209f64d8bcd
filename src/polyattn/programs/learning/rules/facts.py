"""The rows of traces as facts: which products G[j, k] x[l] each row offers, which y[a] it wants.

Facts are kept by kinds and parts, so that traces of machines of different sizes lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import Part, Sort
from polyattn.programs.traces import Trace, TraceRows

# The common ground of schemas that differ in sizes alone: kinds of values, and parts as numbers.
#
# A **kind** is an attribute with its parts left open, or one of its whole values: ``key(., .)`` and
# ``key(START)`` are two kinds.  Kinds have the same number at all sizes.  A part is a number:
# 0, 1, ... for the numbered values of its sort, and from ``n_numbered`` on for the named ones.


@dataclass(frozen=True)
class Kind:
    """An attribute without its parts, or one whole value of it (then ``sorts`` is empty)."""

    attribute: str
    sorts: tuple[str, ...]
    whole: str | None = None


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of one schema in the numbers of a layout.

    kinds : array (d,), the kind of each coordinate
    parts : array (d, w), its parts, -1 where it has fewer than w
    sizes : for each kind and slot, how many numbered values fit there
    circles : the number of values of each circle
    """

    kinds: NDArray[np.int64]
    parts: NDArray[np.int64]
    sizes: tuple[tuple[int, ...], ...]
    circles: dict[str, int]


class Layout:
    """What schemas of any sizes have in common: attributes, with parts of the same sorts."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self.schemas = tuple(dict.fromkeys(schemas))
        if not self.schemas:
            raise InvalidInput("a layout needs at least one schema.")
        self.kinds = _kinds_of(self.schemas[0])
        for schema in self.schemas[1:]:
            if _kinds_of(schema) != self.kinds:
                raise InvalidInput(
                    "the traces must have the same attributes with parts of the same sorts; "
                    f"got {[str(each) for each in self.schemas[0].attributes]} and "
                    f"{[str(each) for each in schema.attributes]}."
                )
        self.sorts = dict(self.schemas[0].sorts)
        self._coordinates: dict[Schema, Coordinates] = {}

    @cached_property
    def n_numbered(self) -> dict[str, int]:
        """For each sort, the numbered values of the largest schema."""
        found: dict[str, int] = {}
        for schema in self.schemas:
            for attribute in schema.attributes:
                for sort in attribute.sorts:
                    found[sort.name] = max(found.get(sort.name, 0), sort.size)
        return found

    def radix(self, sort: str) -> int:
        """The numbers that parts of a sort may have: numbered values, then named ones."""
        return self.n_numbered[sort] + len(self.sorts[sort].named)

    def strides(self, kind: int) -> list[int]:
        """Steps such that parts times steps number all values of a kind, at all sizes."""
        steps = [1]
        for sort in reversed(self.kinds[kind].sorts):
            steps.append(steps[-1] * self.radix(sort))
        return steps[-2::-1]

    def places(self, schema: Schema, kind: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The coordinates of a schema that are of one kind, and the number of each value."""
        found, steps = self.coordinates(schema), self.strides(kind)
        at = np.flatnonzero(found.kinds == kind)
        return at, found.parts[at, : len(steps)] @ np.array(steps, dtype=np.int64)

    def number(self, sort: str, part: Part) -> int:
        """A part as a number."""
        if isinstance(part, int):
            return part
        return self.n_numbered[sort] + self.sorts[sort].named.index(part)

    def part(self, sort: str, number: int) -> Part:
        """A number as a part: the inverse of ``number``."""
        first = self.n_numbered[sort]
        return number if number < first else self.sorts[sort].named[number - first]

    def slot(self, kind: int, at: int) -> Sort:
        """The sort of one part of a kind, with the named values that fit there."""
        attribute = getattr(self.schemas[0], self.kinds[kind].attribute)
        found: Sort = attribute.sorts[at]
        return found

    def coordinates(self, schema: Schema) -> Coordinates:
        """The coordinates of a schema in the numbers of this layout."""
        if schema in self._coordinates:
            return self._coordinates[schema]
        number_of = {(kind.attribute, kind.whole): at for at, kind in enumerate(self.kinds)}
        width = max(len(kind.sorts) for kind in self.kinds)
        kinds = np.empty(schema.n_dims, dtype=np.int64)
        parts = np.full((schema.n_dims, width), -1, dtype=np.int64)
        for at, (name, value) in enumerate(schema.atoms):
            kinds[at] = number_of[name, value if isinstance(value, str) else None]
            if not isinstance(value, str):
                names = self.kinds[kinds[at]].sorts
                pairs = zip(names, value, strict=True)
                parts[at, : len(value)] = [self.number(sort, part) for sort, part in pairs]
        sizes = tuple(
            tuple(sort.size for sort in getattr(schema, kind.attribute).sorts if kind.sorts)
            for kind in self.kinds
        )
        circles = {name: sort.size for name, sort in schema.sorts.items() if sort.kind == "circle"}
        self._coordinates[schema] = Coordinates(kinds, parts, sizes, circles)
        return self._coordinates[schema]


def _kinds_of(schema: Schema) -> tuple[Kind, ...]:
    found = []
    for attribute in schema.attributes:
        found.append(Kind(attribute.name, tuple(sort.name for sort in attribute.sorts)))
        found += [Kind(attribute.name, (), whole) for whole in attribute.whole]
    return tuple(found)


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
    targets : for each kind, a dense array (n_rows, D) of the wanted y, at ``layout.places``
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


def facts_of(layout: Layout, traces: Sequence[Trace]) -> Facts:
    """The facts of traces.

    Cost: O(sum over rows of the non-zeros of G).
    """
    pairs: dict[tuple[int, ...], list[Entries]] = {}
    queries: dict[tuple[int, ...], list[Entries]] = {}
    n_rows = sum(trace.n_rows for trace in traces)
    targets = {
        kind: np.zeros((n_rows, prod(layout.radix(sort) for sort in each.sorts)))
        for kind, each in enumerate(layout.kinds)
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
        _add(pairs, found, rows.grams, start)
        _add(queries, found, rows.queries, start)
        for kind, own in targets.items():
            at, places = layout.places(trace.schema, kind)
            own[here, places] = rows.targets[:, at]
            sizes[kind][:, here] = np.array(found.sizes[kind], dtype=np.int64)[:, None]
        for name, size in found.circles.items():
            circles[name][here] = size
        start += trace.n_rows
    return Facts(
        layout,
        {(j, k): _joined(parts) for (j, k), parts in pairs.items()},
        {kind: _joined(parts) for (kind,), parts in queries.items()},
        targets,
        np.repeat(np.arange(len(traces)), [trace.n_rows for trace in traces]),
        sizes,
        circles,
    )


def _add(
    found: dict[tuple[int, ...], list[Entries]],
    coordinates: Coordinates,
    numbers: NDArray[np.float64],
    start: int,
) -> None:
    """Add what is not zero of last tokens (m, d) by kind, or of G (m, d, d) by kinds J <= K."""
    row, *at = np.nonzero(numbers)
    kinds = coordinates.kinds[np.array(at)]
    ordered = np.flatnonzero(kinds[0] <= kinds[-1])
    code = kinds[0] * (len(coordinates.sizes) + 1) + kinds[-1]
    order = ordered[np.argsort(code[ordered], kind="stable")]
    for chosen in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        if not len(chosen):
            continue
        parts = np.concatenate([coordinates.parts[each[chosen]].T for each in at])
        values = numbers[(row[chosen], *(each[chosen] for each in at))]
        found.setdefault(tuple(kinds[:, chosen[0]].tolist()), []).append(
            Entries(row[chosen] + start, parts[(parts >= 0).any(axis=1)], values)
        )


def _joined(found: list[Entries]) -> Entries:
    columns = zip(*((each.rows, each.parts, each.values) for each in found), strict=True)
    return Entries(*(np.concatenate(column, axis=-1) for column in columns))
