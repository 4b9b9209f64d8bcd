"""What rules say beyond the traces: claims that no trace has tested.

A rule with variables speaks of all their values.  It was tested where it was used: a variable that
always had the same value, two variables that never were equal, a name that never was written, a
step on a circle so small that another step leads to the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.sorts import SYMBOLS
from polyattn.programs.learning.tied.facts import Facts
from polyattn.programs.learning.tied.grounding import Products, admitted
from polyattn.programs.learning.tied.links import Block
from polyattn.programs.learning.tied.rules import Bound, Rule


def untested(rule: Rule, facts: Facts, max_offset: int) -> list[str]:
    """Each claim of a rule that no trace has tested, in words; none means all were.

    Cost: O(products of the rule's kinds).
    """
    products, _ = admitted(rule, facts)
    found = []
    for name, links in rule.body.links:
        free = [(number, block) for number, block in enumerate(links) if block.pin is None]
        values = {number: _values(block, products) for number, block in free}
        for number, _ in free:
            if len(np.unique(values[number])) < 2:
                found.append(f"one {name} was always the same")
            found += _unwritten(rule, name, number, facts)
        if facts.layout.sorts[name].kind == SYMBOLS:
            found += _never_equal(name, [values[number] for number, _ in free])
        found += _aliased(rule, name, links, facts, max_offset)
    return list(dict.fromkeys(found))


def _values(block: Block, products: Products) -> NDArray[np.int64]:
    return products.parts[block.slots[0]]


def _never_equal(name: str, values: Iterable[NDArray[np.int64]]) -> Iterator[str]:
    for one, other in combinations(values, 2):
        if not (one == other).any():
            yield f"two of {name} never were equal"


def _unwritten(rule: Rule, name: str, number: int, facts: Facts) -> Iterator[str]:
    """Names that the variable could write and that no trace, by any rule, has written."""
    layout = facts.layout
    shape = [layout.radix(sort) for sort in layout.kinds[rule.kind].sorts]
    for at, part in enumerate(rule.parts):
        if isinstance(part, Bound) and (part.sort, part.block) == (name, number):
            written = facts.targets[rule.kind].reshape(-1, *shape)
            for each in layout.slot(rule.kind, at).named:
                if not np.take(written, layout.number(name, each), axis=at + 1).any():
                    yield f"{name} {each} was never written"


def _aliased(
    rule: Rule, name: str, links: tuple[Block, ...], facts: Facts, max_offset: int
) -> Iterator[str]:
    """Steps on a circle that no trace could tell from steps the other way round."""
    if name not in facts.circles:
        return
    largest = int(facts.circles[name].max())
    steps = {offset for block in links for offset in block.offsets}
    steps |= {part.offset for part in rule.parts if isinstance(part, Bound) and part.sort == name}
    for step in sorted(steps):
        if largest <= abs(step) + max_offset:
            yield f"on a circle of {largest}, {step} and {step - largest} steps are the same"
