"""The space that the features of a domain span, by representatives.

On a domain some features are always equal, zero, or sums of others: Boolean tokens have G_jj = n
for every j.  A *space* names representatives that are independent on the domain, and how every
feature follows from them:

    psi(X) = E phi(X),    phi(X) = psi(X)[columns],    E (p, m), mostly of small integers.

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

from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_index, pair_position

Feature = tuple[int, int, int]  # (j, k, l) with j <= k, of the papers' layer

# Coefficients on the features of a space: integers that were checked, or float64.
Direction = tuple[int, ...] | NDArray[np.float64]

# Integers of any size, floats, or one of the two.
Vector = TypeVar("Vector", tuple[int, ...], NDArray[np.float64], Direction)


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Representatives ``columns`` among the p features of a layout.

    ``relations()`` gives E; None where every feature is its own representative.
    """

    layout: Layout
    columns: NDArray[np.intp]
    relations: Callable[[], csr_array] | None = None

    @classmethod
    def whole(cls, layout: Layout) -> FeatureSpace:
        """All p features: no relation holds among them."""
        return cls(layout, np.arange(layout.n_features))

    @classmethod
    def of(
        cls,
        layout: Layout,
        representatives: Sequence[Feature],
        relation: Callable[[int, int, int], Iterable[Feature]],
    ) -> FeatureSpace:
        """From features of the papers' layer and the relation that writes any as a sum of them."""
        width = layout.n_queries
        at = pair_position(width)
        columns = [int(at[j, k]) * width + query for j, k, query in representatives]

        def relations() -> csr_array:
            first, second = (each.tolist() for each in pair_index(width))
            position, found = {column: i for i, column in enumerate(columns)}, []
            for feature in range(layout.n_features):
                pair, query = divmod(feature, width)
                for j, k, l in relation(first[pair], second[pair], query):  # noqa: E741
                    found.append((feature, position[int(at[j, k]) * width + l]))
            ones, shape = np.ones(len(found)), (layout.n_features, len(columns))
            return csr_array((ones, tuple(zip(*found, strict=True))), shape=shape)

        return cls(layout, np.array(columns, dtype=np.intp), relations)

    def only(self, places: NDArray[np.intp]) -> FeatureSpace:
        """The space of some of the representatives, by their places."""
        return FeatureSpace(self.layout, self.columns[places])

    @property
    def dimension(self) -> int:
        """m, the dimension of the space."""
        return len(self.columns)

    @property
    def n_features(self) -> int:
        """p, the number of features."""
        return self.layout.n_features

    @property
    def is_whole(self) -> bool:
        """Whether all features are independent on the domain."""
        return self.dimension == self.n_features

    @cached_property
    def expansion(self) -> csr_array:
        """E (p, m): how all features follow from the representatives."""
        return csr_array(np.eye(self.dimension)) if self.relations is None else self.relations()

    @cached_property
    def factors(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The entry of S and the entry of u of which each representative is the product."""
        kept = self.layout.kept
        products = self.columns if kept is None else kept[self.columns]
        sums, queries = np.divmod(products, self.layout.n_queries)
        return sums, queries

    def features(self, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """phi (m, rows) from sums S (n_sums, rows) and queries u (r, rows)."""
        of_sums, of_queries = self.factors
        phi = np.take(sums, of_sums, axis=0)
        phi *= np.take(queries, of_queries, axis=0)
        return phi

    def embed(self, vector: Vector) -> Vector:
        """The coefficients (p,) that act on all features as ``vector`` (m,) acts on phi."""
        if isinstance(vector, tuple):
            known = dict(zip(self.columns.tolist(), vector, strict=True))
            return tuple(known.get(column, 0) for column in range(self.n_features))
        full = np.zeros(self.n_features, dtype=vector.dtype)
        full[self.columns] = vector
        return full
