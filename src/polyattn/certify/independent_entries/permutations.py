"""The ends of the spectrum of Lambda for entries with any moments, by permutations alone.

Permutations of coordinates do not change Lambda.  Every space that they keep, inside that of the
features, holds a vector that no permutation of the coordinates beside the first three moves, since
a feature has at most three.  So all eigenvalues are those of Lambda on such vectors: sums of the
features that are alike but for the names of these coordinates, 49 for d of six or more.
"""

from __future__ import annotations

from math import perm

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.independent_entries.expectations import ProductExpectations, features_of

# Coordinates with names of their own, and the most others that one feature has.
NAMED = OTHERS = 3


def extreme_eigenvalues(expected: ProductExpectations, n_dims: int) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of Lambda (p, p).

    Cost: the same for every n_dims of nine or more.
    """
    values = np.linalg.eigvalsh(matrix_of_sums(expected, n_dims))
    return float(values[0]), float(values[-1])


def matrix_of_sums(expected: ProductExpectations, n_dims: int) -> NDArray[np.float64]:
    """Lambda on the normed sums of features that are alike."""
    shown = min(n_dims, NAMED + 2 * OTHERS)
    features = features_of(shown)
    kinds = [_kind(*each) for each in features.tolist()]
    names = sorted(set(kinds))
    place = np.array([names.index(kind) for kind in kinds])
    chosen = np.array([kinds.index(name) for name in names])
    first, second = (expected.codes(features, shown, factor) for factor in (0, 1))
    rows = expected.of(first[chosen, None] + second[None])
    rows *= [[_how_many(features[f], g, n_dims, shown) for g in features] for f in chosen]
    sums = np.zeros((len(names), len(names)))
    np.add.at(sums.T, place, rows.T)
    sizes = np.array([
        _how_many(np.zeros(3, int), features[f], n_dims, shown) * np.sum(place == i)
        for i, f in enumerate(chosen)
    ])  # fmt: skip
    matrix = sums * np.sqrt(sizes[:, None] / sizes)
    return np.asarray((matrix + matrix.T) / 2)


def _kind(j: int, k: int, l: int) -> tuple[int, ...]:  # noqa: E741 - the query's coordinate
    """A feature with the names of other coordinates replaced, in order, by 3, 4, 5."""

    def renamed(feature: tuple[int, int, int]) -> tuple[int, ...]:
        names: dict[int, int] = {}
        return tuple(c if c < NAMED else names.setdefault(c, NAMED + len(names)) for c in feature)

    return min(renamed((j, k, l)), renamed((k, j, l)))


def _how_many(feature: NDArray, other: NDArray, n_dims: int, shown: int) -> float:
    """For each ``other`` among the coordinates shown, how many like it there are among all.

    Like it are those that permutations of coordinates make of it that ``feature`` does not have.
    """
    own = {each for each in feature.tolist() if each >= NAMED}
    fresh = len({each for each in other.tolist() if each >= NAMED} - own)
    if fresh == 0:
        return 1.0
    taken = NAMED + len(own)
    return perm(n_dims - taken, fresh) / perm(shown - taken, fresh)
