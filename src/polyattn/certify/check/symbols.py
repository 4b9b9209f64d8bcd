"""What a certificate of token ids claims, recomputed; each objection in words.

Counts are made anew, distance by distance, and ranks modulo a fresh prime, by an elimination that
certificates do not use.  Nothing that makes certificates is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.certify.check.domains import CheckedDomain
from polyattn.certify.check.features import EXTRA_ROWS, product, random_prime, rank_of, reduce
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.sequences import SequenceBatch

# Numbers of a table of counts that are made together.
TABLE_NUMBERS = 1 << 22

# Integers below this are exact in float64, and so are their sums.
EXACT = 2.0**53

# Steps of a power iteration, and how far its estimate may be off.
STEPS, TOLERANCE = 40, 0.05

# A direction of more bits is checked modulo so many random primes only.
MOST_PRIMES = 48


@dataclass(frozen=True, eq=False)
class SymbolClaims:
    """A certificate of token ids whose sizes are right, the ids, and the domain."""

    certificate: Any
    batch: SequenceBatch
    domain: CheckedDomain
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    @property
    def ids(self) -> NDArray[np.int64]:
        tokens = self.batch.values
        assert isinstance(tokens, OneHotTokens)  # noqa: S101 - the caller has looked
        return tokens.ids.astype(np.int64)

    @cached_property
    def asking(self) -> dict[int, NDArray[np.int64]]:
        """The tokens at which outputs are predicted, by their symbol."""
        last = self.certificate.mode == "last"
        tokens = self.batch.offsets[1:] - 1 if last else np.arange(len(self.batch.values))
        symbols = self.ids[tokens]
        order = np.argsort(symbols, kind="stable")
        queries, starts = np.unique(symbols[order], return_index=True)
        parts = np.split(tokens[order], starts[1:])
        return dict(zip(queries.tolist(), parts, strict=True))

    @cached_property
    def occurring(self) -> dict[int, NDArray[np.bool_]]:
        """Which symbols (d,) are attended to, by the symbol that asks."""
        return {
            query: np.any([table.any(axis=0) for table in self.tables(query)], axis=0)
            for query in self.asking
        }

    @cached_property
    def n_occurring(self) -> int:
        return sum(int(np.count_nonzero(each)) for each in self.occurring.values())

    def tables(self, query: int) -> Iterator[NDArray[np.float64]]:
        """Counts (rows, d) of the positions at which a symbol asks, some at a time."""
        tokens, offsets, ids = self.asking[query], self.batch.offsets, self.ids
        step = max(1, TABLE_NUMBERS // self.batch.n_dims)
        for first in range(0, len(tokens), step):
            some = tokens[first : first + step]
            sequence = np.searchsorted(offsets, some, side="right") - 1
            begin, end = offsets[sequence], offsets[sequence + 1]
            table = np.zeros((len(some), self.batch.n_dims))
            ahead = (end - some).max() if self.certificate.mode == "full" else 1
            for distance in range(1 - int(ahead), int((some - begin).max()) + 1):
                seen = some - distance
                inside = np.flatnonzero((seen >= begin) & (seen < end))
                np.add.at(table, (inside, ids[seen[inside]]), 1.0)
            yield table

    def rank_modulo(self, prime: int) -> int:
        """The rank of all features modulo a prime: the sum over symbols that ask."""
        return sum(self._rank_of(query, prime) for query in self.asking)

    def objections(self) -> Iterator[str]:
        """All that does not hold."""
        certificate = self.certificate
        if certificate.n_occurring != self.n_occurring:
            yield f"{self.n_occurring} features occur, not {certificate.n_occurring}."
        rank = self.rank_modulo(random_prime(self.rng, certificate.prime))
        if certificate.rank != rank:
            yield f"the rank is {rank}, not {certificate.rank}."
        if certificate.verdict == "identifiable" and rank != certificate.dimension:
            yield (
                f"the data do not determine the layer: their features have rank {rank} of "
                f"{certificate.dimension}."
            )
        if certificate.verdict == "not_identifiable":
            yield from self._direction()
        elif certificate.unseen is not None:
            yield "a direction that data do not see contradicts the verdict."
        if certificate.structure is not None:
            yield from self._structure(certificate.structure, rank)
        yield from self._spectrum()

    def _rank_of(self, query: int, prime: int) -> int:
        columns = np.flatnonzero(self.occurring[query])
        if len(self.asking[query]) <= len(columns) + EXTRA_ROWS:
            rows = np.concatenate([each[:, columns] for each in self.tables(query)])
            return rank_of(rows, prime)
        # Random combinations of all rows: their rank is that of the rows, or less.
        combined, half = np.zeros((len(columns) + EXTRA_ROWS, len(columns))), prime // 2
        for table in self.tables(query):
            weights = self.rng.integers(-half, half + 1, (len(combined), len(table)))
            combined += _combinations(weights.astype(np.float64), table[:, columns], prime)
            reduce(combined, prime)
        return rank_of(combined, prime)

    def _direction(self) -> Iterator[str]:
        certificate, unseen = self.certificate, self.certificate.unseen
        if certificate.method == "count" and certificate.n_rows >= certificate.dimension:
            yield (
                f"{certificate.n_rows} rows are not fewer than {certificate.dimension} dimensions."
            )
        if unseen is None:
            # With fewer rows than dimensions there always is one.
            if certificate.n_rows >= certificate.dimension:
                yield "there is no direction that the data do not see."
            return
        shown = self._shown(dict(zip(unseen.features, unseen.integers, strict=True)))
        if not shown:
            yield "the direction has no effect anywhere in the domain."
        on_data: dict[int, dict[int, int]] = {}
        for (j, k, query), entry in zip(unseen.features, unseen.integers, strict=True):
            # One-hot tokens show products of a coordinate with itself alone.
            if j == k:
                on_data.setdefault(query, {})[j] = entry
        if any(self._has_effect(query, each) for query, each in on_data.items()):
            yield "the direction has an effect on the data."

    def _shown(self, entries: dict[tuple[int, int, int], int]) -> bool:
        """Whether a direction has an effect on some sequence of the domain."""
        single = self.domain.most == 1
        if self.domain.is_one_hot:
            known = [(j, k, query) for j, k, query in entries if entries[j, k, query] and j == k]
            return any(j == query for j, _, query in known) if single else bool(known)
        sums: dict[tuple[int, ...], int] = {}
        for feature, entry in entries.items():
            # One token alone shows x_j x_k x_l, in whatever order.
            place = tuple(sorted(feature)) if single else feature
            sums[place] = sums.get(place, 0) + entry
        return any(sums.values())

    def _has_effect(self, query: int, entries: dict[int, int]) -> bool:
        if query not in self.asking:
            return False
        columns = np.array(sorted(entries))
        bits = max(abs(entry) for entry in entries.values()).bit_length() + 64
        for _ in range(min(bits // 22 + 1, MOST_PRIMES)):
            prime = random_prime(self.rng)
            vector = np.array([[float(entries[each] % prime)] for each in columns.tolist()])
            reduce(vector, prime)
            if any(product(t[:, columns], vector, prime).any() for t in self.tables(query)):
                return True
        return False

    def _structure(self, structure: Any, rank: int) -> Iterator[str]:
        left = self.certificate.dimension - structure.n_zero
        if structure.n_multiples or left != self.n_occurring:
            yield f"{self.n_occurring} features occur, and {left} would not be zero."
        rest = "identifiable" if rank == self.n_occurring else "not_identifiable"
        if structure.rest not in (rest, "undecided"):
            yield f"of the features that occur the verdict is {rest!r}, not {structure.rest!r}."
        symbols = np.arange(self.batch.n_dims)
        queries = tuple(np.setdiff1d(symbols, list(self.asking)).tolist())
        seen = np.any(list(self.occurring.values()), axis=0)
        columns = tuple(symbols[~seen].tolist())
        if (structure.queries, structure.columns) != (queries, columns):
            yield "the symbols that never ask, or are never attended to, are others."

    def _spectrum(self) -> Iterator[str]:
        certificate = self.certificate
        least, most = np.inf, 0.0
        identifiable = certificate.verdict == "identifiable"
        for query in self.asking:
            columns = np.flatnonzero(self.occurring[query])
            parts = (csr_array(each[:, columns]) for each in self.tables(query))
            gram = sum((each.T @ each).toarray() for each in parts)
            if identifiable:
                least = min(least, float(np.linalg.eigvalsh(gram)[0]))
            most = max(most, _power_iteration(np.asarray(gram)))
        wanted = {"lambda_min": least / certificate.n_rows if identifiable else 0.0}
        wanted["lambda_max"] = most / certificate.n_rows
        for name, found in wanted.items():
            claimed = getattr(certificate, name)
            if claimed is None or not abs(claimed - found) <= TOLERANCE * found:
                yield f"{name} is about {found:.6g}, not {claimed}."


def _combinations(weights: NDArray, table: NDArray, prime: int) -> NDArray[np.float64]:
    """weights @ table modulo the prime; most counts are zero, and their products left out."""
    if float(table.sum(axis=0).max(initial=0.0)) * prime >= EXACT:
        return product(weights, table, prime)
    return reduce(np.ascontiguousarray((csr_array(table).T @ weights.T).T), prime)


def _power_iteration(gram: NDArray) -> float:
    """The largest eigenvalue of a matrix of positive numbers, nearly."""
    vector = np.ones(len(gram))
    for _ in range(STEPS):
        vector = gram @ (vector / np.linalg.norm(vector))
    vector /= np.linalg.norm(vector)
    return float(vector @ gram @ vector)
