"""Layers far from a given one that compute the same on given inputs.

Other signs, where every query sees two kinds of tokens a and b, equally often: with z = x A (a - b)
a head computes m V + 1/2 tanh(z / 2) (a - b) V, m = (a + b) / 2.  So these are one function:

    (A, V), (0, W)          and   (-A, -V), (0, W + 2 V)
    (A, V), (-A, W)         and   (A, V - W), (0, 2 W)
    heads F with sum V = 0  and   the same heads with (-A, -V)

Other pairings, where finitely many queries q let g heads of one value pair otherwise: heads A'_h
compute the same if { q A'_1, ..., q A'_g } = { q A_1, ..., q A_g } as multisets for every q that
occurs.  Each A'_h takes one of the g rows q A_k at each of r queries that span all others, which
determines it: g^r heads to try.  Those that take one of the g rows at every other query, too, are
*consistent*; g of them that use each row as often as it occurs are another layer.  There is none
if no homogeneous polynomial of degree g vanishes on all queries.

Proofs: docs/derivations/softmax_identifiability.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

# Heads that are tried one by one, monomials whose rank is computed, and sets that are tried.
MOST_TRIED, MOST_MONOMIALS, MOST_SETS = 1 << 17, 2000, 2000

# Queries that are read, and different ones that are kept.
MOST_READ, MOST_DIFFERENT = 1 << 16, 1 << 12

# Numbers that are in memory together.
BLOCK_NUMBERS = 1 << 21

# Relative singular values below this are rounding.
SPANNED = 1e-9

# Rows are equal up to this part of the largest difference between heads, at most.
LOOSEST = 0.2

# Sets of heads are looked through up to this size; beyond so many heads, pairs alone.
MOST_HEADS, LARGEST_SET = 12, 2


@dataclass(frozen=True)
class Alternative:
    """As many other heads, attn (H, d, d) and value (H, d, e), which may compute the same.

    heads : those that change;  name : of the finding, ``opposite_heads`` or ``two_valued``
    """

    attn: Matrix
    value: Matrix
    heads: tuple[int, ...]
    name: str


def mirrored(attn: Matrix, value: Matrix, tolerance: float) -> Iterator[Alternative]:
    """Layers of as many heads that are the same where all queries see two kinds of tokens alike.

    What is called zero or opposite is so up to ``tolerance`` of the largest matrix: whether an
    alternative is one, the inputs decide.
    """
    n_heads, sizes = len(attn), np.linalg.norm(attn, axis=(1, 2))
    limit = tolerance * sizes.max()
    acting = set(np.flatnonzero(sizes > limit).tolist())
    zero = [head for head in range(n_heads) if head not in acting]
    for head in sorted(acting) if zero else ():
        # The head of no attention takes up the difference.
        other = _flipped(attn, value, (head,))
        other.value[zero[0]] += 2 * value[head]
        yield replace(other, heads=(head, zero[0]))
    for i, j in combinations(sorted(acting), 2):
        if np.linalg.norm(attn[i] + attn[j]) <= limit:
            other_attn, other_value = attn.copy(), value.copy()
            other_attn[j] = 0.0
            other_value[i], other_value[j] = value[i] - value[j], 2 * value[j]
            yield Alternative(other_attn, other_value, (i, j), "opposite_heads")
    # Sets of heads whose values add up to nothing.
    stacked = value.reshape(n_heads, -1)
    gram = stacked @ stacked.T
    largest = n_heads if n_heads <= MOST_HEADS else LARGEST_SET
    limit = tolerance**2 * np.diag(gram).max()
    for size in range(1, largest + 1):
        for chosen in combinations(range(n_heads), size):
            if gram[np.ix_(chosen, chosen)].sum() <= limit and acting.intersection(chosen):
                yield _flipped(attn, value, chosen)


def _flipped(attn: Matrix, value: Matrix, heads: tuple[int, ...]) -> Alternative:
    signs = np.where(np.isin(np.arange(len(attn)), heads), -1.0, 1.0)[:, None, None]
    return Alternative(signs * attn, signs * value, heads, "opposite_heads")


def _equal_value_groups(value: Matrix, tolerance: float) -> list[list[int]]:
    """Sets of two or more heads whose values are equal up to ``tolerance`` of the largest."""
    sizes = np.linalg.norm(value, axis=(1, 2))
    groups: list[list[int]] = []
    for head, V in enumerate(value):
        for group in groups:
            first = group[0]
            if np.linalg.norm(value[first] - V) <= tolerance * max(sizes[first], sizes[head]):
                group.append(head)
                break
        else:
            groups.append([head])
    return [group for group in groups if len(group) > 1]


@dataclass(frozen=True)
class Unexamined:
    """Heads of equal value that can be paired in too many ways to try."""

    heads: tuple[int, ...]


def rearranged(
    attn: Matrix, value: Matrix, queries: Matrix, tolerance: float
) -> Iterator[Alternative | Unexamined]:
    """Layers that have the same rows q A_h at all queries (rows, d), paired otherwise.

    Up to ``tolerance``, relative to the heads: whether an alternative is one, the inputs decide.
    Guarantee: heads of equal value for which nothing is yielded have no other pairing.
    Cost: nothing where no two heads have equal values; otherwise O(MOST_TRIED r) and less.
    """
    groups = _equal_value_groups(value, tolerance)
    if not groups or not np.any(queries):
        return
    # Queries up to multiples, none of them zero.
    some = queries[:MOST_READ]
    some = some[np.any(some, axis=1)]
    pivots = np.take_along_axis(some, np.argmax(np.abs(some), axis=1)[:, None], axis=1)
    different = np.unique(some / pivots + 0.0, axis=0)
    different = different[:: max(1, len(different) // MOST_DIFFERENT)]
    triangle, order = qr(different.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    chosen = order[: int(np.count_nonzero(diagonal > SPANNED * diagonal[0]))]
    spanning = Spanning(different, chosen, different @ np.linalg.pinv(different[chosen]))
    for group in groups:
        if len(group) ** len(spanning.chosen) > MOST_TRIED:
            if spanning.has_polynomial(len(group)):
                yield Unexamined(tuple(group))
            continue
        for other in _other_heads(attn[group], spanning, tolerance):
            if other is None:
                yield Unexamined(tuple(group))
                break
            replaced = attn.copy()
            replaced[group] = other
            yield Alternative(replaced, value.copy(), tuple(group), "two_valued")


@dataclass(frozen=True)
class Spanning:
    """Different queries (s, d), which of them (r,) span all, and all in terms of these (s, r)."""

    queries: Matrix
    chosen: Labels
    coordinates: Matrix

    def has_polynomial(self, degree: int) -> bool:
        """Whether a homogeneous polynomial of this degree may vanish on all queries."""
        n_queries, rank = self.coordinates.shape
        n_monomials = comb(rank + degree - 1, degree)
        if n_monomials > min(n_queries, MOST_MONOMIALS):
            return True
        chosen = combinations_with_replacement(range(rank), degree)
        columns = [np.prod(self.coordinates[:, list(factors)], axis=1) for factors in chosen]
        monomials = np.stack(columns, axis=1)
        singular = np.linalg.svd(monomials / np.linalg.norm(monomials, axis=0), compute_uv=False)
        return bool(singular[-1] <= SPANNED * singular[0])


def _other_heads(attn: Matrix, spanning: Spanning, tolerance: float) -> Iterator[Matrix | None]:
    """Sets of heads (g, d, d) that are not ``attn`` and have the same rows at all queries.

    None at the end if there were too many to try.
    """
    rows = np.einsum("sd,gdk->sgk", spanning.queries, attn)
    # One number for each row: almost every direction tells all rows apart.
    direction = np.random.default_rng(0).standard_normal(attn.shape[2])
    values = rows @ direction
    apart = float(np.max(values.max(axis=1) - values.min(axis=1)))
    if apart == 0.0:
        return
    allowed = min(max(tolerance * float(np.abs(values).max()), 1e-3 * apart), LOOSEST * apart)
    # Which row a head takes at the spanning queries (K, r): all ways, then those that fit others.
    n_heads, rank = len(attn), len(spanning.chosen)
    choices = np.indices((n_heads,) * rank, dtype=np.int64).reshape(rank, -1).T
    taken, first, step = values[spanning.chosen, choices], 0, 1
    while first < len(values):
        part = slice(first, first + step)
        predicted = (taken @ spanning.coordinates[part].T).T
        kept = np.all(_labels(predicted, values[part], allowed) >= 0, axis=0)
        choices, taken = choices[kept], taken[kept]
        first, step = first + step, max(1, BLOCK_NUMBERS // (len(choices) * n_heads + 1))
    predicted = (taken[:MOST_DIFFERENT] @ spanning.coordinates.T).T
    labels = _labels(predicted, values, allowed).T
    basis = np.linalg.pinv(spanning.queries[spanning.chosen])
    for chosen in _covers(labels, _labels(values, values, allowed).T):
        heads = [basis @ rows[spanning.chosen, choices[head]] for head in chosen or ()]
        yield np.stack(heads) if heads else None


def _labels(numbers: Matrix, values: Matrix, allowed: float) -> Labels:
    """For each number (s, K) the first of the values (s, g) that it equals; -1 if none."""
    found = np.full(numbers.shape, -1, dtype=np.int64)
    for label in reversed(range(values.shape[1])):
        found[np.abs(numbers - values[:, label, None]) <= allowed] = label
    return found


def _covers(labels: Labels, own: Labels) -> Iterator[list[int] | None]:
    """Sets of g consistent heads (rows of ``labels``) that use every row as often as ``own`` do.

    The first of each is none of ``own`` (g, s).  None at the end if there were too many to try.
    """
    n_heads, n_queries = own.shape
    positions = np.arange(n_queries)
    counts = np.stack([np.count_nonzero(own == label, axis=0) for label in range(n_heads)], axis=1)
    known = {one.tobytes() for one in own}
    new = [head for head, one in enumerate(labels) if one.tobytes() not in known]
    open_sets = [([head], counts) for head in reversed(new)]
    for _ in range(MOST_SETS):
        if not open_sets:
            return
        taken, before = open_sets.pop()
        left = before.copy()
        left[positions, labels[taken[-1]]] -= 1
        if left.min() < 0:
            continue
        if len(taken) == n_heads:
            yield taken
            continue
        fitting = np.flatnonzero(np.all(left[positions, labels] > 0, axis=1))
        open_sets += [([*taken, head], left) for head in fitting.tolist()]
    yield None
