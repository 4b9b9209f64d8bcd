"""Assembly: the heads of all terms as few heads, and those as a layer.

A head whose attn has several entries is the sum of heads with one entry each, and the entries
(query, match) of all heads together are the columns of the coefficients: for each the sum of the
value matrices that go with it.  Columns whose value matrices are equal, up to a sign and a power of
two, are one head; no coefficient changes, whatever tokens come.  Weights are added exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from polyattn.model import LinearAttention
from polyattn.programs.language.exact import Exact, exact
from polyattn.programs.lowering import Head

# A value matrix as a sorted tuple of (read, write, weight).
Matrix: TypeAlias = tuple[tuple[int, int, Exact], ...]


def assemble(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same sum, one for each value matrix that occurs."""
    numbers: dict[Matrix, int] = {}
    columns: dict[tuple[int, int], dict[int, Exact]] = defaultdict(lambda: defaultdict(int))
    for head in heads:
        matrix = tuple(sorted((*place, weight) for place, weight in head.value.items()))
        number = numbers.setdefault(matrix, len(numbers))
        for column, weight in head.attn.items():
            columns[column][number] += weight
    matrices = list(numbers)
    alike: dict[tuple[tuple[int, Exact], ...], list[tuple[int, int]]] = defaultdict(list)
    for column, parts in columns.items():
        alike[tuple(sorted(parts.items()))].append(column)
    grouped: dict[Matrix, dict[tuple[int, int], Exact]] = defaultdict(dict)
    for sum_of, places in alike.items():
        total = _sum([(matrices[number], weight) for number, weight in sum_of])
        if total:
            scale = _power_of_two(total[0][2])
            unit = tuple(
                (read, write, weight if scale == 1 else exact(Fraction(weight) / scale))
                for read, write, weight in total
            )
            grouped[unit] |= dict.fromkeys(places, scale)
    return [
        Head({(read, write): weight for read, write, weight in unit}, attn)
        for unit, attn in grouped.items()
    ]


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


def _sum(parts: Iterable[tuple[Matrix, Exact]]) -> Matrix:
    """The sum of weighted value matrices, without zeros."""
    total: dict[tuple[int, int], Exact] = defaultdict(int)
    for matrix, factor in parts:
        for read, write, weight in matrix:
            total[read, write] += factor * weight
    return tuple(sorted((*place, weight) for place, weight in total.items() if weight))
