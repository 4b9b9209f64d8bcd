"""Which combinations of the spans are heads: second and third cumulants, diagonalised jointly.

Write B_i = sum_a G[i,a] P_a and V_i = sum_b H[i,b] Q_b in the bases of the spans, and l_a for the
logits of P_a.  A head moves the mean token by its cumulants, so

    y = ... + sum_ab T1[a,b] k(l_a, z) Q_b + 1/2 sum_aa'b T2[a,a',b] k(l_a, l_a', z) Q_b + ...,
    T1 = G^T H,      T2[a] = G^T diag(G[:, a]) H.

Hence T2[a] T1^-1 = G^T diag(G[:, a]) G^-T: the same eigenvectors for all a, and the eigenvalues
are the coordinates of the heads (Jennrich).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, lstsq

from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.moments.first_order import Spans
from polyattn.softmax.moments.frame import WhiteFrame

Matrix = NDArray[np.float64]
Table = dict[tuple[int, ...], Matrix]

# Fourth cumulants take part up to this many heads; beyond the second number, not even third.
FOURTH_ORDER, THIRD_ORDER = 4, 10

# Scalar targets that take part: the tables are small.
MOST_TARGETS, BLOCK_NUMBERS = 40_000, 1 << 21

# Random combinations of the T2[a] T1^-1 of which the best separated one is diagonalised.
N_COMBINATIONS = 20

# Beyond this condition number T1 has no inverse worth having.
WORST_CONDITION = 1e8


def separate(
    examples: Examples, frame: WhiteFrame, spans: Spans, rng: np.random.Generator
) -> Matrix | None:
    """Coordinates G (s, s) of s heads in the bases; None where they cannot be told apart."""
    size = len(spans.attn)
    if size == 0 or size > THIRD_ORDER:
        return None
    table = _regress(examples, frame, spans)
    first = np.array([table[(a,)] for a in range(size)])
    if np.linalg.cond(first) > WORST_CONDITION:
        return None
    second = np.empty((size, size, size))
    for (a, b), row in ((key, row) for key, row in table.items() if len(key) == 2):
        second[a, b] = second[b, a] = row * (2.0 if a == b else 1.0)
    return _diagonalised(second @ np.linalg.inv(first), rng)


def _regress(examples: Examples, frame: WhiteFrame, spans: Spans) -> Table:
    """Coefficients (s,) of every cumulant k(l_a, ..., z) Q_b, by the a's that it is made of."""
    size = len(spans.attn)
    orders = range(4 if size <= FOURTH_ORDER else 3)
    keys = [key for order in orders for key in combinations_with_replacement(range(size), order)]
    n_features = len(keys) * size
    gram: Matrix = np.zeros((n_features, n_features))
    crossed: Matrix = np.zeros(n_features)
    n_outputs = examples.n_outputs
    few = examples.first(MOST_TARGETS * len(examples) // (examples.n_rows * n_outputs) + 1)
    for block in few.blocks(max(1, BLOCK_NUMBERS // (n_features * n_outputs))):
        columns = [
            (moved @ spans.value[:, None]).reshape(size, -1)
            for moved in _cumulants(block, frame, spans, len(orders))
        ]
        features = np.concatenate(columns)
        gram += features @ features.T
        crossed += features @ block.targets.reshape(-1)
    solution = lstsq(gram, crossed, cond=1e-12)[0].reshape(len(keys), size)
    return dict(zip(keys, solution, strict=True))


def _cumulants(
    block: ExampleBlock, frame: WhiteFrame, spans: Spans, n_orders: int
) -> Iterator[Matrix]:
    """Joint cumulants (B, q, r) of logits and tokens, in the order of the table's keys."""
    queries, keys, weights = frame.white(block)
    mean = weights @ keys
    yield mean
    logits = []
    for P in spans.attn:
        raw = (queries @ P) @ keys.transpose(0, 2, 1)
        logits.append(raw - (weights * raw).sum(axis=2, keepdims=True))

    def correlated(factor: Matrix) -> Matrix:
        weighted = weights * factor
        return weighted @ keys - weighted.sum(axis=2, keepdims=True) * mean

    size = len(logits)
    firsts = [correlated(logit) for logit in logits]
    yield from firsts
    for a, b in combinations_with_replacement(range(size), 2):
        yield correlated(logits[a] * logits[b])
    if n_orders < 4:
        return
    pairs = [[(weights * x * y).sum(axis=2, keepdims=True) for y in logits] for x in logits]
    for a, b, c in combinations_with_replacement(range(size), 3):
        whole = correlated(logits[a] * logits[b] * logits[c])
        yield whole - pairs[a][b] * firsts[c] - pairs[a][c] * firsts[b] - pairs[b][c] * firsts[a]


def _diagonalised(family: Matrix, rng: np.random.Generator) -> Matrix | None:
    """G[i, a], the i-th joint eigenvalue of family[a], from the best separated combination."""
    best, found = -1.0, None
    for _ in range(N_COMBINATIONS):
        direction = rng.standard_normal(len(family))
        values, vectors = np.linalg.eig(np.tensordot(direction, family, axes=1))
        if np.iscomplexobj(values):
            continue
        distances = np.abs(values[:, None] - values) + np.diag(np.full(len(values), np.inf))
        gap = float(distances.min() / np.abs(values).max(initial=1e-300))
        if gap > best:
            best, found = gap, vectors
    if found is None:
        return None
    try:
        inverse = np.linalg.inv(found)
    except LinAlgError:
        return None
    return np.einsum("ij,ajk,ki->ia", inverse, family, found)
