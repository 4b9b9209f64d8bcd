"""Matrices over features that no permutation and no change of sign of coordinates changes.

Entries without odd moments: features whose product changes sign with some coordinate do not
correlate.  What is left are classes of features (docs/derivations/independent_entries.md):

    {a, b, c}   G[a,b] x[c],  G[a,c] x[b],  G[b,c] x[a]                     one for each triple
    {a}         G[a,a] x[a],  G[b,b] x[a] and G[a,b] x[b] for all b != a    one for each a

All classes of a kind are one matrix, and permutations of the b split that of {a} further: into
one 3 x 3 matrix (sums over b) and one 2 x 2 matrix, d - 2 times (differences of b).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import comb, perm
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feature = tuple[int, int, int]

# Two features j, k, l for every value that such a matrix can have.
SINGLE = {
    "squares of a": ((0, 0, 0), (0, 0, 0)),
    "a with square of b": ((0, 0, 0), (1, 1, 0)),
    "a with product": ((0, 0, 0), (0, 1, 1)),
    "square of b": ((1, 1, 0), (1, 1, 0)),
    "squares of b and c": ((1, 1, 0), (2, 2, 0)),
    "square and product of b": ((1, 1, 0), (0, 1, 1)),
    "square of b, product of c": ((1, 1, 0), (0, 2, 2)),
    "product of b": ((0, 1, 1), (0, 1, 1)),
    "products of b and c": ((0, 1, 1), (0, 2, 2)),
}
TRIPLE = {"same of a triple": ((0, 1, 2), (0, 1, 2)), "two of a triple": ((0, 1, 2), (0, 2, 1))}
PAIRS: dict[str, tuple[Feature, Feature]] = SINGLE | TRIPLE

# Coordinates that the features above use, and the most that two features of a class use.
NAMED = MOST_USED = 3


@dataclass(frozen=True)
class Block:
    """One matrix, rational where its entries are, and how often it occurs.

    rows : list of rows; the square root of ``coupling`` is left out of row and column 0
    """

    name: str
    rows: list[list[Any]]
    multiplicity: int
    coupling: int = 1

    def matrix(self, rows: list[list[Any]] | None = None) -> NDArray[np.float64]:
        """The symmetric matrix in float64, or that of other rows of the same shape."""
        found = np.array([[float(each) for each in row] for row in rows or self.rows])
        found[0, 1:] *= np.sqrt(self.coupling)
        found[1:, 0] *= np.sqrt(self.coupling)
        return found


def blocks_of(values: Mapping[str, Any], n_dims: int) -> list[Block]:
    """The blocks of a matrix from its values, one for each of ``PAIRS`` that the width has."""
    d, v = n_dims, values
    one = [[v["squares of a"]]]
    if d == 1:
        return [Block("sums", one, 1)]
    square = v["square of b"] + (d - 2) * v.get("squares of b and c", 0)
    mixed = v["square and product of b"] + (d - 2) * v.get("square of b, product of c", 0)
    products = v["product of b"] + (d - 2) * v.get("products of b and c", 0)
    across, along = v["a with square of b"], v["a with product"]
    sums = [[*one[0], across, along], [across, square, mixed], [along, mixed, products]]
    blocks = [Block("sums", sums, d, coupling=d - 1)]
    if d == 2:
        return blocks
    square = v["square of b"] - v["squares of b and c"]
    mixed = v["square and product of b"] - v["square of b, product of c"]
    products = v["product of b"] - v["products of b and c"]
    same, other = v["same of a triple"], v["two of a triple"]
    return [
        *blocks,
        Block("differences", [[square, mixed], [mixed, products]], d * (d - 2)),
        Block("triple, sum", [[same + 2 * other]], comb(d, 3)),
        Block("triple, differences", [[same - other]], 2 * comb(d, 3)),
    ]


def values_of(blocks: Mapping[str, list[list[Any]]], n_dims: int) -> dict[str, Any]:
    """The values of a matrix from the rows of its blocks: the inverse of ``blocks_of``."""
    sums, others = blocks["sums"], n_dims - 1
    values = {"squares of a": sums[0][0]}
    if n_dims == 1:
        return values
    values |= {"a with square of b": sums[0][1], "a with product": sums[0][2]}
    apart = blocks.get("differences", [[0, 0], [0, 0]])
    for (row, column), same, different in (
        ((0, 0), "square of b", "squares of b and c"),
        ((0, 1), "square and product of b", "square of b, product of c"),
        ((1, 1), "product of b", "products of b and c"),
    ):
        values[different] = (sums[row + 1][column + 1] - apart[row][column]) / others
        values[same] = values[different] + apart[row][column]
    if n_dims > 2:
        whole, parts = blocks["triple, sum"][0][0], blocks["triple, differences"][0][0]
        values["two of a triple"] = (whole - parts) / 3
        values["same of a triple"] = values["two of a triple"] + parts
    return values


def pairs_within_classes(n_dims: int) -> list[tuple[str, Feature, Feature, Fraction]]:
    """Pairs of features of one class: the name of the value, the pair, how many are like it.

    Like it are pairs that a permutation of coordinates other than the first three makes of it.
    """
    shown = min(n_dims, NAMED + MOST_USED)
    found = []
    for members in _classes(shown):
        for first, second in product(members, repeat=2):
            used = {each for each in (*first, *second) if each >= NAMED}
            ways = [perm(max(d - NAMED, 0), len(used)) for d in (n_dims, shown)]
            found.append((_NAMES[_pattern(first, second)], first, second, Fraction(*ways)))
    return found


def eigenvalues(block: Block) -> NDArray[np.float64]:
    """All eigenvalues of a rational block, ascending, the smallest to full relative accuracy.

    Those that are zero are exactly zero.
    """
    found = np.asarray(np.linalg.eigvalsh(block.matrix()), dtype=np.float64)
    n_zero = len(found) - _rank(similar(block))
    found[:n_zero] = 0.0
    if n_zero == 0 and len(found) > 1:
        found[0] = 1.0 / np.linalg.eigvalsh(block.matrix(inverse(block)))[-1]
    return found


def inverse(block: Block) -> list[list[Fraction]]:
    """The rows of the inverse of a definite block, without the roots that rows leave out."""
    size = len(block.rows)
    identity = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    found = solved(similar(block), identity)
    return [[row[0] / block.coupling, *row[1:]] if i else row for i, row in enumerate(found)]


def solved(rows: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    """rows^-1 right by elimination; the pivots of a definite matrix are positive."""
    joined = [[*row, *more] for row, more in zip(rows, right, strict=True)]
    for at in range(len(rows)):
        pivot = joined[at] = [each / joined[at][at] for each in joined[at]]
        for other, row in enumerate(joined):
            if other != at:
                joined[other] = [a - row[at] * b for a, b in zip(row, pivot, strict=True)]
    return [row[len(rows) :] for row in joined]


def similar(block: Block) -> list[list[Fraction]]:
    """A rational matrix that is similar to the block: the roots of row and column 0 in column 0."""
    return [
        [each * block.coupling if i > 0 and j == 0 else each for j, each in enumerate(row)]
        for i, row in enumerate(block.rows)
    ]


def _rank(rows: list[list[Fraction]]) -> int:
    """The rank of a semidefinite matrix, or one similar to it by a diagonal: its largest minor."""
    for size in range(len(rows), 0, -1):
        for chosen in combinations(range(len(rows)), size):
            if _determinant([[rows[i][j] for j in chosen] for i in chosen]) != 0:
                return size
    return 0


def _determinant(rows: list[list[Fraction]]) -> Fraction:
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:j] + row[j + 1 :] for row in rows[1:]] for j in range(len(rows)))
    terms = ((-1) ** j * rows[0][j] * _determinant(minor) for j, minor in enumerate(minors))
    return sum(terms, Fraction(0))


def _classes(n_dims: int) -> list[list[Feature]]:
    """The classes of features, each j <= k."""
    singles: list[list[Feature]] = []
    for a in range(n_dims):
        others = [b for b in range(n_dims) if b != a]
        squares: list[Feature] = [(b, b, a) for b in others]
        singles.append([(a, a, a), *squares, *((min(a, b), max(a, b), b) for b in others)])
    triples = combinations(range(n_dims), 3)
    return singles + [[(a, b, c), (a, c, b), (b, c, a)] for a, b, c in triples]


def _pattern(first: Feature, second: Feature) -> tuple[tuple[int, ...], ...]:
    """What no permutation of coordinates, and no exchange of the two features, changes."""
    counts = [
        (first[:2].count(c), first[2] == c, second[:2].count(c), second[2] == c)
        for c in {*first, *second}
    ]
    return min(tuple(sorted(counts)), tuple(sorted((c, d, a, b) for a, b, c, d in counts)))


_NAMES = {_pattern(*pair): name for name, pair in PAIRS.items()}
