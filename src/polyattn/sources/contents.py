"""Contents: which chunks of which sources are in a sum, so that none is counted twice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files import fields
from polyattn.quoting import counted, shown
from polyattn.sources.source import ChunkIdentity

# Paths are longer than most values that messages quote.
LONGEST_SOURCE = 400

RANGE = fields.listed(fields.integer(0), 2, 2)
SOURCE = fields.entries(
    {"source": fields.text(), "fingerprint": fields.text(), "ranges": fields.listed(RANGE, 1)}
)
FIELDS = fields.entries({"unnamed": fields.flag, "sources": fields.listed(SOURCE)})


@dataclass
class _Part:
    """What is in of one source: ranges first..stop, sorted, none touching another."""

    fingerprint: str
    ranges: list[tuple[int, int]] = field(default_factory=list)


class Contents:
    """The chunks in a sum: per source its fingerprint, and ranges that are joined where they meet.

    unnamed : whether there is something without an identity in it, too
    Cost: memory of a source and a range for each file that was added from its beginning.
    """

    def __init__(self, identities: Iterable[ChunkIdentity] = (), unnamed: bool = False) -> None:
        self._parts: dict[str, _Part] = {}
        self.unnamed = unnamed
        for identity in identities:
            self.add(identity)

    def add(self, identity: ChunkIdentity) -> None:
        """Add one chunk; refused, and nothing changed, where some of it is in already."""
        self.require_new(identity)
        source, fingerprint, first, stop = identity
        ranges = self._parts.setdefault(source, _Part(fingerprint)).ranges
        at = bisect_left(ranges, (first, stop))
        # It joins the range that ends where it begins, and the one that begins where it ends.
        before = at > 0 and ranges[at - 1][1] == first
        behind = at < len(ranges) and ranges[at][0] == stop
        joined = (ranges[at - 1][0] if before else first, ranges[at][1] if behind else stop)
        ranges[at - before : at + behind] = [joined]

    def require_new(self, identity: ChunkIdentity) -> None:
        """Refuse a chunk of which something is in already, or whose source was another one."""
        source, fingerprint, first, stop = identity
        if not 0 <= first < stop:
            raise InvalidInput(
                f"a chunk of {_quoted(source)} must hold a range first < stop of it; got "
                f"{first}..{stop}."
            )
        part = self._parts.get(source)
        if part is None:
            return
        _require_unchanged(source, part.fingerprint, fingerprint)
        at = bisect_left(part.ranges, (first, stop))
        near = part.ranges[max(at - 1, 0) : at + 1]
        overlap = [each for each in near if each[0] < stop and first < each[1]]
        if overlap:
            begin, end = max(first, overlap[0][0]), min(stop, overlap[0][1])
            raise InvalidInput(
                f"{_quoted(source)}, {begin}..{end}, is already counted; leave it out, or begin "
                "with new statistics."
            )

    def require_disjoint(self, other: Contents) -> None:
        """Refuse other contents of which something is in already."""
        for identity in other.identities():
            self.require_new(identity)

    def absorb(self, other: Contents) -> None:
        """Add what is in the other; refused, and nothing changed, where they overlap."""
        self.require_disjoint(other)
        self.unnamed |= other.unnamed
        for identity in other.identities():
            self.add(identity)

    def union(self, other: Contents) -> Contents:
        """What is in both together; refused where they overlap."""
        joined = self.copy()
        joined.absorb(other)
        return joined

    def difference(self, other: Contents) -> Contents:
        """What is left without the other; refused unless all of that is in."""
        if other.unnamed:
            raise InvalidInput(
                "what is to be taken out has parts without a name, of which nobody knows whether "
                "they are in; give arrays a name by update(..., chunk='name')."
            )
        left = self.copy()
        for identity in other.identities():
            left._remove(identity)
        return left

    def identities(self) -> Iterable[ChunkIdentity]:
        """One identity for each joined range, by source."""
        for source in sorted(self._parts):
            part = self._parts[source]
            for first, stop in part.ranges:
                yield ChunkIdentity(source, part.fingerprint, first, stop)

    @property
    def n_sources(self) -> int:
        """How many named sources there are."""
        return len(self._parts)

    def copy(self) -> Contents:
        """An independent copy."""
        return Contents(self.identities(), self.unnamed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents):
            return NotImplemented
        return (self.unnamed, self._parts) == (other.unnamed, other._parts)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self.unnamed or bool(self._parts)

    def __repr__(self) -> str:
        others = ", and others without a name" * self.unnamed
        return f"Contents({counted(self.n_sources, 'source')}{others})"

    def to_metadata(self) -> dict[str, Any]:
        """The content as plain data."""
        sources = [
            {"source": name, "fingerprint": part.fingerprint, "ranges": [*map(list, part.ranges)]}
            for name, part in sorted(self._parts.items())
        ]
        return {"unnamed": self.unnamed, "sources": sources}

    @classmethod
    def from_metadata(cls, held: Any, where: str = "contents") -> Self:
        """The inverse of ``to_metadata``; anything else is a FileFormatError."""
        FIELDS(held, where)
        made = cls(unnamed=held["unnamed"])
        for each in held["sources"]:
            name, ranges = each["source"], [(first, stop) for first, stop in each["ranges"]]
            if name in made._parts:
                raise FileFormatError(f"{where}.sources holds {_quoted(name)} twice.")
            apart = all(one[1] < other[0] for one, other in pairwise(ranges))
            fields.require(
                apart and all(first < stop for first, stop in ranges),
                f"{where}.sources: the ranges of {_quoted(name)}",
                "sorted, without any that meet",
                each["ranges"],
            )
            made._parts[name] = _Part(each["fingerprint"], ranges)
        return made

    def _remove(self, identity: ChunkIdentity) -> None:
        source, fingerprint, first, stop = identity
        part = self._parts.get(source)
        if part is not None:
            _require_unchanged(source, part.fingerprint, fingerprint)
        ranges = [] if part is None else part.ranges
        at = next((i for i, (a, b) in enumerate(ranges) if a <= first and stop <= b), None)
        if part is None or at is None:
            raise InvalidInput(
                f"{_quoted(source)}, {first}..{stop}, is not counted, at least not all of it; only "
                "what is in can be taken out."
            )
        begin, end = ranges[at]
        ranges[at : at + 1] = [each for each in ((begin, first), (stop, end)) if each[0] < each[1]]
        if not ranges:
            del self._parts[source]


def _require_unchanged(source: str, known: str, fingerprint: str) -> None:
    if known != fingerprint:
        raise InvalidInput(
            f"{_quoted(source)} has changed since a part of it was counted, or is read in another "
            f"way (it was {shown(known)}, and is {shown(fingerprint)}); begin with new statistics, "
            "or restore the source."
        )


def _quoted(source: str) -> str:
    return shown(source, LONGEST_SOURCE)
