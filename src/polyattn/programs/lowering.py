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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TypeAlias

import numpy as np

from polyattn.model import LinearAttention
from polyattn.programs.language.attributes import Bindings, Pattern
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.terms import Exact, Term, exact

# Coordinates (from, to) and weight: the nonzero entries of a matrix, exactly.
Entries: TypeAlias = Mapping[tuple[int, int], Exact]


@dataclass(frozen=True)
class Head:
    """One head by its nonzero entries: value (read, write) and attn (query, match)."""

    value: Entries
    attn: Entries


def lower(term: Term, schema: Schema) -> Iterator[Head]:
    """The heads of a term, one for each value of the variables that both sides share."""
    *_, shared = _sides(term)
    for known in term.choices(shared, {}):
        value = _entries(term, term.read, term.write, known, schema, exact(term.weight))
        attn = _entries(term, term.query, term.match, known, schema, 1)
        if value and attn:
            yield Head(value, attn)


def n_entries(term: Term) -> int:
    """How many entries the heads of a term have at most: what lowering it costs."""
    written, asked, shared = _sides(term)
    sizes = {name: len(sort.parts) for name, sort in term.variables.items()}
    of_head = sum(prod(sizes[name] for name in own) for own in (written, asked))
    return of_head * prod(sizes[name] for name in shared)


def _sides(term: Term) -> tuple[set[str], set[str], set[str]]:
    """The variables u, v and s; s are those on both sides, or tied by a condition to the other."""
    written = {*term.write.variables, *term.read.variables}
    asked = {*term.match.variables, *term.query.variables}
    shared = written & asked
    for condition in term.where:
        names = condition.variables
        if names & (written - shared) and names & (asked - shared):
            shared |= names & asked
    return written - shared, asked - shared, shared


def _entries(
    term: Term, start: Pattern, end: Pattern, known: Bindings, schema: Schema, weight: Exact
) -> dict[tuple[int, int], Exact]:
    """The entries (start, end) for the known variables and all others of these two patterns."""
    names = (start.variables.keys() | end.variables.keys()) - known.keys()
    coordinates = schema.coordinates
    found: dict[tuple[int, int], Exact] = {}
    for bindings in term.choices(names, known):
        at, to = start.fill(bindings), end.fill(bindings)
        if at is not None and to is not None:
            place = coordinates[start.attribute.name, at], coordinates[end.attribute.name, to]
            found[place] = found.get(place, 0) + weight
    return found


# Assembly.  A head whose attn has several entries is the sum of heads with one entry each, and the
# entries (query, match) of all heads together are the columns of the coefficients: for each the
# sum of the value matrices that go with it.  Columns whose value matrices are equal, up to a sign
# and a power of two, are one head; no coefficient changes, whatever tokens come.  Weights are
# added exactly.

# A value matrix as its sorted entries.
Matrix: TypeAlias = tuple[tuple[tuple[int, int], Exact], ...]


def assemble(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same sum, one for each value matrix that occurs."""
    numbers: dict[Matrix, int] = {}
    columns: dict[tuple[int, int], dict[int, Exact]] = defaultdict(lambda: defaultdict(int))
    for head in heads:
        number = numbers.setdefault(tuple(sorted(head.value.items())), len(numbers))
        for column, weight in head.attn.items():
            columns[column][number] += weight
    matrices = list(numbers)
    alike: dict[tuple[tuple[int, Exact], ...], list[tuple[int, int]]] = defaultdict(list)
    for column, parts in columns.items():
        alike[tuple(sorted(parts.items()))].append(column)
    grouped: dict[Matrix, dict[tuple[int, int], Exact]] = defaultdict(dict)
    for sum_of, places in alike.items():
        added: dict[tuple[int, int], Exact] = defaultdict(int)
        for number, factor in sum_of:
            for place, weight in matrices[number]:
                added[place] += factor * weight
        total = sorted((place, weight) for place, weight in added.items() if weight)
        if total:
            scale = _power_of_two(total[0][1])
            unit = tuple(
                (place, weight if scale == 1 else exact(Fraction(weight) / scale))
                for place, weight in total
            )
            grouped[unit] |= dict.fromkeys(places, scale)
    return [Head(dict(unit), attn) for unit, attn in grouped.items()]


def to_layer(heads: list[Head], n_dims: int) -> LinearAttention:
    """The layer of these heads, in float64; it predicts the token after the last."""
    attn = np.zeros((max(1, len(heads)), n_dims, n_dims))
    value = np.zeros_like(attn)
    for at, head in enumerate(heads):
        for place, weight in head.attn.items():
            attn[at][place] = weight
        for place, weight in head.value.items():
            value[at][place] = weight
    return LinearAttention(attn, value, mode="last")


def _power_of_two(weight: Exact) -> Exact:
    """The sign and size of a number, the largest power of two within it."""
    above, below = abs(weight.numerator), weight.denominator
    exponent = above.bit_length() - below.bit_length()
    size = Fraction(2) ** exponent
    size = size / 2 if size * below > above else size
    return exact(size if weight > 0 else -size)
