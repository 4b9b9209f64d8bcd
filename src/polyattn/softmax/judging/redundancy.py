"""Heads that data cannot tell apart, and parts of heads that they cannot see.

Two heads with equal attn act through the sum of their values alone; a head of zero value does
not act at all.  Tokens that leave out a direction leave out a part of attn: with P the
projector onto the span of the queries and Q onto the span of the differences between keys, A
and P A Q give the same weights.  What is invisible is set to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish.projection import Projection

Matrix = NDArray[np.float64]

# Directions with less than this share of the largest variance are rounding.
DIRECTION_TOLERANCE = 1e-13

# Positions that are read together.
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class Visible:
    """Projectors onto the directions that occur in queries, and between keys; both (d, d).

    bias : whether the last coordinate is the constant of ``bias``, which no two keys differ in
    """

    queries: Matrix
    keys: Matrix
    bias: bool

    @property
    def rank(self) -> int:
        """How many numbers of an attention matrix can be seen."""
        return round(np.trace(self.queries)) * round(np.trace(self.keys))

    @property
    def complete(self) -> bool:
        """Whether all of attn can be seen that any inputs show."""
        width = len(self.queries)
        return self.rank == width * (width - self.bias)

    def part(self, attn: Matrix) -> Matrix:
        """The visible part of heads (m, d, d)."""
        return attn if self.complete else self.queries @ attn @ self.keys


def visible(examples: Examples) -> Visible:
    """The directions that the tokens of the examples span."""
    width = examples.width
    of_queries, of_keys = np.zeros((width, width)), np.zeros((width, width))
    for block in examples.blocks(BLOCK_ROWS):
        queries = block.queries.reshape(-1, width)
        of_queries += queries.T @ queries
        # Differences to the first key, which every query sees.
        apart = (block.keys - block.keys[:, :1]).reshape(-1, width)
        of_keys += apart.T @ apart
    return Visible(_projector(of_queries), _projector(of_keys), examples.bias)


def smaller_heads(here: Projection) -> list[tuple[Matrix, str]]:
    """One head fewer in the ways that may lose nothing: the closest two as one, or one dropped.

    Heads (m - 1, d, d) to descend from, each with the sentence that is true if nothing is lost.
    """
    n_heads = len(here.attn)
    if n_heads < 2:
        return []
    merged = "Two heads had equal attn and were merged: only the sum of their values counts."
    dropped = "A head that added nothing was dropped."
    by_size = np.argsort(np.linalg.norm(here.value, axis=(1, 2)))
    return [
        (_joined(here), merged),
        *((np.delete(here.attn, head, axis=0), dropped) for head in by_size),
    ]


def _joined(here: Projection) -> Matrix:
    """Attention with the closest two heads as one, weighted by their values."""
    attn, weights = here.attn, np.linalg.norm(here.value, axis=(1, 2))
    pairs = [(i, j) for i in range(len(attn)) for j in range(i + 1, len(attn))]
    i, j = min(pairs, key=lambda pair: float(np.linalg.norm(attn[pair[0]] - attn[pair[1]])))
    share = weights[i] / max(weights[i] + weights[j], np.finfo(np.float64).tiny)
    joined = np.delete(attn, j, axis=0)
    joined[i] = share * attn[i] + (1 - share) * attn[j]
    return joined


def _projector(gram: Matrix) -> Matrix:
    """Onto the range of a positive semidefinite matrix."""
    sizes, vectors = eigh(gram, check_finite=False)
    kept = vectors[:, sizes > DIRECTION_TOLERANCE * sizes[-1]]
    return np.asarray(kept @ kept.T, dtype=np.float64)
