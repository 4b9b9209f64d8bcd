"""Domains as the checker sees them: members, dimension, and sequences to try."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

# Random sequences on which a direction that is not zero shows, or a miracle happened.
TRIED = 256


@dataclass(frozen=True, eq=False)
class Place:
    """All sequences of certain tokens of least to most tokens, or those of ``batch``."""

    name: str
    least: int = 1
    most: int | None = None
    batch: SequenceBatch | None = None

    @property
    def is_one_hot(self) -> bool:
        """Whether tokens have one coordinate 1 and all others 0."""
        return self.batch is None and self.name == "one_hot"

    def dimension(self, n_dims: int, bias: bool) -> int | None:
        """The dimension of what the features of the domain span; None for custom domains."""
        if self.batch is not None:
            return None
        width, alone = n_dims + bias, self.most == 1
        if self.name == "one_hot":
            return n_dims if alone else n_dims**2
        if self.name == "boolean":
            return width + (comb(width, 3) if alone else width * comb(width, 2))
        return comb(width + 2, 3) if alone else width**2 * (width + 1) // 2

    def holds(self, data: SequenceBatch) -> bool:
        """Whether all sequences belong to the domain; custom domains ask for nothing."""
        if self.batch is not None:
            return True
        lengths = data.lengths
        if lengths.min() < self.least or (self.most is not None and lengths.max() > self.most):
            return False
        return all(self._are_tokens(piece) for piece in pieces(data.values))

    def some_sequences(self, n_dims: int, rng: np.random.Generator) -> SequenceBatch:
        """Sequences of the domain, enough for every direction that is not zero on it to show.

        One-hot: every symbol before every other.  Otherwise random ones: a polynomial of degree
        three that is not zero shows on one of eight Boolean inputs, and on nearly all real ones.
        """
        if self.batch is not None:
            return self.batch
        n_tokens = 1 if self.most == 1 else max(self.least, 2)
        tokens: NDArray
        if self.name == "one_hot":
            symbols = np.eye(n_dims, dtype=np.int8)
            before, after = np.divmod(np.arange(n_dims**2), n_dims)
            tokens = np.repeat(symbols[after][:, None], n_tokens, axis=1)
            if n_tokens > 1:
                tokens[:, 0] = symbols[before]
        elif self.name == "boolean":
            tokens = rng.choice(np.array([-1, 1], dtype=np.int8), (TRIED, n_tokens, n_dims))
        else:
            tokens = rng.integers(-9, 10, (TRIED, n_tokens, n_dims))
        return SequenceBatch.from_array(tokens)

    def _are_tokens(self, tokens: NDArray) -> bool:
        if self.name == "one_hot":
            zeros, ones = (np.count_nonzero(tokens == value, axis=1) for value in (0, 1))
            return bool(np.all(ones == 1) and np.all(zeros == tokens.shape[1] - 1))
        return self.name != "boolean" or bool(np.all(np.abs(tokens) == 1))
