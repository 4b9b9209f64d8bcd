"""What rules say beyond the traces: claims that no trace has tested.

A rule with variables speaks of all their values.  It was tested where it was used: a variable that
always had the same value, two variables that never were equal, a name that never was written, a
step on a circle so small that another step leads to the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.compile import Compiled
from polyattn.programs.language.sorts import SYMBOLS
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.rules.facts import Facts
from polyattn.programs.learning.rules.grounding import (
    Products,
    admitted,
    all_products,
    bodies,
    heads,
)
from polyattn.programs.learning.rules.links import LinkBlock
from polyattn.programs.learning.rules.rules import Bound, Rule
from polyattn.programs.traces import Trace


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


def _values(block: LinkBlock, products: Products) -> NDArray[np.int64]:
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
    rule: Rule, name: str, links: tuple[LinkBlock, ...], facts: Facts, max_offset: int
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


# Rivals: rules that fit the traces as well as those that were chosen, but go on differently.
#
# Of rules with the same effect on all traces the plainest is chosen, which may be the wrong one.
# Traces that were cut off are continued by the rules themselves; where none was, the rules write
# histories for random machines and inputs.  As long as they are right, these are histories like
# any other, and a rival that differs there is one that more traces would have to rule out; if they
# are wrong, the right rule differs from them where they first err.


def continued(traces: Sequence[Trace], terms: Sequence[Sequence[Term]], most: int) -> list[Trace]:
    """Traces that were cut off, as the rules go on with them: at most so many tokens together.

    terms : the rules at the sizes of each trace
    """
    cut = [number for number, trace in enumerate(traces) if trace.cut]
    found = []
    for number in cut:
        trace = traces[number]
        program = Compiled(trace.schema, tuple(terms[number]))
        prompt = [trace.schema.decode(row) for row in trace.tokens]
        tokens = program.decode(prompt, max(1, most // len(cut))).tokens
        found.append(Trace(trace.schema, trace.tokens, trace.schema.encode(tokens)))
    return found


def probed(traces: Sequence[Trace], terms: Sequence[Term], n_prompts: int) -> list[Trace]:
    """Histories that the rules write for random machines and inputs, if the schema knows any.

    Only prompts as long as some that were seen: traces of one length teach one length.

    terms : the rules at the sizes of the first trace
    """
    schema = traces[0].schema
    if schema.encoding is None:
        return []
    program, rng = Compiled(schema, tuple(terms)), np.random.default_rng(0)
    lengths = {len(trace.prompt) for trace in traces}
    drawn = [schema.encoding.sample(rng) for _ in range(n_prompts)]
    found = [program.trace(*given, **options) for given, options in drawn]
    return [trace for trace in found if len(trace.prompt) in lengths]


def find_rivals(
    chosen: Sequence[Rule], facts: Facts, n_seen: int, max_offset: int
) -> Iterator[tuple[Rule, Rule]]:
    """Each chosen rule with a rule that is the same on the first ``n_seen`` rows, not on all.

    facts : of the traces, and after them of their continuations

    Cost: O(sum over rules of the products they admit), as that of the dictionary.
    """
    known: dict[int, dict[bytes, tuple[Rule, bytes]]] = {}
    for rule in chosen:
        seen, everywhere = _keys(*admitted(rule, facts), rule.kind, facts, n_seen)
        known.setdefault(rule.kind, {})[seen] = (rule, everywhere)
    for products in all_products(facts):
        for body, some in bodies(products, facts, max_offset):
            for kind, rules in known.items():
                for rival, place, fits in heads(body, products, some, kind, facts, max_offset):
                    used = some if fits is None else some[fits]
                    place = place if fits is None else place[fits]
                    part = Products(
                        products.kinds, products.rows[used], products.parts, products.values[used]
                    )
                    seen, everywhere = _keys(part, place, kind, facts, n_seen)
                    rule, own = rules.get(seen, (rival, everywhere))
                    if own != everywhere:
                        yield rule, rival


def _keys(
    products: Products, place: NDArray[np.int64], kind: int, facts: Facts, n_seen: int
) -> tuple[bytes, bytes]:
    """What a rule writes in the rows that were seen and in all, up to a factor, as bytes."""
    n_places = facts.targets[kind].shape[1]
    at = products.rows * n_places + place
    column: NDArray = np.bincount(at, weights=products.values)
    at = np.flatnonzero(column)
    seen = int(np.searchsorted(at, n_seen * n_places))
    if not seen:
        return b"", b""
    values = (column[at] / column[at[0]]).astype(np.float32)
    return (
        at[:seen].tobytes() + values[:seen].tobytes(),
        at.tobytes() + values.tobytes(),
    )
