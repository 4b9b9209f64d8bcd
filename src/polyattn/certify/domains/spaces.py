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

from polyattn.certify.verdict import Direction
from polyattn.features.pairs import n_features, pair_index, pair_position

Feature = tuple[int, int, int]  # (j, k, l) with j <= k

# Coefficients: integers of any size, floats, or one of the two.
Vector = TypeVar("Vector", tuple[int, ...], NDArray[np.float64], Direction)


@dataclass(frozen=True)
class FeatureSpace:
    """Representatives ``columns`` among the p features of tokens of ``width`` coordinates.

    ``follows(j, k, l)`` lists the positions in ``columns`` whose sum is feature (j, k, l);
    None where every feature is its own representative.
    """

    width: int
    columns: NDArray[np.intp]
    follows: Callable[[int, int, int], Iterable[int]] | None = None

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
        columns = [int(at[j, k]) * width + l for j, k, l in representatives]  # noqa: E741
        position = {feature: i for i, feature in enumerate(representatives)}

        def follows(j: int, k: int, l: int) -> list[int]:  # noqa: E741
            return [position[feature] for feature in relation(j, k, l)]

        return cls(width, np.array(columns, dtype=np.intp), follows)

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
        if self.follows is None:
            return csr_array(np.eye(self.dimension))
        first, second = pair_index(self.width)
        rows: list[int] = []
        positions: list[int] = []
        for pair, (j, k) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            for query in range(self.width):
                found = list(self.follows(j, k, query))
                rows += [pair * self.width + query] * len(found)
                positions += found
        ones = np.ones(len(rows))
        return csr_array((ones, (rows, positions)), shape=(self.n_features, self.dimension))

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
