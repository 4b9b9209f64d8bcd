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

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack, solve_triangular

from polyattn.programs.certificates.certify_traces import statuses
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rules.relations import Relations, SizedRelations
from polyattn.programs.traces import Trace, TraceRows

# Pivots below this share of the largest are rounding: features are small integers.
DEPENDENT = 1e-11

# Numbers of a sparse matrix that are made dense at a time.
DENSE_NUMBERS = 1 << 23


@dataclass(frozen=True, eq=False)
class RelationFeatures:
    """The features of rows, as entries (equation, relation, value).

    equations : array (n,), row times d plus the coordinate a
    codes : array (n,), relations
    values : array (n,) of integers
    """

    equations: NDArray[np.int64]
    codes: NDArray[np.int64]
    values: NDArray[np.int64]


@dataclass
class EquationGroup:
    """Different equations of one group, numbered by their signatures."""

    signatures: dict[int, int] = field(default_factory=dict)
    entries: list[RelationFeatures] = field(default_factory=list)

    def matrix(self) -> tuple[NDArray[np.int64], sparse.csr_array]:
        """The relations that occur, in order, and the equations (n, relations) over them."""
        codes, columns = np.unique(
            np.concatenate([each.codes for each in self.entries]), return_inverse=True
        )
        rows = np.concatenate([each.equations for each in self.entries])
        values = np.concatenate([each.values for each in self.entries]).astype(np.float64)
        shape = (len(self.signatures), len(codes))
        return codes, sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()


def features_of(rows: TraceRows, relations: SizedRelations) -> RelationFeatures:
    """The features of rows of one schema.

    Cost: O(m d p q) for m rows of d coordinates with p non-zero pairs and q in the last token.
    """
    d = rows.queries.shape[1]
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for last in np.flatnonzero(rows.queries.any(axis=0)):
        here = np.flatnonzero(rows.queries[:, last])
        first, second = np.nonzero(np.triu((rows.grams[here] != 0).any(axis=0)))
        codes = relations.code(np.arange(d)[:, None], first, second, np.array(last))
        local, inverse = np.unique(codes, return_inverse=True)
        inverse = inverse.reshape(codes.shape)
        for row in here:
            values = np.rint(rows.grams[row, first, second] * rows.queries[row, last])
            at = (np.arange(d)[:, None] * len(local) + inverse).ravel()
            total = np.bincount(
                at, weights=np.broadcast_to(values, codes.shape).ravel(), minlength=d * len(local)
            )
            kept = np.flatnonzero(total)
            found.append(
                (
                    row * d + kept // len(local),
                    local[kept % len(local)],
                    total[kept].astype(np.int64),
                )
            )
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return RelationFeatures(nothing, nothing, nothing)
    return RelationFeatures(*(np.concatenate(each) for each in zip(*found, strict=True)))


def collect(relations: Relations, traces: Sequence[Trace]) -> dict[int, EquationGroup]:
    """The different equations of all traces, group by group."""
    groups: dict[int, EquationGroup] = {}
    for trace in traces:
        rows, sized = TraceRows.of(trace), relations.at(trace.schema)
        features = features_of(rows, sized)
        signs = signatures(features, rows.queries.size)
        for group in np.unique(sized.groups):
            at = np.flatnonzero(np.tile(sized.groups == group, len(rows.queries)))
            _add(groups.setdefault(int(group), EquationGroup()), features, signs, at)
    return groups


def signatures(features: RelationFeatures, n_equations: int) -> NDArray[np.uint64]:
    """One number for each equation; equations with equal features have equal ones.

    The sum over relations of value times a random number of 64 bits, modulo 2^64: two different
    equations share it with probability 2^-64 or so.
    """
    result = np.zeros(n_equations, dtype=np.uint64)
    mixed = _mix(features.codes.astype(np.uint64))
    np.add.at(result, features.equations, mixed * features.values.astype(np.uint64))
    return result


def _add(
    group: EquationGroup,
    features: RelationFeatures,
    signs: NDArray[np.uint64],
    at: NDArray[np.int64],
) -> None:
    fresh: dict[int, int] = {}
    for equation, sign in zip(at.tolist(), signs[at].tolist(), strict=True):
        if sign not in group.signatures:
            group.signatures[sign] = fresh[equation] = len(group.signatures)
    chosen = np.flatnonzero(np.isin(features.equations, np.fromiter(fresh, dtype=np.int64)))
    number = np.zeros(len(signs), dtype=np.int64)
    number[list(fresh)] = list(fresh.values())
    group.entries.append(
        RelationFeatures(
            number[features.equations[chosen]], features.codes[chosen], features.values[chosen]
        )
    )


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed random permutation of 64-bit integers (splitmix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class RelationSpan:
    """The span of the training equations.

    Parameters
    ----------
    relations : which coefficients have one value
    groups : the different training equations, group by group

    Guarantee: with integers as features, floating point is used for the distance alone; a row is
    called inside below 1e-10 of its own square, outside above 1e-6, and undecided between.
    Cost: O(n r^2) for n different equations of rank r, in each group.
    """

    def __init__(self, relations: Relations, groups: dict[int, EquationGroup]) -> None:
        self.relations, self._groups = relations, groups
        self._solved: dict[int, _SolvedGroup] = {}

    @classmethod
    def of(cls, schema: Schema, traces: Sequence[Trace], *, max_offset: int = 3) -> RelationSpan:
        """The span of the equations of traces."""
        relations = Relations(schema, max_offset)
        return cls(relations, collect(relations, traces))

    @property
    def rank(self) -> int:
        """The dimension of the span, over all groups."""
        return sum(self._group(group).rank for group in self._groups)

    @property
    def n_relations(self) -> int:
        """The relations that occur in training equations: the unknowns."""
        return sum(len(self._group(group).codes) for group in self._groups)

    def at(self, schema: Schema) -> SizedSpan:
        """The span as it looks to rows of a schema of any sizes."""
        return SizedSpan(self, schema)

    def _group(self, group: int) -> _SolvedGroup:
        if group not in self._solved:
            self._solved[group] = _SolvedGroup(self._groups[group])
        return self._solved[group]


@dataclass(frozen=True, eq=False)
class SizedSpan:
    """A span for the rows of one schema."""

    span: RelationSpan
    schema: Schema

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return self.span.rank

    def inside(self, rows: TraceRows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided"; targets are not looked at."""
        return statuses(self.distances(rows))

    def distances(self, rows: TraceRows) -> NDArray[np.float64]:
        """For each row, the largest relative squared distance of a coordinate from the span."""
        sized = self.span.relations.at(self.schema)
        features = features_of(rows, sized)
        result = np.zeros(rows.queries.shape)
        group_of = np.tile(sized.groups, len(result))
        for group in np.unique(sized.groups):
            own = np.flatnonzero(group_of == group)
            number = np.full(result.size, -1)
            number[own] = np.arange(len(own))
            chosen = np.flatnonzero(number[features.equations] >= 0)
            part = RelationFeatures(
                number[features.equations[chosen]],
                features.codes[chosen],
                features.values[chosen],
            )
            result.ravel()[own] = self.span._group(int(group)).distances(part, len(own))
        return result.max(axis=1)


class _SolvedGroup:
    """One group of equations: codes, a well-conditioned choice of rows, their factor."""

    def __init__(self, group: EquationGroup) -> None:
        self.codes, matrix = group.matrix()
        gram = _gram(matrix)
        scale = np.sqrt(np.maximum(np.diag(gram), 1.0))
        gram /= np.outer(scale, scale)
        factor, pivots, rank, _ = lapack.dpstrf(gram, tol=DEPENDENT, lower=1)
        self.rank = int(rank) if gram.any() else 0
        chosen = pivots[: self.rank] - 1
        self._factor = np.tril(factor[: self.rank, : self.rank])
        self._basis = sparse.diags_array(1 / scale[chosen]) @ matrix[chosen]

    def distances(self, features: RelationFeatures, n: int) -> NDArray[np.float64]:
        known, unknown = self._split(features, n)
        norms = np.asarray(known.multiply(known).sum(axis=1)).ravel() + unknown
        inner = solve_triangular(self._factor, (self._basis @ known.T).toarray(), lower=True)
        left = norms - np.einsum("rn,rn->n", inner, inner)
        return np.where(norms > 0, np.maximum(left, 0.0) / np.where(norms > 0, norms, 1.0), 0.0)

    def _split(
        self, features: RelationFeatures, n: int
    ) -> tuple[sparse.csr_array, NDArray[np.float64]]:
        """Features over known relations (n, relations), and the power of the unknown ones."""
        column = np.searchsorted(self.codes, features.codes)
        column = np.minimum(column, len(self.codes) - 1)
        is_known = self.codes[column] == features.codes
        values = features.values.astype(np.float64)
        shape = (n, len(self.codes))
        known = sparse.coo_array(
            (values[is_known], (features.equations[is_known], column[is_known])), shape=shape
        ).tocsr()
        rest = ~is_known
        unknown = np.zeros(n)
        np.add.at(unknown, features.equations[rest], values[rest] ** 2)
        return known, unknown


def _gram(matrix: sparse.csr_array) -> NDArray[np.float64]:
    """X X' (n, n); some columns of X at a time are dense, for which BLAS is made."""
    columns, gram = matrix.tocsc(), np.zeros((matrix.shape[0],) * 2)
    step = max(1, DENSE_NUMBERS // max(1, matrix.shape[0]))
    for first in range(0, matrix.shape[1], step):
        some = columns[:, first : first + step].toarray()
        gram += some @ some.T
    return gram
