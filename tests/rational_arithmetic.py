"""Exact answers by slow means: features as fractions, straight from the definition, and ranks."""

from fractions import Fraction
from math import lcm

import numpy as np

from polyattn.reference.features import pairs


def rational_features(sequence: np.ndarray, mode: str, bias: bool = False) -> list[list[Fraction]]:
    """The rows psi of all predicted positions of one sequence."""
    tokens = [[Fraction(entry.item()) for entry in token] for token in np.asarray(sequence)]
    if bias:
        tokens = [[*token, Fraction(1)] for token in tokens]
    width, rows = len(tokens[0]), []
    shown = {"last": [len(tokens) - 1]}.get(mode, range(len(tokens)))
    for t in shown:
        seen = tokens[: t + 1] if mode == "causal" else tokens
        G = {(j, k): sum(y[j] * y[k] for y in seen) for j, k in pairs(width)}
        rows.append([G[jk] * tokens[t][i] for jk in pairs(width) for i in range(width)])
    return rows


def rational_rank(rows: list[list[Fraction]]) -> int:
    """Rank over the rationals, by fraction-free elimination in Python integers."""
    matrix, rank = [_integers(row) for row in rows], 0
    for column in range(len(matrix[0]) if matrix else 0):
        pivot = next((i for i in range(rank, len(matrix)) if matrix[i][column]), None)
        if pivot is None:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        head = matrix[rank]
        for i in range(rank + 1, len(matrix)):
            if matrix[i][column]:
                factor, own = matrix[i][column], head[column]
                row = [own * a - factor * b for a, b in zip(matrix[i], head, strict=True)]
                matrix[i] = _primitive(row)
        rank += 1
    return rank


def _integers(row: list[Fraction]) -> list[int]:
    denominator = lcm(*(Fraction(entry).denominator for entry in row))
    return _primitive([int(entry * denominator) for entry in row])


def _primitive(row: list[int]) -> list[int]:
    divisor = int(np.gcd.reduce(np.array(row, dtype=object))) if row else 0
    return [entry // divisor for entry in row] if divisor > 1 else row
