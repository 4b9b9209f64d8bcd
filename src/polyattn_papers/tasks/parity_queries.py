"""Statistical queries to parity layers, with averages over all Boolean sequences: no sampling.

The family has one known marker, the last coordinate, and one member for each hidden set.  An oracle
answers a query by what is common to all members as long as its tolerance allows that, and
otherwise by the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax import parity_outputs

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ParityFamily:
    """All members on all sequences.

    Attributes
    ----------
    X : (N, k, d), all Boolean sequences
    sets : M hidden sets
    outputs : (M, N), the output at the first row
    common : (N,), the mean output over all that is not a marker, which is the same for all members
    labels : (M, N), the signs of all k outputs as a number below 2^k
    mixed : (N,), whether both markers are present
    """

    X: Numbers
    sets: list[tuple[int, ...]]
    outputs: Numbers
    common: Numbers
    labels: NDArray[np.intp]
    mixed: NDArray[np.bool_]

    @classmethod
    def of(cls, n_dims: int, n_hidden: int, n_tokens: int, beta: float) -> ParityFamily:
        """Enumerate; 2^(n_tokens n_dims) sequences must fit."""
        signs = np.array(list(product([-1.0, 1.0], repeat=n_tokens * n_dims)))
        X, marker = signs.reshape(-1, n_tokens, n_dims), n_dims - 1
        sets = list(combinations(range(marker), n_hidden))
        outputs = np.array([parity_outputs(X, hidden, marker, beta) for hidden in sets])
        markers = (X[:, :, marker] > 0) @ (1 << np.arange(n_tokens))
        sums = np.bincount(markers, outputs[0, :, 0]) / np.bincount(markers)
        labels = (outputs > 0) @ (1 << np.arange(n_tokens))
        mixed = (markers > 0) & (markers < (1 << n_tokens) - 1)
        return cls(X, sets, outputs[:, :, 0], sums[markers], labels, mixed)

    def correlations(self, query: Numbers) -> tuple[Numbers, float]:
        """Averages of g(X) y at the first row: (M,) true ones, and the common answer."""
        return self.outputs @ query / len(query), float(self.common @ query / len(query))

    def sign_averages(self, query: Numbers) -> tuple[Numbers, float]:
        """Averages of h(X, signs), query (N, 2^k): (M,) true ones, and the common answer.

        The common answer takes all signs as equally likely where both markers are present.
        """
        places = np.arange(len(query))
        alike = np.where(self.mixed, query.mean(axis=1), query[places, self.labels[0]])
        return query[places, self.labels].mean(axis=1), float(alike.mean())

    def excluded(self, answers: tuple[Numbers, float], tolerance: float) -> int:
        """How many members one query tells from what is common; rounding is not held against it."""
        truth, common = answers
        return int(np.count_nonzero(np.abs(truth - common) > tolerance * (1 + 1e-12)))


class CommonOracle:
    """Answers for one member, as uninformative as the tolerance allows, and counts them."""

    def __init__(self, family: ParityFamily, member: int, tolerance: float) -> None:
        self.family, self.member, self.tolerance = family, member, tolerance
        self.n_queries = 0

    def correlation(self, query: Numbers) -> float:
        """An answer for the average of g(X) y at the first row, right to within the tolerance."""
        self.n_queries += 1
        truth, common = self.family.correlations(query)
        value = float(truth[self.member])
        return common if abs(value - common) <= self.tolerance else value


def learn_by_correlations(oracle: CommonOracle, n_queries: int) -> tuple[int, ...]:
    """The hidden set, by asking for the correlation with one set after the other.

    Stops at the first correlation that is seen, or when the queries are used up; then it names the
    next set.  With as many queries as sets, and a tolerance that no correlation hides in, it never
    fails.
    """
    family = oracle.family
    for hidden in family.sets[:n_queries]:
        character = -np.prod(family.X[:, 0, list(hidden)], axis=1) * family.mixed
        if oracle.correlation(character) > 0.5 * family.mixed.mean():
            return hidden
    return family.sets[min(n_queries, len(family.sets) - 1)]


def informative_queries(family: ParityFamily, rng: np.random.Generator) -> Iterator[Numbers]:
    """Functions g(X) that exclude much: signs of sums of members, for one member, two, to all.

    Also single coordinates, and signs at random, which exclude little.
    """
    parts = (family.outputs - family.common) * family.mixed
    for count in range(1, len(parts) + 1):
        chosen = rng.permutation(len(parts))[:count]
        signs = rng.choice([-1.0, 1.0], size=count)
        yield np.sign(signs @ parts[chosen])
        yield np.sign(parts[chosen].sum(axis=0))
    for coordinate in range(family.X.shape[2]):
        yield family.X[:, 0, coordinate]
    yield rng.choice([-1.0, 1.0], size=len(family.X))


def informative_sign_queries(family: ParityFamily, rng: np.random.Generator) -> Iterator[Numbers]:
    """Functions h(X, signs): 1 where signs are those of one of some members, otherwise -1."""
    n_labels = 1 << family.X.shape[1]
    for count in range(1, len(family.sets) + 1):
        query = np.full((len(family.X), n_labels), -1.0)
        chosen = rng.permutation(len(family.sets))[:count]
        for member in chosen:
            query[np.arange(len(query)), family.labels[member]] = 1.0
        yield query
    yield rng.choice([-1.0, 1.0], size=(len(family.X), n_labels))
