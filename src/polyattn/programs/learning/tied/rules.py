"""Rules: what a tied program is made of.

    head(...) += weight * read(...) * match(...) given query(...)

A rule is safe: each variable of its head occurs in its body (read, match, query); otherwise the
head would hold for all values at once.  So a rule is a function from products G[j, k] x[l] to
coordinates a, and costs nothing but the products that exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from polyattn.programs.learning.tied.links import Links, plainness


@dataclass(frozen=True)
class Bound:
    """A part of the head: ``offset`` steps from the variable of a body's block."""

    sort: str
    block: int
    offset: int = 0


# A part of the head is bound to a variable of the body, or a constant (as a layout's number).
HeadPart: TypeAlias = Bound | int


@dataclass(frozen=True)
class Body:
    """What is read, matched and asked: three kinds, and the links of their parts by sort."""

    kinds: tuple[int, int, int]
    links: tuple[tuple[str, Links], ...]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Length, variables and steps, as in ``plainness``: smaller is plainer."""
        each = [plainness(links) for _, links in self.links]
        return sum(w for w, _, _ in each), sum(v for _, v, _ in each), sum(s for _, _, s in each)


@dataclass(frozen=True)
class Rule:
    """A kind that is written, its parts, and the body that they come from."""

    kind: int
    parts: tuple[HeadPart, ...]
    body: Body

    @property
    def cost(self) -> tuple[int, ...]:
        """Length, variables, steps, kinds: smaller is plainer."""
        length, loose, steps = self.body.cost
        constants = sum(not isinstance(part, Bound) for part in self.parts)
        ahead = sum(abs(part.offset) for part in self.parts if isinstance(part, Bound))
        kinds = len(set(self.body.kinds))
        return length + constants + ahead, loose, steps + ahead, kinds, *self.body.kinds
