"""The common ground of schemas that differ in sizes alone: kinds of values, and parts as numbers.

A **kind** is an attribute with its parts left open, or one of its whole values: ``key(., .)`` and
``key(START)`` are two kinds.  Kinds have the same number at all sizes.  A part is a number:
0, 1, ... for the numbered values of its sort, and from ``n_numbered`` on for the named ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import Part, Sort


@dataclass(frozen=True)
class Kind:
    """An attribute without its parts, or one whole value of it (then ``sorts`` is empty)."""

    attribute: str
    sorts: tuple[str, ...]
    whole: str | None = None

    def __str__(self) -> str:
        return self.attribute if self.whole is None else f"{self.attribute}({self.whole})"


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
    """What schemas of the same attributes have in common.

    Parameters
    ----------
    schemas : one or more Schema
        The same attributes with parts of the same sorts, of any sizes.
    """

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

    @cached_property
    def landmarks(self) -> dict[str, int]:
        """For each sort, how many of its first values are special."""
        return {name: sort.landmarks for name, sort in self.sorts.items()}

    def radix(self, sort: str) -> int:
        """The numbers that parts of a sort may have: numbered values, then named ones."""
        return self.n_numbered[sort] + len(self.sorts[sort].named)

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
        if schema not in self._coordinates:
            self._coordinates[schema] = self._read(schema)
        return self._coordinates[schema]

    def _read(self, schema: Schema) -> Coordinates:
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
        return Coordinates(kinds, parts, sizes, circles)


def _kinds_of(schema: Schema) -> tuple[Kind, ...]:
    found = []
    for attribute in schema.attributes:
        found.append(Kind(attribute.name, tuple(sort.name for sort in attribute.sorts)))
        found += [Kind(attribute.name, (), whole) for whole in attribute.whole]
    return tuple(found)
