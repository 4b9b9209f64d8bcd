"""Domains for the checker: dimension, membership, and sequences on which directions show.

A built-in domain is written twice on purpose, here and in ``certify.domains``.  The two share
nothing, so that neither can hide a mistake of the other; a test compares their dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

# Random sequences: a direction that is not zero vanishes on all with probability below 1e-14.
TRIED = 256


@dataclass(frozen=True, eq=False)
class CheckedDomain(ABC):
    """All sequences of ``least`` to ``most`` tokens of some kind."""

    least: int = 1
    most: int | None = None

    batch: SequenceBatch | None = field(default=None, init=False)  # of a custom domain

    is_one_hot: ClassVar[bool] = False

    @abstractmethod
    def dimension(self, n_dims: int, bias: bool) -> int | None:
        """The dimension of what the features of the domain span; None for custom domains."""

    @abstractmethod
    def are_tokens(self, tokens: NDArray) -> bool:
        """Whether all tokens (n, d) belong to the domain."""

    @abstractmethod
    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        """Sequences (k, n_tokens, d), enough for every direction that is not zero to show.

        A polynomial of degree three that is not zero shows on nearly all real inputs, and on one
        of eight Boolean ones.
        """

    def holds(self, data: SequenceBatch) -> bool:
        """Whether all sequences belong to the domain."""
        lengths = data.lengths
        if lengths.min() < self.least or (self.most is not None and lengths.max() > self.most):
            return False
        return all(self.are_tokens(piece) for piece in pieces(data.values))

    def some_sequences(self, n_dims: int, rng: np.random.Generator) -> SequenceBatch:
        """The same of two tokens each, or as near to that as the domain allows."""
        n_tokens = 1 if self.most == 1 else max(self.least, 2)
        return SequenceBatch.from_array(self.sequences_of_length(n_tokens, n_dims, rng))


class CheckedReal(CheckedDomain):
    """Tokens with any coordinates."""

    def dimension(self, n_dims: int, bias: bool) -> int:
        width = n_dims + bias
        return comb(width + 2, 3) if self.most == 1 else width**2 * (width + 1) // 2

    def are_tokens(self, tokens: NDArray) -> bool:
        return True

    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.integers(-9, 10, (TRIED, n_tokens, n_dims))


class CheckedBoolean(CheckedDomain):
    """Tokens with coordinates -1 and 1."""

    def dimension(self, n_dims: int, bias: bool) -> int:
        width = n_dims + bias
        return width + (comb(width, 3) if self.most == 1 else width * comb(width, 2))

    def are_tokens(self, tokens: NDArray) -> bool:
        return bool(np.all(np.abs(tokens) == 1))

    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.choice(np.array([-1, 1], dtype=np.int8), (TRIED, n_tokens, n_dims))


class CheckedOneHot(CheckedDomain):
    """Tokens with one coordinate 1 and all others 0."""

    is_one_hot = True

    def dimension(self, n_dims: int, bias: bool) -> int:
        return n_dims if self.most == 1 else n_dims**2

    def are_tokens(self, tokens: NDArray) -> bool:
        zeros, ones = (np.count_nonzero(tokens == value, axis=1) for value in (0, 1))
        return bool(np.all(ones == 1) and np.all(zeros == tokens.shape[1] - 1))

    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        """Every symbol before every other."""
        symbols = np.eye(n_dims, dtype=np.int8)
        before, after = np.divmod(np.arange(n_dims**2), n_dims)
        tokens = np.repeat(symbols[after][:, None], n_tokens, axis=1)
        if n_tokens > 1:
            tokens[:, 0] = symbols[before]
        return tokens


@dataclass(frozen=True, eq=False)
class CheckedSequences(CheckedReal):
    """A custom domain: exactly these sequences.  Data need not lie in it."""

    batch: SequenceBatch = field(kw_only=True)

    def dimension(self, n_dims: int, bias: bool) -> None:  # type: ignore[override]
        return None

    def holds(self, data: SequenceBatch) -> bool:
        return True

    def some_sequences(self, n_dims: int, rng: np.random.Generator) -> SequenceBatch:
        return self.batch


CHECKED: dict[str, type[CheckedDomain]] = {
    "real": CheckedReal,
    "boolean": CheckedBoolean,
    "one_hot": CheckedOneHot,
}
