"""The space that the features of a domain span, by representatives.

On a domain some cubic features are always equal, zero, or sums of others: Boolean tokens have
G_jj = n for every j.  A *space* names representatives that are independent on the domain, and
how every feature follows from them:

    psi(X) = E phi(X),    phi(X) = psi(X)[columns],    E (p, m) of small integers.

Data determine a layer on the domain iff the representatives have full column rank on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.features.pairs import n_features, pair_index, pair_position

Feature = tuple[int, int, int]  # (j, k, l) with j <= k

# Coefficients on the features of a space: integers that were checked, or float64.
Direction = tuple[int, ...] | NDArray[np.float64]

# Integers of any size, floats, or one of the two.
Vector = TypeVar("Vector", tuple[int, ...], NDArray[np.float64], Direction)


@dataclass(frozen=True)
class FeatureSpace:
    """Representatives ``columns`` among the p features of tokens of ``width`` coordinates.

    ``relation(j, k, l)`` lists the representatives whose sum is feature (j, k, l); None where
    every feature is its own representative.
    """

    width: int
    columns: NDArray[np.intp]
    relation: Callable[[int, int, int], Iterable[Feature]] | None = None

    @classmethod
    def whole(cls, width: int) -> FeatureSpace:
        """All p features: no relation holds among them."""
        return cls(width, np.arange(n_features(width)))

    @classmethod
    def of(
        cls,
        width: int,
        representatives: Sequence[Feature],
        relation: Callable[[int, int, int], Iterable[Feature]],
    ) -> FeatureSpace:
        """From representatives and the relation that writes any feature as a sum of them."""
        at = pair_position(width)
        columns = [int(at[j, k]) * width + query for j, k, query in representatives]
        return cls(width, np.array(columns, dtype=np.intp), relation)

    @property
    def dimension(self) -> int:
        """m, the dimension of the space."""
        return len(self.columns)

    @property
    def n_features(self) -> int:
        """p, the number of cubic features."""
        return n_features(self.width)

    @property
    def is_whole(self) -> bool:
        """Whether all features are independent on the domain."""
        return self.dimension == self.n_features

    @cached_property
    def expansion(self) -> csr_array:
        """E (p, m): how all features follow from the representatives."""
        if self.relation is None:
            return csr_array(np.eye(self.dimension))
        first, second = (each.tolist() for each in pair_index(self.width))
        at, entries = pair_position(self.width), []
        position = {column: i for i, column in enumerate(self.columns.tolist())}
        for feature in range(self.n_features):
            pair, query = divmod(feature, self.width)
            for j, k, l in self.relation(first[pair], second[pair], query):  # noqa: E741
                entries.append((feature, position[int(at[j, k]) * self.width + l]))
        ones, shape = np.ones(len(entries)), (self.n_features, self.dimension)
        return csr_array((ones, tuple(zip(*entries, strict=True))), shape=shape)

    def features(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """phi (m, rows) from pairs (q, rows) and queries (width, rows)."""
        pair, query = np.divmod(self.columns, self.width)
        phi = np.take(pairs, pair, axis=0)
        phi *= np.take(queries, query, axis=0)
        return phi

    def magnitudes(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """sqrt(G_jj G_kk) |x_l| (m, rows): what the rounding error of phi is measured by."""
        first, second = pair_index(self.width)
        roots = np.sqrt(pairs[first == second])
        pair, query = np.divmod(self.columns, self.width)
        sizes = np.take(roots, first[pair], axis=0)
        sizes *= np.take(roots, second[pair], axis=0)
        sizes *= np.abs(np.take(queries, query, axis=0))
        return sizes

    def embed(self, vector: Vector) -> Vector:
        """The coefficients (p,) that act on all features as ``vector`` (m,) acts on phi."""
        if isinstance(vector, tuple):
            known = dict(zip(self.columns.tolist(), vector, strict=True))
            return tuple(known.get(column, 0) for column in range(self.n_features))
        full = np.zeros(self.n_features, dtype=vector.dtype)
        full[self.columns] = vector
        return full
