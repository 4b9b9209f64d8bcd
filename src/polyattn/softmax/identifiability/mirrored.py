"""Other heads where every query sees two kinds of tokens, equally often.

Let the tokens that a query x attends to be a and b, each in the same number.  Their weights are
sigmoid(z) and sigmoid(-z) with z = x A (a - b), so a head computes

    m V + 1/2 tanh(z / 2) (a - b) V,      m = (a + b) / 2:

(A, V) and (-A, -V) differ by 2 m V alone, which a head of zero attention also computes.  So if
all queries are of this kind, these are one function:

    (A, V), (0, W)          and   (-A, -V), (0, W + 2 V)
    (A, V), (-A, W)         and   (A, V - W), (0, 2 W)
    heads F with sum V = 0  and   the same heads with (-A, -V)

and no others of as many heads (docs/derivations/softmax_identifiability.md).  With unequal
numbers of a and b the logit is z + c, c not 0, and none of them holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Sets of heads are looked through up to this size; beyond so many heads, pairs alone.
MOST_HEADS, LARGEST_SET = 12, 2


@dataclass(frozen=True)
class Alternative:
    """As many other heads, which may compute the same on given inputs.

    attn : (H, d, d);  value : (H, d, e)
    heads : those that change
    name : of the finding, ``opposite_heads`` or ``two_valued``
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
    sizes = np.linalg.norm(attn, axis=(1, 2))
    limit = tolerance * sizes.max()
    zero = np.flatnonzero(sizes <= limit).tolist()
    for head in range(len(attn)):
        if zero and head not in zero:
            yield _with_zero(attn, value, head, zero[0])
    for i, j in combinations(range(len(attn)), 2):
        opposite = np.linalg.norm(attn[i] + attn[j]) <= limit
        if opposite and i not in zero and j not in zero:
            yield _opposite(attn, value, i, j)
    for chosen in _zero_sums(value, tolerance):
        if any(head not in zero for head in chosen):
            yield _flipped(attn, value, chosen)


def _with_zero(attn: Matrix, value: Matrix, head: int, zero: int) -> Alternative:
    """The head with the other sign; the head of no attention takes up the difference."""
    other = _flipped(attn, value, (head,))
    other.value[zero] += 2 * value[head]
    return Alternative(other.attn, other.value, (head, zero), other.name)


def _opposite(attn: Matrix, value: Matrix, i: int, j: int) -> Alternative:
    """Of two opposite heads the second without attention."""
    other_attn, other_value = attn.copy(), value.copy()
    other_attn[j] = 0.0
    other_value[i], other_value[j] = value[i] - value[j], 2 * value[j]
    return Alternative(other_attn, other_value, (i, j), "opposite_heads")


def _flipped(attn: Matrix, value: Matrix, heads: tuple[int, ...]) -> Alternative:
    other_attn, other_value = attn.copy(), value.copy()
    chosen = list(heads)
    other_attn[chosen], other_value[chosen] = -attn[chosen], -value[chosen]
    return Alternative(other_attn, other_value, heads, "opposite_heads")


def _zero_sums(value: Matrix, tolerance: float) -> Iterator[tuple[int, ...]]:
    """Sets of heads whose values add up to nothing."""
    stacked = value.reshape(len(value), -1)
    gram = stacked @ stacked.T
    largest = len(value) if len(value) <= MOST_HEADS else LARGEST_SET
    limit = tolerance**2 * np.diag(gram).max()
    for size in range(1, largest + 1):
        for chosen in combinations(range(len(value)), size):
            if gram[np.ix_(chosen, chosen)].sum() <= limit:
                yield chosen
