"""Assembly: the heads of all terms as few heads, and those as a layer.

A head whose attn has several entries is the sum of heads with one entry each, and the entries
(query, match) of all heads together are the columns of the coefficients: for each the sum of the
value matrices that go with it.  Columns whose value matrices are equal, up to a factor, are one
head; no coefficient changes, whatever tokens come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from polyattn.model import LinearAttention
from polyattn.programs.lowering import Head

# A value matrix as a sorted tuple of (read, write, weight).
Matrix: TypeAlias = tuple[tuple[int, int, float], ...]


def assemble(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same sum, one for each value matrix that occurs."""
    columns: dict[tuple[int, int], dict[Matrix, float]] = defaultdict(lambda: defaultdict(float))
    for head in heads:
        matrix = tuple(sorted((*place, weight) for place, weight in head.value.items()))
        for column, weight in head.attn.items():
            columns[column][matrix] += weight
    summed: dict[tuple[tuple[Matrix, float], ...], Matrix] = {}
    grouped: dict[Matrix, dict[tuple[int, int], float]] = defaultdict(dict)
    for column, parts in columns.items():
        signature = tuple(sorted(parts.items()))
        if signature not in summed:
            summed[signature] = _sum(signature)
        if summed[signature]:
            scale = summed[signature][0][2]
            unit = tuple((*place, weight / scale) for *place, weight in summed[signature])
            grouped[unit][column] = scale  # type: ignore[index]
    return [
        Head({(read, write): weight for read, write, weight in unit}, attn)
        for unit, attn in grouped.items()
    ]


def to_layer(heads: list[Head], n_dims: int) -> LinearAttention:
    """The layer of these heads; it predicts the token after the last."""
    attn = np.zeros((max(1, len(heads)), n_dims, n_dims))
    value = np.zeros_like(attn)
    for at, head in enumerate(heads):
        for place, weight in head.attn.items():
            attn[at][place] = weight
        for place, weight in head.value.items():
            value[at][place] = weight
    return LinearAttention(attn, value, mode="last")


def _sum(parts: tuple[tuple[Matrix, float], ...]) -> Matrix:
    """The sum of weighted value matrices, without zeros."""
    total: dict[tuple[int, int], float] = defaultdict(float)
    for matrix, factor in parts:
        for read, write, weight in matrix:
            total[read, write] += factor * weight
    return tuple(sorted((*place, weight) for place, weight in total.items() if weight))
