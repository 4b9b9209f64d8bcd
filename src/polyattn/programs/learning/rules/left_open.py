"""What rules say beyond the traces: claims that no trace has tested.

A rule with variables is about all their values.  It was tested where it was used: a variable that
always had the same value, two variables that never were equal, a name that never was written, a
step on a circle so small that another step leads to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.compile import Compiled
from polyattn.programs.language.sorts import SYMBOLS
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.rules.candidates import admitted, candidates, column_of
from polyattn.programs.learning.rules.facts import Facts, SchemaLayout, facts_of
from polyattn.programs.learning.rules.rule import Bound, Rule, term_of
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
        if name not in facts.circles:
            continue
        # Steps on a circle that no trace could tell from steps the other way round.
        largest = int(facts.circles[name].max())
        bound = {
            part.offset for part in rule.parts if isinstance(part, Bound) and part.sort == name
        }
        for step in sorted(bound.union(*(block.offsets for block in links))):
            if largest <= abs(step) + max_offset:
                other = f"{step} and {step - largest} steps are the same"
                found.append(f"on a circle of {largest}, {other}")
    return list(dict.fromkeys(found))


def _unwritten(rule: Rule, name: str, number: int, facts: Facts) -> Iterator[str]:
    """Names that the variable could write and that no trace, by any rule, has written."""
    layout = facts.layout
    shape = [layout.radix(sort) for sort in layout.kinds[rule.kind].sorts]
    for at, part in enumerate(rule.parts):
        if isinstance(part, Bound) and (part.sort, part.block) == (name, number):
            written = facts.targets[rule.kind].reshape(-1, *shape)
            for each in layout.slots(rule.kind)[at].named:
                if not np.take(written, layout.number(name, each), axis=at + 1).any():
                    yield f"{name} {each} was never written"


# Tokens that traces are continued by, at least; histories that are written where none can be
# continued; and how many rivals are named.
FEWEST_CONTINUED, N_PROBES, MOST_RIVALS = 512, 100, 3


def rivals(
    layout: SchemaLayout,
    traces: Sequence[Trace],
    rules: Sequence[tuple[Rule, float]],
    max_offset: int,
) -> tuple[str, ...]:
    """Pairs of rules that fit the traces alike and would continue them differently, in words.

    Of rules with the same effect on all traces the plainest is chosen, which may be the wrong one.
    Traces that were cut off are continued by the rules themselves; where none was, the rules write
    histories for random machines and inputs.  As long as they are right, these are histories like
    any other, and a rival that differs there is one that more traces would have to rule out; if
    they are wrong, the right rule differs from them where they first err.
    """
    n_rows, schema = sum(trace.n_rows for trace in traces), layout.schemas[0]
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
    cut = [(trace, own) for trace, own in zip(traces, terms, strict=True) if trace.cut]
    found = []
    for trace, own in cut:
        program = Compiled(trace.schema, tuple(own))
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

    def keys(kind: int, at: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[bytes, bytes]:
        """What a rule writes to rows that were seen, and to all, up to a factor."""
        at, values = column_of(at, values)
        seen = int(np.searchsorted(at, n_seen * facts.targets[kind].shape[1]))
        if not seen:
            return b"", b""
        shares = (values / values[0]).astype(np.float32)
        return at[:seen].tobytes() + shares[:seen].tobytes(), at.tobytes() + shares.tobytes()

    known: dict[int, dict[bytes, tuple[Rule, bytes]]] = {}
    for rule in chosen:
        products, place = admitted(rule, facts)
        at = products.rows * facts.targets[rule.kind].shape[1] + place
        seen, everywhere = keys(rule.kind, at, products.values)
        known.setdefault(rule.kind, {})[seen] = (rule, everywhere)
    for rival, at, values in candidates(facts, known, max_offset):
        seen, everywhere = keys(rival.kind, at, values)
        rule, own = known[rival.kind].get(seen, (rival, everywhere))
        if own != everywhere:
            yield rule, rival
