"""Rules on data: all rules that facts could speak for, and what a rule makes of facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.sorts import CIRCLE
from polyattn.programs.learning.rules.facts import Facts
from polyattn.programs.learning.rules.layout import Layout
from polyattn.programs.learning.rules.links import Links, all_links, body_pins, head_pins, holds
from polyattn.programs.learning.rules.rules import Bound, HeadPart, Rule, RuleBody


@dataclass(frozen=True, eq=False)
class Products:
    """All products G[j, k] x[l] of three kinds: their rows, parts (slots, n), and values."""

    kinds: tuple[int, int, int]
    rows: NDArray[np.int64]
    parts: NDArray[np.int64]
    values: NDArray[np.float64]


def all_products(facts: Facts) -> Iterator[Products]:
    """The products of all kinds that occur together in a row."""
    for read, match in facts.pairs:
        for query in facts.queries:
            products = products_of(facts, (read, match, query))
            if len(products.rows):
                yield products


def products_of(facts: Facts, kinds: tuple[int, int, int]) -> Products:
    """The products of three kinds: each pair of a row with each query of that row."""
    pairs, asked = facts.pairs[kinds[:2]], facts.queries[kinds[2]]
    counts = np.bincount(pairs.rows, minlength=facts.n_rows)
    starts, times = np.cumsum(counts) - counts, counts[asked.rows]
    right = np.repeat(np.arange(len(asked.rows)), times)
    within = np.arange(len(right)) - np.repeat(np.cumsum(times) - times, times)
    left = starts[asked.rows[right]] + within
    return Products(
        kinds,
        asked.rows[right],
        np.concatenate([pairs.parts[:, left], asked.parts[:, right]]),
        pairs.values[left] * asked.values[right],
    )


def admitted(rule: Rule, facts: Facts) -> tuple[Products, NDArray[np.int64]]:
    """The products that a rule uses, and their places in ``facts.targets[rule.kind]``."""
    if rule.body.kinds[:2] not in facts.pairs or rule.body.kinds[2] not in facts.queries:
        return Products(rule.body.kinds, *_nothing(rule, facts.layout)), np.zeros(0, dtype=np.int64)
    products = products_of(facts, rule.body.kinds)
    met = np.ones(len(products.rows), dtype=bool)
    for name, links in rule.body.links:
        met &= _met(name, links, products, facts)
    chosen = np.flatnonzero(met)
    place = np.zeros(len(chosen), dtype=np.int64)
    fits = np.ones(len(chosen), dtype=bool)
    for at, part in enumerate(rule.parts):
        step, allowed = _write(part, rule.body, products, chosen, rule.kind, at, facts)
        place += step
        fits &= True if allowed is None else allowed
    used = chosen[fits]
    return (
        Products(
            products.kinds, products.rows[used], products.parts[:, used], products.values[used]
        ),
        place[fits],
    )


def bodies(
    products: Products, facts: Facts, max_offset: int
) -> Iterator[tuple[RuleBody, NDArray[np.int64]]]:
    """All bodies that differ on some product, each with the products that it admits.

    Of bodies that admit the same products the plainest is kept.
    """
    layout = facts.layout
    per_sort: list[list[tuple[str, Links, NDArray[np.bool_]]]] = []
    for name, slots in _slots_by_sort(layout, products.kinds).items():
        sort = layout.sorts[name]
        named = range(layout.n_numbered[name], layout.radix(name))
        steps = max_offset if sort.is_ordered else 0
        options, seen = [], set()
        for links in all_links(slots, body_pins(sort, named), steps):
            met = _met(name, links, products, facts)
            key = np.packbits(met).tobytes()
            if met.any() and key not in seen:
                seen.add(key)
                options.append((name, links, met))
        per_sort.append(options)
    found = [
        (RuleBody(products.kinds, tuple((name, links) for name, links, _ in chosen)), chosen)
        for chosen in product(*per_sort)
    ]
    known: set[bytes] = set()
    for body, chosen in sorted(found, key=lambda each: each[0].cost):
        met = np.ones(len(products.rows), dtype=bool)
        for _, _, each in chosen:
            met &= each
        key = np.packbits(met).tobytes()
        if key not in known and met.any():
            known.add(key)
            yield body, np.flatnonzero(met)


def heads(
    body: RuleBody,
    products: Products,
    chosen: NDArray[np.int64],
    kind: int,
    facts: Facts,
    max_offset: int,
) -> Iterator[tuple[Rule, NDArray[np.int64], NDArray[np.bool_] | None]]:
    """All safe rules of a body that write a kind.

    With each come the places in ``facts.targets[kind]`` of the chosen products, and which of them
    fit there (None: all).
    """
    options = [
        [
            (part, *_write(part, body, products, chosen, kind, at, facts))
            for part in _head_parts(facts.layout, body, kind, at, max_offset)
        ]
        for at in range(len(facts.layout.kinds[kind].sorts))
    ]
    for picked in product(*options):
        place = np.zeros(len(chosen), dtype=np.int64)
        fits: NDArray[np.bool_] | None = None
        for _, step, allowed in picked:
            place = place + step
            if allowed is not None:
                fits = allowed if fits is None else fits & allowed
        yield Rule(kind, tuple(part for part, _, _ in picked), body), place, fits


def _met(name: str, links: Links, products: Products, facts: Facts) -> NDArray[np.bool_]:
    circle = facts.circles[name][products.rows] if name in facts.circles else None
    return holds(links, products.parts, facts.layout.n_numbered[name], circle)


def _nothing(
    rule: Rule, layout: Layout
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    n_slots = sum(len(layout.kinds[kind].sorts) for kind in rule.body.kinds)
    return np.zeros(0, dtype=np.int64), np.zeros((n_slots, 0), dtype=np.int64), np.zeros(0)


def _head_parts(
    layout: Layout, body: RuleBody, kind: int, at: int, max_offset: int
) -> Iterator[HeadPart]:
    """What one part of the head may be."""
    sort = layout.slot(kind, at)
    steps = max_offset if sort.is_ordered else 0
    for block in range(len(dict(body.links).get(sort.name, ()))):
        for offset in range(-steps, steps + 1):
            yield Bound(sort.name, block, offset)
    yield from head_pins(sort, [layout.number(sort.name, each) for each in sort.named])


def _write(
    part: HeadPart,
    body: RuleBody,
    products: Products,
    chosen: NDArray[np.int64],
    kind: int,
    at: int,
    facts: Facts,
) -> tuple[NDArray[np.int64] | int, NDArray[np.bool_] | None]:
    """The step that one part of the head adds to the place, and where it fits (None: always)."""
    layout, rows = facts.layout, products.rows[chosen]
    sort, stride = layout.slot(kind, at), facts.strides(kind)[at]
    first, size = layout.n_numbered[sort.name], facts.sizes[kind][at]
    if not isinstance(part, Bound):
        if part >= first or part < size.min():
            return stride * part, None
        return stride * part, part < size[rows]
    number = products.parts[dict(body.links)[part.sort][part.block].slots[0]][chosen]
    fits = np.ones(len(chosen), dtype=bool)
    if part.offset:
        fits = number < first
        number = number + part.offset
        if sort.kind == CIRCLE:
            number = number % facts.circles[sort.name][rows]
    known = np.zeros(layout.radix(sort.name), dtype=bool)
    known[[layout.number(sort.name, each) for each in sort.named]] = True
    inside = (number >= 0) & (number < len(known))
    fits &= inside & ((number < size[rows]) | known[np.where(inside, number, 0)])
    return stride * number, None if fits.all() else fits


def _slots_by_sort(layout: Layout, kinds: tuple[int, int, int]) -> dict[str, tuple[int, ...]]:
    names = [name for kind in kinds for name in layout.kinds[kind].sorts]
    found: dict[str, tuple[int, ...]] = {}
    for slot, name in enumerate(names):
        found[name] = (*found.get(name, ()), slot)
    return found
