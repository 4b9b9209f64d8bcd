"""What a certificate says of features that never occur, or are multiples of others, recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from polyattn.certify.check.features import Table

if TYPE_CHECKING:
    from polyattn.certify.structure import Structure

# Random sums of rows: features that are no multiples share them once in 10^13 times.
RANDOM_SUMS = 3


def about_relations(
    structure: Structure, table: Table, prime: int, rng: np.random.Generator
) -> Iterator[str]:
    """What is said to be always zero, or a multiple of another, and is not."""
    occurring, asked = table.occurring(prime)
    n_zero = int(np.count_nonzero(~occurring))
    if n_zero < structure.n_zero:
        yield f"{n_zero} features are always zero, not {structure.n_zero}."
    if any(each >= len(asked) or asked[each] for each in structure.queries):
        yield f"some of the entries {list(structure.queries)} of the query are not always zero."
    if any(map(table.column_occurs, structure.columns)):
        yield (
            f"some of the columns {list(structure.columns)} of the tokens attended to are not "
            "always zero."
        )
    n_multiples = count_multiples(table, prime, rng)
    if n_multiples < structure.n_multiples:
        yield (
            f"{n_multiples} features are always multiples of others, not {structure.n_multiples}."
        )


def count_multiples(table: Table, prime: int, rng: np.random.Generator) -> int:
    """How many features are multiples of earlier ones in every row, modulo a prime.

    Random sums over the rows are then multiples of each other, and nearly never otherwise.
    """
    total = table.random_sums(RANDOM_SUMS, prime, rng).T
    known, n_multiples = set(), 0
    for entries in total.astype(np.int64).tolist():
        first = next((entry for entry in entries if entry), None)
        if first is not None:
            inverse = pow(first, -1, prime)
            ratios = tuple(entry * inverse % prime for entry in entries)
            n_multiples += ratios in known
            known.add(ratios)
    return n_multiples
