"""The equations of rows over relations: one for each row and each coordinate that is written.

    y[a] = sum over relations c of  w[c] * phi[c],
    phi[c] = sum of G[j, k] x[l] over j <= k and l with relation (a, j, k, l) = c

A relation names what is written, so equations that write another attribute or another name share
no unknown: they form separate **groups**.  Equations with equal features are kept once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.learning.rules.relations import Relations, SizedRelations
from polyattn.programs.traces import Trace, TraceRows


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
