"""Rules: what a program that is learned by relation is made of.

    head(...) += weight * read(...) * match(...) given query(...)

A rule is safe: each variable of its head occurs in its body (read, match, query); otherwise the
head would hold for all values at once.  So a rule is a function from products G[j, k] x[l] to
coordinates a, and costs nothing but the products that exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from polyattn.programs.language.attributes import Argument, Pattern, Variable
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.rules.layout import Layout
from polyattn.programs.learning.rules.links import LinkBlock, Links, plainness


@dataclass(frozen=True)
class Bound:
    """A part of the head: ``offset`` steps from the variable of a body's block."""

    sort: str
    block: int
    offset: int = 0


# A part of the head is bound to a variable of the body, or a constant (as a layout's number).
HeadPart: TypeAlias = Bound | int


@dataclass(frozen=True)
class RuleBody:
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
    body: RuleBody

    @property
    def cost(self) -> tuple[int, ...]:
        """Length, variables, steps, kinds: smaller is plainer."""
        length, loose, steps = self.body.cost
        constants = sum(not isinstance(part, Bound) for part in self.parts)
        ahead = sum(abs(part.offset) for part in self.parts if isinstance(part, Bound))
        kinds = len(set(self.body.kinds))
        return length + constants + ahead, loose, steps + ahead, kinds, *self.body.kinds


# Rules as terms of the language, with variables that a person would choose.
#
#     state(r) <- state(r) & key(q, x) given key(q, x)
#
# Guarantee: the entries of the term at any size are exactly the products G[j, k] x[l] -> a that the
# rule stands for, each once, so rule and term have the same coefficients.

# Letters for the variables of a sort, by its name or else by its kind.
LETTERS = {"state": "qrsu", "letter": "xyzw"}
LETTERS_OF_KIND = {SYMBOLS: "abcd", LINE: "tijk", CIRCLE: "pghl", NAMES: "mnov"}


def term_of(rule: Rule, weight: float, layout: Layout, schema: Schema) -> Term:
    """The term of a rule, written for the sizes of ``schema``."""
    places = _arguments(rule, layout, schema)
    kinds = (rule.kind, *rule.body.kinds)
    write, left, right, query = (
        _pattern(kind, arguments, layout, schema)
        for kind, arguments in zip(kinds, places, strict=True)
    )
    # What is read has most in common with what is written, what is matched with the question.
    if _shared(right, write) - _shared(right, query) > _shared(left, write) - _shared(left, query):
        left, right = right, left
    return Term(write, left, right, query, float(weight))


def _arguments(rule: Rule, layout: Layout, schema: Schema) -> list[list[Argument]]:
    """The arguments of write, read, match and query, variable by variable."""
    lengths = [len(layout.kinds[kind].sorts) for kind in rule.body.kinds]
    owners = [(role, at) for role, length in enumerate(lengths, 1) for at in range(length)]
    places: list[list[Argument]] = [[0] * n for n in (len(rule.parts), *lengths)]
    letters = _letters(layout)
    for name, links in rule.body.links:
        for number, block in enumerate(links):
            uses = [(*owners[slot], step) for slot, step in _steps(block)]
            uses += [
                (0, at, part.offset)
                for at, part in enumerate(rule.parts)
                if isinstance(part, Bound) and (part.sort, part.block) == (name, number)
            ]
            # The variable is the value where the fewest fit, so that it can be all of them.
            sizes = [_size(rule, layout, schema, role, at) for role, at, _ in uses]
            base = uses[sizes.index(min(sizes))][2]
            for role, at, step in uses:
                if block.pin is None:
                    places[role][at] = Variable(letters[name][number], step - base)
                else:
                    constant = layout.part(name, block.pin)
                    places[role][at] = constant + step if isinstance(constant, int) else constant
    for at, own in enumerate(rule.parts):
        if not isinstance(own, Bound):
            places[0][at] = layout.part(layout.kinds[rule.kind].sorts[at], own)
    return places


def _steps(block: LinkBlock) -> list[tuple[int, int]]:
    return list(zip(block.slots, block.offsets, strict=True))


def _size(rule: Rule, layout: Layout, schema: Schema, role: int, at: int) -> int:
    kind = (rule.kind, *rule.body.kinds)[role]
    return int(getattr(schema, layout.kinds[kind].attribute).sorts[at].size)


def _pattern(kind: int, arguments: list[Argument], layout: Layout, schema: Schema) -> Pattern:
    attribute = getattr(schema, layout.kinds[kind].attribute)
    return Pattern(attribute, tuple(arguments), layout.kinds[kind].whole)


def _letters(layout: Layout) -> dict[str, list[str]]:
    """Names of variables for each sort; no two sorts share one."""
    found: dict[str, list[str]] = {}
    taken: set[str] = set()
    for name, sort in layout.sorts.items():
        family = LETTERS.get(name) or LETTERS_OF_KIND[sort.kind]
        if taken & set(family):
            found[name] = [f"{name}{number}" for number in range(20)]
            continue
        taken |= set(family)
        found[name] = [*family, *(f"{family[0]}{number}" for number in range(1, 20))]
    return found


def _shared(one: Pattern, other: Pattern) -> int:
    return len(set(one.variables) & set(other.variables))
