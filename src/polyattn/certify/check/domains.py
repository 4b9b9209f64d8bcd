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

from polyattn.certify.check.forms import FormFeatures
from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

# Random sequences: a direction that is not zero vanishes on all with probability below 1e-14.
TRIED = 256

# Rows that are tried for a form beside those for each feature.
MORE_ROWS = 200

# Sequences that show features of a form are not much longer, whatever windows it has.
MOST_REACH = 256


@dataclass(frozen=True, eq=False)
class CheckedDomain(ABC):
    """All sequences of ``least`` to ``most`` tokens of some kind."""

    least: int = 1
    most: int | None = None

    batch: SequenceBatch | None = field(default=None, init=False)  # of a custom domain
    context: SequenceBatch | None = field(default=None, init=False)  # what it attends to

    is_one_hot: ClassVar[bool] = False

    # Rows that show how many features are independent, for each of them.
    rows_per_feature: ClassVar[float] = 8.0

    @abstractmethod
    def dimension(self, n_dims: int, bias: bool) -> int | None:
        """The dimension of what the features of the domain span; None for custom domains."""

    @property
    def is_everything(self) -> bool:
        """Whether these are all real sequences."""
        return False

    @abstractmethod
    def are_tokens(self, tokens: NDArray) -> bool:
        """Whether all tokens (n, d) belong to the domain."""

    @abstractmethod
    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        """Sequences (k, n_tokens, d), enough for every direction that is not zero to show.

        A polynomial of degree three that is not zero shows on nearly all real inputs, and on one
        of eight Boolean ones.
        """

    def holds(self, data: SequenceBatch, context: SequenceBatch | None = None) -> bool:
        """Whether all sequences belong to the domain; a context may be of any length."""
        if context is not None and not all(map(self.are_tokens, pieces(context.values))):
            return False
        lengths = data.lengths
        if lengths.min() < self.least or (self.most is not None and lengths.max() > self.most):
            return False
        return all(self.are_tokens(piece) for piece in pieces(data.values))

    @abstractmethod
    def tokens(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        """Random tokens (n_tokens, d) of the domain, integers."""

    def sequences_for(
        self, seen: FormFeatures, rng: np.random.Generator
    ) -> tuple[SequenceBatch, SequenceBatch | None]:
        """Random sequences of all lengths that a form tells apart, and contexts for them.

        So many that the features which are independent on the domain are, and each shows.
        """
        n_sequences = int(self.rows_per_feature * seen.n_features) + MORE_ROWS
        least = max(self.least, 1)
        most = max(least, min(seen.reach, MOST_REACH)) + len(seen.scales) + 4
        most = most if self.most is None else min(self.most, most)
        if seen.form.mode == "causal":
            # Beginnings of a sequence are there as well.
            n_sequences, least = 1 + n_sequences // most, most
        # Sorted: neighbours of one length are taken together.
        lengths = np.sort(rng.integers(least, most + 1, n_sequences))
        own = self.tokens(int(lengths.sum()), seen.n_dims, rng)
        batch = SequenceBatch.from_sequences(np.split(own, np.cumsum(lengths)[:-1]))
        if seen.n_context_dims is None:
            return batch, None
        if seen.form.mode != "causal":
            # Each length of a sequence comes with several of a context.
            repeats = np.unique(lengths, return_counts=True)[1]
            lengths = np.concatenate([np.sort(rng.integers(1, 5, count)) for count in repeats])
        others = self.tokens(int(lengths.sum()), seen.n_context_dims, rng)
        return batch, SequenceBatch.from_sequences(np.split(others, np.cumsum(lengths)[:-1]))

    def some_sequences(self, n_dims: int, rng: np.random.Generator) -> SequenceBatch:
        """The same of two tokens each, or as near to that as the domain allows."""
        n_tokens = 1 if self.most == 1 else max(self.least, 2)
        return SequenceBatch.from_array(self.sequences_of_length(n_tokens, n_dims, rng))


class CheckedReal(CheckedDomain):
    """Tokens with any coordinates."""

    rows_per_feature: ClassVar[float] = 3.0

    @property
    def is_everything(self) -> bool:
        return self.batch is None and (self.least, self.most) == (1, None)

    def dimension(self, n_dims: int, bias: bool) -> int:
        width = n_dims + bias
        return comb(width + 2, 3) if self.most == 1 else width**2 * (width + 1) // 2

    def are_tokens(self, tokens: NDArray) -> bool:
        return True

    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.integers(-9, 10, (TRIED, n_tokens, n_dims))

    def tokens(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.integers(-(1 << 21), 1 << 21, (n_tokens, n_dims))


class CheckedBoolean(CheckedDomain):
    """Tokens with coordinates -1 and 1."""

    def dimension(self, n_dims: int, bias: bool) -> int:
        width = n_dims + bias
        return width + (comb(width, 3) if self.most == 1 else width * comb(width, 2))

    def are_tokens(self, tokens: NDArray) -> bool:
        return bool(np.all(np.abs(tokens) == 1))

    def sequences_of_length(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.choice(np.array([-1, 1], dtype=np.int8), (TRIED, n_tokens, n_dims))

    def tokens(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return rng.choice(np.array([-1, 1], dtype=np.int8), (n_tokens, n_dims))


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

    def tokens(self, n_tokens: int, n_dims: int, rng: np.random.Generator) -> NDArray:
        return np.eye(n_dims, dtype=np.int8)[rng.integers(n_dims, size=n_tokens)]


@dataclass(frozen=True, eq=False)
class CheckedSequences(CheckedReal):
    """A custom domain: exactly these sequences.  Data need not lie in it."""

    batch: SequenceBatch = field(kw_only=True)
    context: SequenceBatch | None = field(kw_only=True, default=None)

    def dimension(self, n_dims: int, bias: bool) -> None:  # type: ignore[override]
        return None

    def holds(self, data: SequenceBatch, context: SequenceBatch | None = None) -> bool:
        return True

    def some_sequences(self, n_dims: int, rng: np.random.Generator) -> SequenceBatch:
        return self.batch

    def sequences_for(
        self, seen: FormFeatures, rng: np.random.Generator
    ) -> tuple[SequenceBatch, SequenceBatch | None]:
        return self.batch, self.context


CHECKED: dict[str, type[CheckedDomain]] = {
    "real": CheckedReal,
    "boolean": CheckedBoolean,
    "one_hot": CheckedOneHot,
}
