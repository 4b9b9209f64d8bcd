"""The rows of traces as facts: which products G[j, k] x[l] each row offers, which y[a] it wants.

Facts are kept by kinds and parts, so that traces of machines of different sizes lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, Part, Sort
from polyattn.programs.traces import Trace, TraceRows


@dataclass(frozen=True)
class Kind:
    """An attribute without its parts, as key(., .), or one whole value of it, as key(START)."""

    attribute: str
    sorts: tuple[str, ...]
    whole: str | None = None


class SchemaLayout:
    """What schemas of any sizes have in common: attributes, with parts of the same sorts.

    Kinds have the same number at all sizes.  A part is a number: 0, 1, ... for the numbered values
    of its sort, and from ``n_numbered`` (that of the largest schema) on for the named ones.
    """

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self.schemas = tuple(dict.fromkeys(schemas))
        self.kinds = _kinds_of(self.schemas[0])
        for schema in self.schemas[1:]:
            if _kinds_of(schema) != self.kinds:
                raise InvalidInput(
                    "the traces must have the same attributes with parts of the same sorts; "
                    f"got {[str(each) for each in self.schemas[0].attributes]} and "
                    f"{[str(each) for each in schema.attributes]}."
                )
        self.sorts = dict(self.schemas[0].sorts)
        self.n_numbered = dict.fromkeys(self.sorts, 0)
        attributes = (attribute for schema in self.schemas for attribute in schema.attributes)
        for sort in (sort for attribute in attributes for sort in attribute.sorts):
            self.n_numbered[sort.name] = max(self.n_numbered[sort.name], sort.size)
        self._coordinates: dict[Schema, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

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
        (kinds, parts), steps = self.coordinates(schema), self.strides(kind)
        at = np.flatnonzero(kinds == kind)
        return at, parts[at, : len(steps)] @ np.array(steps, dtype=np.int64)

    def number(self, sort: str, part: Part) -> int:
        """A part as a number."""
        if isinstance(part, int):
            return part
        return self.n_numbered[sort] + self.sorts[sort].named.index(part)

    def part(self, sort: str, number: int) -> Part:
        """A number as a part: the inverse of ``number``."""
        first = self.n_numbered[sort]
        return number if number < first else self.sorts[sort].named[number - first]

    def slots(self, kind: int, schema: Schema | None = None) -> tuple[Sort, ...]:
        """The sorts of the parts of a kind, with the values that fit there (at some sizes)."""
        own = self.kinds[kind]
        attribute = getattr(schema or self.schemas[0], own.attribute)
        return tuple(attribute.sorts) if own.whole is None else ()

    def coordinates(self, schema: Schema) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The kind of each coordinate (d,) of a schema, and its parts (d, w); -1 where fewer."""
        if schema not in self._coordinates:
            number_of = {(kind.attribute, kind.whole): at for at, kind in enumerate(self.kinds)}
            width = max(len(kind.sorts) for kind in self.kinds)
            kinds = np.empty(schema.n_dims, dtype=np.int64)
            parts = np.full((schema.n_dims, width), -1, dtype=np.int64)
            for at, (name, value) in enumerate(schema.atoms):
                whole, own = (value, ()) if isinstance(value, str) else (None, value)
                kinds[at] = number_of[name, whole]
                named = zip(self.kinds[kinds[at]].sorts, own, strict=True)
                parts[at, : len(own)] = [self.number(sort, part) for sort, part in named]
            self._coordinates[schema] = kinds, parts
        return self._coordinates[schema]


def _kinds_of(schema: Schema) -> tuple[Kind, ...]:
    found = []
    for attribute in schema.attributes:
        found.append(Kind(attribute.name, tuple(sort.name for sort in attribute.sorts)))
        found += [Kind(attribute.name, (), whole) for whole in attribute.whole]
    return tuple(found)


class Entries(NamedTuple):
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

    layout: SchemaLayout
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


def facts_of(layout: SchemaLayout, traces: Sequence[Trace]) -> Facts:
    """The facts of traces.  Cost: O(sum over rows of the non-zeros of G)."""
    pairs: dict[tuple[int, ...], list[Entries]] = {}
    queries: dict[tuple[int, ...], list[Entries]] = {}
    schemas, lengths = [trace.schema for trace in traces], [trace.n_rows for trace in traces]
    trace_of, start = np.repeat(np.arange(len(traces)), lengths), 0
    targets, sizes = {}, {}
    for kind, each in enumerate(layout.kinds):
        targets[kind] = np.zeros((len(trace_of), prod(layout.radix(sort) for sort in each.sorts)))
        fitting = [[sort.size for sort in layout.slots(kind, schema)] for schema in schemas]
        sizes[kind] = np.array(fitting, dtype=np.int64).T[:, trace_of]
    circles = {
        name: np.array([schema.sorts[name].size for schema in schemas])[trace_of]
        for name, sort in layout.sorts.items()
        if sort.kind == CIRCLE
    }
    for trace in traces:
        rows, coordinates = TraceRows.of(trace), layout.coordinates(trace.schema)
        _add(pairs, coordinates, rows.grams, start)
        _add(queries, coordinates, rows.queries, start)
        for kind, own in targets.items():
            at, places = layout.places(trace.schema, kind)
            own[start : start + trace.n_rows, places] = rows.targets[:, at]
        start += trace.n_rows
    pairs_of_kinds = {(j, k): _joined(parts) for (j, k), parts in pairs.items()}
    queries_of_kinds = {kind: _joined(parts) for (kind,), parts in queries.items()}
    return Facts(layout, pairs_of_kinds, queries_of_kinds, targets, trace_of, sizes, circles)


def _add(
    found: dict[tuple[int, ...], list[Entries]],
    coordinates: tuple[NDArray[np.int64], NDArray[np.int64]],
    numbers: NDArray[np.float64],
    start: int,
) -> None:
    """Add what is not zero of last tokens (m, d) by kind, or of G (m, d, d) by kinds J <= K."""
    kinds_of, parts_of = coordinates
    row, *at = np.nonzero(numbers)
    kinds = kinds_of[np.array(at)]
    ordered = np.flatnonzero(kinds[0] <= kinds[-1])
    code = kinds[0] * (kinds_of.max() + 1) + kinds[-1]
    order = ordered[np.argsort(code[ordered], kind="stable")]
    for chosen in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        if not len(chosen):
            continue
        parts = np.concatenate([parts_of[each[chosen]].T for each in at])
        values = numbers[(row[chosen], *(each[chosen] for each in at))]
        found.setdefault(tuple(kinds[:, chosen[0]].tolist()), []).append(
            Entries(row[chosen] + start, parts[(parts >= 0).any(axis=1)], values)
        )


def _joined(found: list[Entries]) -> Entries:
    return Entries(*(np.concatenate(each, axis=-1) for each in zip(*found, strict=True)))
