"""Lowering: from a term to heads, with the proof that they compute it.

Wanted.  For tokens z_1, ..., z_n with last token x = z_n, the term

    write(u, s) += w * sum_i z_i[read(u, s)] * z_i[match(v, s)] * x[query(v, s)]

summed over all values of its variables: u those of write and read alone, v those of match and
query alone, s those that occur on both sides.

Definition.  For each value of s one head with, for all u and v,

    value[read(u, s), write(u, s)] = w,        attn[query(v, s), match(v, s)] = 1.

Evaluation.  A head computes x A G V = sum_i (x A z_i) (z_i V).  Here x A z_i is
sum_v x[query(v, s)] z_i[match(v, s)], and coordinate write(u, s) of z_i V is w z_i[read(u, s)];
their product, summed over i and s, is the term.  A condition between a variable of u and one of
v would break the product apart, so that of v is counted among s.  Done.

A lookup has u for what is found and v for what is asked, and no s: one head.  So has a register,
whose match is a flag.  A conjunction writes a pair of what is read and what is matched: the
latter is s, and there is one head for each of its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from polyattn.programs.language.exact import Exact, exact
from polyattn.programs.language.patterns import Bindings, Pattern, Variable
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import Sort
from polyattn.programs.language.terms import Beyond, Condition, Term, Unequal

# Coordinates (from, to) and weight: the nonzero entries of a matrix, exactly.
Entries: TypeAlias = Mapping[tuple[int, int], Exact]


@dataclass(frozen=True)
class Head:
    """One head by its nonzero entries: value (read, write) and attn (query, match)."""

    value: Entries
    attn: Entries


def lower(term: Term, schema: Schema) -> Iterator[Head]:
    """The heads of a term, one for each value of the variables that both sides share."""
    shared = shared_variables(term)
    for known in _choices({name: term.variables[name] for name in shared}, term.where, {}):
        value = _entries(term, term.read, term.write, known, schema, exact(term.weight))
        attn = _entries(term, term.query, term.match, known, schema, 1)
        if value and attn:
            yield Head(value, attn)


def n_entries(term: Term) -> int:
    """How many entries the heads of a term have at most: what lowering it costs."""
    shared = shared_variables(term)
    written = {*term.write.variables, *term.read.variables} - shared
    asked = {*term.match.variables, *term.query.variables} - shared
    of_head = sum(prod(len(term.variables[name].parts) for name in own) for own in (written, asked))
    return prod(len(term.variables[name].parts) for name in shared) * of_head


def shared_variables(term: Term) -> set[str]:
    """The variables s: those on both sides, and those that a condition ties to the other side."""
    written = {*term.write.variables, *term.read.variables}
    asked = {*term.match.variables, *term.query.variables}
    shared = written & asked
    for condition in term.where:
        names = condition_variables(condition)
        if names & (written - shared) and names & (asked - shared):
            shared |= names & asked
    return shared


def _entries(
    term: Term, start: Pattern, end: Pattern, known: Bindings, schema: Schema, weight: Exact
) -> dict[tuple[int, int], Exact]:
    """The entries (start, end) for the known variables and all others of these two patterns."""
    names = (start.variables.keys() | end.variables.keys()) - known.keys()
    found: dict[tuple[int, int], Exact] = {}
    for bindings in _choices({name: term.variables[name] for name in names}, term.where, known):
        at, to = start.fill(bindings), end.fill(bindings)
        if at is not None and to is not None:
            place = (
                schema.coordinates[start.attribute.name, at],
                schema.coordinates[end.attribute.name, to],
            )
            found[place] = found.get(place, 0) + weight
    return found


def _choices(
    sorts: dict[str, Sort], conditions: tuple[Condition, ...], known: Bindings
) -> Iterator[Bindings]:
    """All values of some variables, with those known, that meet the conditions on them."""
    names = known.keys() | sorts.keys()
    fitting = [each for each in conditions if condition_variables(each) <= names]
    for parts in product(*(sort.parts for sort in sorts.values())):
        bindings = known | dict(zip(sorts, parts, strict=True))
        if all(condition.holds(bindings) for condition in fitting):
            yield bindings


def condition_variables(condition: Unequal | Beyond) -> set[str]:
    """The names of the variables that a condition speaks of."""
    sides = (condition.left, condition.right)
    return {side.name for side in sides if isinstance(side, Variable)}
