"""Rules on data: those that could have written what was seen, as columns of least squares.

For one kind that is written:  y[row, a] = sum over rules of weight * column[row, a],  where

    column[row, a] = sum of G[j, k] x[l] over the products of the row that the rule sends to a.

Problems of different kinds share no unknown, so each is solved alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES
from polyattn.programs.learning.rules.facts import Facts, SchemaLayout
from polyattn.programs.learning.rules.rule import Bound, HeadPart, Links, Rule, RuleBody, all_links


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Candidate rules for one kind, the plainest first.

    rules : n candidate rules
    columns : sparse array (n_rows * D, n)
    wanted : array (n_rows * D,)
    n_places : D
    n_rules : how many different columns there were before the weakest were dropped
    """

    rules: tuple[Rule, ...]
    columns: sparse.csc_array
    wanted: NDArray[np.float64]
    n_places: int
    n_rules: int


def dictionaries(
    facts: Facts, *, max_offset: int = 3, max_candidates: int = 800
) -> dict[int, Dictionary]:
    """One dictionary for each kind that is written somewhere.

    A rule is a candidate if its column has something in common with what was written; of rules
    with proportional columns the plainest is kept; of too many those with the largest
    correlation.

    Cost: O(sum over rules of the products they admit): a few seconds for a thousand rows.
    """
    found: dict[int, dict[bytes, _Column]] = {
        kind: {} for kind, wanted in facts.targets.items() if wanted.any()
    }
    for rule, at, values in candidates(facts, found, max_offset):
        wanted = facts.targets[rule.kind].ravel()
        if not values @ wanted[at]:
            continue
        at, values = column_of(at, values)
        if not len(at):  # what was added was taken away again
            continue
        key = at.astype(np.int32).tobytes() + (values / values[0]).astype(np.float32).tobytes()
        rival = found[rule.kind].get(key)
        if rival is None or rule.cost < rival.rule.cost:
            score = float((values @ wanted[at]) ** 2 / (values @ values))
            found[rule.kind][key] = _Column(rule, at, values, score)
    result = {}
    for kind, columns in found.items():
        kept = sorted(columns.values(), key=lambda each: -each.score)[:max_candidates]
        kept.sort(key=lambda each: each.rule.cost)
        values = np.concatenate([np.zeros(0), *(each.values for each in kept)])
        places = np.concatenate([np.zeros(0, dtype=np.int64), *(each.at for each in kept)])
        ends = np.cumsum([0, *(len(each.at) for each in kept)])
        targets, rules = facts.targets[kind], tuple(each.rule for each in kept)
        matrix = sparse.csc_array((values, places, ends), shape=(targets.size, len(kept)))
        result[kind] = Dictionary(rules, matrix, targets.ravel(), targets.shape[1], len(columns))
    return result


class _Column(NamedTuple):
    rule: Rule
    at: NDArray[np.int64]
    values: NDArray[np.float64]
    score: float


@dataclass(frozen=True, eq=False)
class Products:
    """All products G[j, k] x[l] of three kinds: their rows, parts (slots, n), and values."""

    facts: Facts
    kinds: tuple[int, int, int]
    rows: NDArray[np.int64]
    parts: NDArray[np.int64]
    values: NDArray[np.float64]


def candidates(
    facts: Facts, kinds: Iterable[int], max_offset: int
) -> Iterator[tuple[Rule, NDArray[np.int64], NDArray[np.float64]]]:
    """All safe rules that write one of these kinds, each with its products.

    For each product come its place in ``facts.targets[rule.kind]``, flattened, and its value.
    Of rules whose bodies admit the same products the plainest is kept.
    """
    layout, written = facts.layout, list(kinds)
    for (read, match), query in product(facts.pairs, facts.queries):
        products = products_of(facts, (read, match, query))
        for body, chosen in _bodies(products, max_offset):
            for kind in written:
                options = [
                    [
                        (part, _write(part, body, products, chosen, kind, at))
                        for part in _head_parts(layout, body, kind, at, max_offset)
                    ]
                    for at in range(len(layout.kinds[kind].sorts))
                ]
                for picked in product(*options):
                    rule = Rule(kind, tuple(part for part, _ in picked), body)
                    used, place = _placed(chosen, [step for _, step in picked])
                    places = products.rows[used] * facts.targets[kind].shape[1] + place
                    yield rule, places, products.values[used]


def column_of(
    at: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The places to which a rule writes something, in order, and the sums that it writes."""
    column: NDArray = np.bincount(at, weights=values)
    at = np.flatnonzero(column)
    return at, column[at]


def products_of(facts: Facts, kinds: tuple[int, int, int]) -> Products:
    """The products of three kinds: each pair of a row with each query of that row."""
    pairs, asked = facts.pairs[kinds[:2]], facts.queries[kinds[2]]
    counts = np.bincount(pairs.rows, minlength=facts.n_rows)
    starts, times = np.cumsum(counts) - counts, counts[asked.rows]
    right = np.repeat(np.arange(len(asked.rows)), times)
    within = np.arange(len(right)) - np.repeat(np.cumsum(times) - times, times)
    left = starts[asked.rows[right]] + within
    parts = np.concatenate([pairs.parts[:, left], asked.parts[:, right]])
    values = pairs.values[left] * asked.values[right]
    return Products(facts, kinds, asked.rows[right], parts, values)


def admitted(rule: Rule, facts: Facts) -> tuple[Products, NDArray[np.int64]]:
    """The products that a rule uses, and their places in ``facts.targets[rule.kind]``."""
    kinds, layout = rule.body.kinds, facts.layout
    if kinds[:2] not in facts.pairs or kinds[2] not in facts.queries:
        n_slots = sum(len(layout.kinds[kind].sorts) for kind in kinds)
        none, parts = np.zeros(0, dtype=np.int64), np.zeros((n_slots, 0), dtype=np.int64)
        return Products(facts, kinds, none, parts, np.zeros(0)), none
    products = products_of(facts, kinds)
    met = np.ones(len(products.rows), dtype=bool)
    for name, links in rule.body.links:
        met &= _met(name, links, products)
    chosen = np.flatnonzero(met)
    written = [
        _write(part, rule.body, products, chosen, rule.kind, at)
        for at, part in enumerate(rule.parts)
    ]
    used, place = _placed(chosen, written)
    values = products.values[used]
    return Products(facts, kinds, products.rows[used], products.parts[:, used], values), place


def _bodies(products: Products, max_offset: int) -> Iterator[tuple[RuleBody, NDArray[np.int64]]]:
    """Of bodies that admit the same products the plainest, each with what it admits."""
    if not len(products.rows):
        return
    layout = products.facts.layout
    names = [name for kind in products.kinds for name in layout.kinds[kind].sorts]
    per_sort: list[list[tuple[str, Links, NDArray[np.bool_]]]] = []
    for name in dict.fromkeys(names):
        sort = layout.sorts[name]
        slots = tuple(slot for slot, other in enumerate(names) if other == name)
        # Names are constants, and so are the landmarks of a line.  Landmarks among symbols are
        # not: symbols that are given are data, and data are exchangeable.
        landmarks = range(sort.landmarks if sort.kind == LINE else 0)
        named = range(layout.n_numbered[name], layout.radix(name))
        pins = (*((each, False) for each in landmarks), *((each, True) for each in named))
        options, seen = [], set()
        for links in all_links(slots, pins, max_offset if sort.is_ordered else 0):
            met = _met(name, links, products)
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


def _met(name: str, links: Links, products: Products) -> NDArray[np.bool_]:
    """Which products meet the constraints on the parts of one sort."""
    facts, parts = products.facts, products.parts
    n_numbered = facts.layout.n_numbered[name]
    circle = facts.circles[name][products.rows] if name in facts.circles else None
    met = np.ones(parts.shape[1], dtype=bool)
    for block in links:
        base = parts[block.slots[0]]
        if block.pin is not None:
            met &= base == block.pin
        for slot, offset in zip(block.slots[1:], block.offsets[1:], strict=True):
            if not offset:
                met &= parts[slot] == base
                continue
            ahead = parts[slot] - base - offset
            met &= (ahead if circle is None else ahead % circle) == 0
            met &= (base < n_numbered) & (parts[slot] < n_numbered)
    return met


def _head_parts(
    layout: SchemaLayout, body: RuleBody, kind: int, at: int, max_offset: int
) -> Iterator[HeadPart]:
    """What one part of the head may be: near a variable, a landmark of any sort, or a name."""
    sort = layout.slots(kind)[at]
    steps = max_offset if sort.is_ordered else 0
    for block in range(len(dict(body.links).get(sort.name, ()))):
        for offset in range(-steps, steps + 1):
            yield Bound(sort.name, block, offset)
    yield from range(0 if sort.kind == NAMES else sort.landmarks)
    yield from (layout.number(sort.name, each) for each in sort.named)


# The step that one part of a head adds to the place of each product, and where it fits (None:
# everywhere).
Written: TypeAlias = tuple[NDArray[np.int64] | int, NDArray[np.bool_] | None]


def _write(
    part: HeadPart, body: RuleBody, products: Products, chosen: NDArray, kind: int, at: int
) -> Written:
    facts, layout, rows = products.facts, products.facts.layout, products.rows[chosen]
    sort, stride = layout.slots(kind)[at], layout.strides(kind)[at]
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


def _placed(
    chosen: NDArray[np.int64], written: Sequence[Written]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The chosen products that fit where all parts of a head send them, and these places."""
    place = np.zeros(len(chosen), dtype=np.int64)
    fits: NDArray[np.bool_] | None = None
    for step, allowed in written:
        place = place + step
        if allowed is not None:
            fits = allowed if fits is None else fits & allowed
    return (chosen, place) if fits is None else (chosen[fits], place[fits])
