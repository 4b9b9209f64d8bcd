"""Rules: what a program that is learned by relation is made of.

    head(...) += weight * read(...) * match(...) given query(...)

A rule is safe: each variable of its head occurs in its body (read, match, query); otherwise the
head would hold for all values at once.  So a rule is a function from products G[j, k] x[l] to
coordinates a, and costs nothing but the products that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from polyattn.programs.language.attributes import Argument, Attribute, Pattern, Variable
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.rules.facts import SchemaLayout


@dataclass(frozen=True)
class LinkBlock:
    """Slots of one sort that share a variable: equal, or on a line or circle fixed steps apart.

    offsets : steps from the variable to each slot; the first is 0
    pin : the constant that the variable is, as a number of the layout, or None
    is_name : whether the constant is a name (not a landmark)
    """

    slots: tuple[int, ...]
    offsets: tuple[int, ...]
    pin: int | None = None
    is_name: bool = False


# How the slots of one sort depend on each other: those of different blocks may be anything.
Links: TypeAlias = tuple[LinkBlock, ...]

# A constant as a number of the layout (a name, or a landmark of a line); whether it is a name.
Pin: TypeAlias = tuple[int, bool]


def all_links(slots: tuple[int, ...], pins: tuple[Pin, ...], max_offset: int) -> list[Links]:
    """All ways to link slots of one sort, the plainest first.

    Plain means: few variables, constants and steps.  Few variables put the stricter of two ways
    first: when both say the same about all data, it says what the data show.

    pins : the constants that a variable may be
    max_offset : the largest step within a block; 0 for sorts without order
    """
    found = [
        tuple(blocks)
        for groups in _partitions(slots)
        for blocks in product(*(_blocks(group, pins, max_offset) for group in groups))
    ]
    return sorted(found, key=plainness)


def plainness(links: Links) -> tuple[int, int, int]:
    """Length (variables, constants and steps together), looseness, steps: smaller is plainer.

    Variables and landmarks are loose, names are not: what always was the same name stays it.
    """
    steps = sum(abs(offset) for block in links for offset in block.offsets)
    loose = sum(1 if block.pin is None else 2 * (not block.is_name) for block in links)
    return len(links) + steps, loose, steps


def _partitions(slots: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split slots into groups, each group in order."""
    if not slots:
        yield []
        return
    first, rest = slots[0], slots[1:]
    for groups in _partitions(rest):
        yield [(first,), *groups]
        for at, group in enumerate(groups):
            yield [(first, *group), *groups[:at], *groups[at + 1 :]]


def _blocks(group: tuple[int, ...], pins: tuple[Pin, ...], max_offset: int) -> Iterator[LinkBlock]:
    steps = range(-max_offset, max_offset + 1)
    for offsets in product(steps, repeat=len(group) - 1):
        for pin, is_name in ((None, False), *pins):
            if not (is_name and any(offsets)):  # there is nothing next to a name
                yield LinkBlock(group, (0, *offsets), pin, is_name)


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
        return plainness(tuple(block for _, links in self.links for block in links))


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


# Letters for the variables of a sort, by its name or else by its kind.
LETTERS = {"state": "qrsu", "letter": "xyzw"}
LETTERS_OF_KIND = {SYMBOLS: "abcd", LINE: "tijk", CIRCLE: "pghl", NAMES: "mnov"}


def term_of(rule: Rule, weight: float, layout: SchemaLayout, schema: Schema) -> Term:
    """The term of a rule, for the sizes of ``schema``, with variables that a person would choose.

        state(r) <- state(r) & key(q, x) given key(q, x)

    Guarantee: the entries of the term at any size are exactly the products G[j, k] x[l] -> a that
    the rule stands for, each once, so rule and term have the same coefficients.
    """
    kinds = [layout.kinds[kind] for kind in (rule.kind, *rule.body.kinds)]
    attributes = [getattr(schema, kind.attribute) for kind in kinds]
    places = _arguments(rule, layout, attributes)
    write, left, right, query = (
        Pattern(attribute, tuple(arguments), kind.whole)
        for attribute, arguments, kind in zip(attributes, places, kinds, strict=True)
    )

    def nearness(pattern: Pattern) -> int:
        """How much more it has in common with what is written than with the question."""
        own = set(pattern.variables)
        return len(own & set(write.variables)) - len(own & set(query.variables))

    if nearness(right) > nearness(left):
        left, right = right, left
    return Term(write, left, right, query, float(weight))


def _arguments(
    rule: Rule, layout: SchemaLayout, attributes: Sequence[Attribute]
) -> list[list[Argument]]:
    """The arguments of write, read, match and query, variable by variable."""
    lengths = [len(layout.kinds[kind].sorts) for kind in rule.body.kinds]
    owners = [(role, at) for role, length in enumerate(lengths, 1) for at in range(length)]
    places: list[list[Argument]] = [[0] * n for n in (len(rule.parts), *lengths)]
    letters = _letters(layout)
    for name, links in rule.body.links:
        for number, block in enumerate(links):
            steps = zip(block.slots, block.offsets, strict=True)
            uses = [(*owners[slot], step) for slot, step in steps]
            uses += [
                (0, at, part.offset)
                for at, part in enumerate(rule.parts)
                if isinstance(part, Bound) and (part.sort, part.block) == (name, number)
            ]
            # The variable is the value where the fewest fit, so that it can be all of them.
            sizes = [attributes[role].sorts[at].size for role, at, _ in uses]
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


def _letters(layout: SchemaLayout) -> dict[str, list[str]]:
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
