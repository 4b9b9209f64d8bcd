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
from polyattn.softmax.polish.projection import Projection, project

Matrix = NDArray[np.float64]

# Directions with less than this share of the largest variance are rounding.
DIRECTION_TOLERANCE = 1e-13

# Heads are equal when they differ by less than this, relative to their size.
EQUAL = 1e-5

# Attention smaller than this, in scaled units, is compared by its absolute difference.
SMALL_ATTENTION = 0.1

# Positions that are read together.
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class Visible:
    """Projectors onto the directions that occur in queries, and between keys; both (d, d)."""

    queries: Matrix
    keys: Matrix

    @property
    def rank(self) -> int:
        """How many numbers of an attention matrix can be seen."""
        return round(np.trace(self.queries)) * round(np.trace(self.keys))

    @property
    def complete(self) -> bool:
        """Whether all of attn can be seen."""
        return self.rank == self.queries.size

    def basis(self) -> Matrix | None:
        """Orthonormal columns (d^2, rank) of what can be seen of attn; None: all of it."""
        if self.complete:
            return None
        return np.asarray(np.kron(_range(self.queries), _range(self.keys)), dtype=np.float64)

    def part(self, attn: Matrix) -> Matrix:
        """The visible part of heads (m, d, d)."""
        return attn if self.complete else self.queries @ attn @ self.keys


def visible(examples: Examples) -> Visible:
    """The directions that the tokens of the examples span."""
    n_dims = examples.n_dims
    of_queries, of_keys = np.zeros((n_dims, n_dims)), np.zeros((n_dims, n_dims))
    for block in examples.blocks(BLOCK_ROWS):
        queries = block.queries.reshape(-1, n_dims)
        of_queries += queries.T @ queries
        # Differences to the first key, which every query sees.
        apart = (block.keys - block.keys[:, :1]).reshape(-1, n_dims)
        of_keys += apart.T @ apart
    return Visible(_projector(of_queries), _projector(of_keys))


def without_redundant(
    examples: Examples, here: Projection, tolerance: float
) -> tuple[Projection, tuple[str, ...]]:
    """Equal heads merged and idle heads dropped, as long as the error stays within ``tolerance``.

    Returns the smaller layer and one sentence for each head that is gone.
    """
    notes: list[str] = []
    while len(here.attn) > 1:
        smaller = _merged(here) or _dropped(examples, here, tolerance)
        if smaller is None:
            break
        attn, sentence = smaller
        trial = project(examples, attn)
        if trial.error > max(tolerance, 2 * here.error):
            break
        here = trial
        notes.append(sentence)
    return here, tuple(notes)


def _merged(here: Projection) -> tuple[Matrix, str] | None:
    """Attention with the closest two heads as one, if they are equal."""
    attn = here.attn
    sizes = np.maximum(np.linalg.norm(attn, axis=(1, 2)), SMALL_ATTENTION)
    pairs = [(i, j) for i in range(len(attn)) for j in range(i + 1, len(attn))]
    apart = [np.linalg.norm(attn[i] - attn[j]) / max(sizes[i], sizes[j]) for i, j in pairs]
    nearest = int(np.argmin(apart))
    if apart[nearest] > EQUAL:
        return None
    i, j = pairs[nearest]
    joined = np.delete(attn, j, axis=0)
    joined[i] = (attn[i] + attn[j]) / 2
    return joined, "Two heads had equal attn and were merged: only the sum of their values counts."


def _dropped(examples: Examples, here: Projection, tolerance: float) -> tuple[Matrix, str] | None:
    """Attention without the head that adds least, if it adds nothing."""
    sizes = np.linalg.norm(here.value, axis=(1, 2))
    idle = int(np.argmin(sizes))
    # The tokens are of order one, so a value bounds what its head adds to one output.
    per_row = np.sqrt(examples.power / examples.n_rows)
    if sizes[idle] > tolerance * max(per_row, np.finfo(np.float64).tiny):
        return None
    return np.delete(here.attn, idle, axis=0), "A head of zero value was dropped."


def _projector(gram: Matrix) -> Matrix:
    kept = _range(gram)
    return kept @ kept.T


def _range(gram: Matrix) -> Matrix:
    """Orthonormal columns that span a positive semidefinite matrix."""
    sizes, vectors = eigh(gram, check_finite=False)
    return vectors[:, sizes > DIRECTION_TOLERANCE * sizes[-1]]
