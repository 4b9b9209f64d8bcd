"""What rules say beyond the traces: claims that no trace has tested.

A rule with variables speaks of all their values.  It was tested where it was used: a variable that
always had the same value, two variables that never were equal, a name that never was written, a
step on a circle so small that another step leads to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.compile import Compiled
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import SYMBOLS
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.rules.candidates import admitted, all_products, bodies, heads
from polyattn.programs.learning.rules.facts import Facts, Layout, facts_of
from polyattn.programs.learning.rules.rule import Bound, Links, Rule, term_of
from polyattn.programs.traces import Trace


def untested(rule: Rule, facts: Facts, max_offset: int) -> list[str]:
    """Each claim of a rule that no trace has tested, in words; none means all were.

    Cost: O(products of the rule's kinds).
    """
    products, _ = admitted(rule, facts)
    found = []
    for name, links in rule.body.links:
        free = {
            number: products.parts[block.slots[0]]
            for number, block in enumerate(links)
            if block.pin is None
        }
        for number, values in free.items():
            if len(np.unique(values)) < 2:
                found.append(f"one {name} was always the same")
            found += _unwritten(rule, name, number, facts)
        if facts.layout.sorts[name].kind == SYMBOLS:
            pairs = combinations(free.values(), 2)
            apart = f"two of {name} never were equal"
            found += [apart for one, other in pairs if not (one == other).any()]
        found += _aliased(rule, name, links, facts, max_offset)
    return list(dict.fromkeys(found))


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


def _aliased(rule: Rule, name: str, links: Links, facts: Facts, max_offset: int) -> Iterator[str]:
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


# Tokens that traces are continued by, at least; histories that are written where none can be
# continued; and how many rivals are named.
FEWEST_CONTINUED, N_PROBES, MOST_RIVALS = 512, 100, 3


def rivals(
    schema: Schema,
    layout: Layout,
    traces: Sequence[Trace],
    rules: Sequence[tuple[Rule, float]],
    max_offset: int,
) -> tuple[str, ...]:
    """Pairs of rules that fit the traces alike and would continue them differently, in words."""
    n_rows = sum(trace.n_rows for trace in traces)
    terms = [[term_of(rule, w, layout, trace.schema) for rule, w in rules] for trace in traces]
    later = _continued(traces, terms, max(n_rows, FEWEST_CONTINUED)) or _probed(traces, terms[0])
    if not later:
        return ()
    facts = facts_of(layout, [*traces, *later])
    found = _find_rivals([rule for rule, _ in rules], facts, n_rows, max_offset)
    return tuple(
        f"{term_of(rule, 1.0, layout, schema)} or {term_of(rival, 1.0, layout, schema)}"
        for rule, rival in islice(found, MOST_RIVALS)
    )


def _continued(traces: Sequence[Trace], terms: Sequence[Sequence[Term]], most: int) -> list[Trace]:
    """Traces that were cut off, as the rules go on with them: at most so many tokens together."""
    cut = [number for number, trace in enumerate(traces) if trace.cut]
    found = []
    for number in cut:
        trace = traces[number]
        program = Compiled(trace.schema, tuple(terms[number]))
        prompt = [trace.schema.decode(row) for row in trace.tokens]
        tokens = program.decode(prompt, max(1, most // len(cut))).tokens
        found.append(Trace(trace.schema, trace.tokens, trace.schema.encode(tokens)))
    return found


def _probed(traces: Sequence[Trace], terms: Sequence[Term]) -> list[Trace]:
    """Histories that the rules write for random machines and inputs, if the schema knows any.

    Only prompts as long as some that were seen: traces of one length teach one length.
    """
    schema = traces[0].schema
    if schema.encoding is None:
        return []
    program, rng = Compiled(schema, tuple(terms)), np.random.default_rng(0)
    lengths = {len(trace.prompt) for trace in traces}
    drawn = [schema.encoding.sample(rng) for _ in range(N_PROBES)]
    found = [program.trace(*given, **options) for given, options in drawn]
    return [trace for trace in found if len(trace.prompt) in lengths]


def _find_rivals(
    chosen: Sequence[Rule], facts: Facts, n_seen: int, max_offset: int
) -> Iterator[tuple[Rule, Rule]]:
    """Each chosen rule with a rule that is the same on the first ``n_seen`` rows, not on all.

    facts : of the traces, and after them of their continuations

    Cost: O(sum over rules of the products they admit), as that of the dictionary.
    """
    known: dict[int, dict[bytes, tuple[Rule, bytes]]] = {}
    for rule in chosen:
        products, place = admitted(rule, facts)
        n_places = facts.targets[rule.kind].shape[1]
        at = products.rows * n_places + place
        seen, everywhere = _keys(at, products.values, n_seen * n_places)
        known.setdefault(rule.kind, {})[seen] = (rule, everywhere)
    for products in all_products(facts):
        for body, some in bodies(products, max_offset):
            for kind, rules in known.items():
                n_places = facts.targets[kind].shape[1]
                for rival, used, place in heads(body, products, some, kind, max_offset):
                    at = products.rows[used] * n_places + place
                    seen, everywhere = _keys(at, products.values[used], n_seen * n_places)
                    rule, own = rules.get(seen, (rival, everywhere))
                    if own != everywhere:
                        yield rule, rival


def _keys(at: NDArray[np.int64], values: NDArray[np.float64], end: int) -> tuple[bytes, bytes]:
    """What a rule writes before ``end``, which was seen, and in all, up to a factor, as bytes."""
    column: NDArray = np.bincount(at, weights=values)
    at = np.flatnonzero(column)
    seen = int(np.searchsorted(at, end))
    if not seen:
        return b"", b""
    shares = (column[at] / column[at[0]]).astype(np.float32)
    return at[:seen].tobytes() + shares[:seen].tobytes(), at.tobytes() + shares.tobytes()
