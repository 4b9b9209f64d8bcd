"""The span of training equations over relations: where all layers of rules that fit them agree.

The equations of rows over relations, one for each row and each coordinate that is written:

    y[a] = sum over relations c of  w[c] * phi[c],
    phi[c] = sum of G[j, k] x[l] over j <= k and l with relation (a, j, k, l) = c

A relation names what is written, so equations that write another attribute or another name share
no unknown: they form separate **groups**.  Equations with equal features are kept once.

For a new row, each coordinate a has features phi.  If phi is a combination of training equations,
all coefficients that fit these give the same y[a]; else some give another.  A row is inside if
that holds for all its coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack, solve_triangular

from polyattn.programs.certificates.certify_traces import statuses
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rules.relations import Relations
from polyattn.programs.traces import Trace, TraceRows

# Pivots below this share of the largest are rounding: features are small integers.
DEPENDENT = 1e-11

# Numbers of a sparse matrix that are made dense at a time.
DENSE_NUMBERS = 1 << 23


class RelationFeatures(NamedTuple):
    """The features of rows, as entries (equation, relation, value).

    equations : array (n,), row times d plus the coordinate a
    codes : array (n,), relations
    values : array (n,) of integers
    """

    equations: NDArray[np.int64]
    codes: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Iterable[RelationFeatures]) -> RelationFeatures:
        """All entries of several."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(*map(np.concatenate, zip((nothing,) * 3, *parts, strict=True)))

    def renumbered(self, numbers: NDArray[np.int64]) -> RelationFeatures:
        """The equations with other numbers; those whose number is negative are left out."""
        number = numbers[self.equations]
        kept = np.flatnonzero(number >= 0)
        return RelationFeatures(number[kept], self.codes[kept], self.values[kept])


def features_of(rows: TraceRows, relations: Relations) -> RelationFeatures:
    """The features of rows of one schema.

    Cost: O(m d p q) for m rows of d coordinates with p non-zero pairs and q in the last token.
    """
    written = np.arange(rows.queries.shape[1])[:, None]
    found = []
    for last in np.flatnonzero(rows.queries.any(axis=0)):
        here = np.flatnonzero(rows.queries[:, last])
        first, second = np.nonzero(np.triu((rows.grams[here] != 0).any(axis=0)))
        codes = relations.code(written, first, second, np.array(last))
        local, inverse = np.unique(codes, return_inverse=True)
        at = written * len(local) + inverse.reshape(codes.shape)
        for row in here:
            values = np.rint(rows.grams[row, first, second] * rows.queries[row, last])
            every = np.broadcast_to(values, codes.shape)
            total = np.bincount(at.ravel(), weights=every.ravel())
            kept = np.flatnonzero(total)
            equations = row * len(written) + kept // len(local)
            values = total[kept].astype(np.int64)
            found.append(RelationFeatures(equations, local[kept % len(local)], values))
    return RelationFeatures.joined(found)


class RelationSpan:
    """The span of the equations of training traces.

    schema : of the rows that are looked at; training traces may be of other sizes
    max_offset : the largest number of steps that is not "far"

    Guarantee: with integers as features, floating point is used for the distance alone; a row is
    called inside below 1e-10 of its own square, outside above 1e-6, and undecided between.
    Cost: O(n r^2) for n different equations of rank r, in each group.
    """

    def __init__(self, schema: Schema, traces: Sequence[Trace], *, max_offset: int = 3) -> None:
        self.relations = Relations(schema, max_offset)
        self.groups: dict[int, EquationGroup] = {}
        for trace in traces:
            rows, sized = TraceRows.of(trace), self.relations.at(trace.schema)
            features = features_of(rows, sized)
            # One number for each equation: the sum over relations of value times a random number
            # of 64 bits, modulo 2^64.  Different equations share it with probability 2^-64 or so.
            signatures = np.zeros(rows.queries.size, dtype=np.uint64)
            mixed = _mix(features.codes.astype(np.uint64))
            np.add.at(signatures, features.equations, mixed * features.values.astype(np.uint64))
            for group in np.unique(sized.groups):
                at = np.flatnonzero(np.tile(sized.groups == group, len(rows.queries)))
                self.groups.setdefault(int(group), EquationGroup()).add(features, signatures, at)

    @property
    def rank(self) -> int:
        """The dimension of the span, over all groups."""
        return sum(group.rank for group in self.groups.values())

    @property
    def n_relations(self) -> int:
        """The relations that occur in training equations: the unknowns."""
        return sum(len(group.solved[0]) for group in self.groups.values())

    def at(self, schema: Schema) -> RelationSpan:
        """The same span for rows of a schema of other sizes."""
        sized = copy(self)
        sized.relations = self.relations.at(schema)
        return sized

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided"; targets are not looked at."""
        return statuses(self.distances(rows))

    def distances(self, rows: TraceRows) -> NDArray[np.float64]:
        """For each row, the largest relative squared distance of a coordinate from the span."""
        features, groups = features_of(rows, self.relations), self.relations.groups
        result = np.zeros(rows.queries.shape)
        for group in np.unique(groups):
            own = np.flatnonzero(np.tile(groups == group, len(result)))
            numbers = np.full(result.size, -1)
            numbers[own] = np.arange(len(own))
            part = features.renumbered(numbers)
            result.ravel()[own] = self.groups[int(group)].distances(part, len(own))
        return result.max(axis=1)


class EquationGroup:
    """Different equations of one group, numbered by their signatures."""

    def __init__(self) -> None:
        self._signatures = dict[int, int]()
        self._entries = list[RelationFeatures]()

    def add(
        self, features: RelationFeatures, signatures: NDArray[np.uint64], at: NDArray[np.int64]
    ) -> None:
        """Add those of the equations ``at`` whose signatures are new."""
        numbers = np.full(len(signatures), -1)
        for equation, signature in zip(at.tolist(), signatures[at].tolist(), strict=True):
            if signature not in self._signatures:
                self._signatures[signature] = numbers[equation] = len(self._signatures)
        self._entries.append(features.renumbered(numbers))

    @cached_property
    def solved(self) -> tuple[NDArray[np.int64], sparse.csr_array, NDArray[np.float64]]:
        """The relations that occur, in order, independent equations over them, and their factor."""
        rows, found, values = RelationFeatures.joined(self._entries)
        codes, columns = np.unique(found, return_inverse=True)
        shape = (len(self._signatures), len(codes))
        matrix = sparse.coo_array((values.astype(float), (rows, columns)), shape=shape).tocsr()
        # X X' (n, n); some columns of X at a time are dense, for which BLAS is made.
        by_column, gram = matrix.tocsc(), np.zeros((shape[0], shape[0]))
        step = max(1, DENSE_NUMBERS // max(1, shape[0]))
        for first in range(0, shape[1], step):
            some = by_column[:, first : first + step].toarray()
            gram += some @ some.T
        scale = np.sqrt(np.maximum(np.diag(gram), 1.0))
        gram /= np.outer(scale, scale)
        factor, pivots, rank, _ = lapack.dpstrf(gram, tol=DEPENDENT, lower=1)
        rank = int(rank) if gram.any() else 0
        chosen = pivots[:rank] - 1
        basis = sparse.diags_array(1 / scale[chosen]) @ matrix[chosen]
        return codes, basis, np.tril(factor[:rank, :rank])

    @property
    def rank(self) -> int:
        """How many equations are independent."""
        return len(self.solved[2])

    def distances(self, features: RelationFeatures, n: int) -> NDArray[np.float64]:
        """The relative squared distances (n,) of equations from the span."""
        codes, basis, factor = self.solved
        column = np.minimum(np.searchsorted(codes, features.codes), len(codes) - 1)
        is_known = codes[column] == features.codes
        values, rest = features.values.astype(np.float64), ~is_known
        known = sparse.coo_array(
            (values[is_known], (features.equations[is_known], column[is_known])),
            shape=(n, len(codes)),
        ).tocsr()
        norms = np.asarray(known.multiply(known).sum(axis=1)).ravel()
        norms = norms + np.bincount(features.equations[rest], values[rest] ** 2, minlength=n)
        inner = solve_triangular(factor, (basis @ known.T).toarray(), lower=True)
        left = norms - np.einsum("rn,rn->n", inner, inner)
        return np.where(norms > 0, np.maximum(left, 0.0) / np.where(norms > 0, norms, 1.0), 0.0)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed random permutation of 64-bit integers (splitmix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
