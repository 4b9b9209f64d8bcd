"""The span of the training rows, in floating point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.certificates.spans import FLOATING_POINT, statuses
from polyattn.programs.learning.rows import Rows
from polyattn.programs.learning.untied.basis import Basis, unit_rows
from polyattn.programs.learning.untied.features import ActivePairs, Features, Source
from polyattn.programs.learning.untied.types import TokenTypes
from polyattn.progress import report

# Rows that are tested together.
BLOCK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Span:
    """The span of the features vech(G) ⊗ x of training rows, type by type.

    Guarantee: a row is called inside if its squared distance from the span is below 1e-10 of
    its square, outside above 1e-6 or if it has a pair or a last token that training never had,
    undecided between; ``gap`` says how clear the rank itself is.  For proofs see ``ExactSpan``.
    """

    features: Features
    types: TokenTypes
    bases: tuple[Basis, ...]
    arithmetic = FLOATING_POINT

    @classmethod
    def of(cls, training: Iterable[Source] | Features) -> Span:
        """The span of traces (or of their rows).

        Cost: N r^2 flops for N rows of rank r in each type, r^2 numbers for each type.
        """
        features = training if isinstance(training, Features) else Features.of(training)
        types = TokenTypes.of(features.queries)
        kinds = types.assign(features.queries)
        bases, done = [], 0
        for kind in range(types.n_types):
            numbers = np.flatnonzero(kinds == kind)
            rows = features.take(numbers)
            bases.append(Basis.choose(features.active, rows.pairs, rows.queries, numbers))
            done += len(numbers)
            report(done, len(features))
        return cls(features, types, tuple(bases))

    @property
    def active(self) -> ActivePairs:
        """The pairs that occur in training."""
        return self.features.active

    @cached_property
    def rank(self) -> int:
        """The number of independent rows."""
        return sum(basis.rank for basis in self.bases)

    @property
    def n_rows(self) -> int:
        """N, the training rows."""
        return len(self.features)

    @property
    def n_traces(self) -> int:
        """M, the training traces."""
        return self.features.n_traces

    @property
    def gap(self) -> tuple[float, float]:
        """Squared distances: the largest of a row called dependent, the least of one called not."""
        most = max((basis.most for basis in self.bases), default=0.0)
        return most, min((basis.least for basis in self.bases), default=1.0)

    def inside(self, rows: Rows) -> NDArray[np.str_]:
        """For each row "inside", "outside" or "undecided".

        Cost: r^2 flops per row for the rank r of its type.
        """
        return statuses(self.distances(rows))

    def distances(self, rows: Rows) -> NDArray[np.float64]:
        """The relative squared distance (m,) of each row from the span; 1 for what is new."""
        result = np.ones(len(rows.queries))
        familiar = ~(self.active.strangers(rows.grams) | self.types.strangers(rows.queries))
        numbers = np.flatnonzero(familiar)
        for first in range(0, len(numbers), BLOCK_ROWS):
            some = numbers[first : first + BLOCK_ROWS]
            pairs = self.active.of_grams(rows.grams[some])
            result[some] = self._distances(pairs, np.asarray(rows.queries[some], np.float64))
        return result

    def _distances(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """The largest distance of the parts of each row; zero for a row without features."""
        result = np.zeros(len(queries))
        for kind, basis in enumerate(self.bases):
            part = self.types.part(queries, kind)
            held = np.flatnonzero(part.any(axis=1) & pairs.any(axis=1))
            unit = unit_rows(self.active, pairs[held], part[held])
            result[held] = np.maximum(result[held], np.abs(basis.residuals(*unit)))
        return result

    def add(self, training: Iterable[Source]) -> Span:
        """The span with further traces; new pairs and new kinds of tokens are welcome.

        Cost: that of a new span of all rows.
        """
        listed = list(training)
        if not listed:
            raise InvalidInput("add needs at least one trace; got none.")
        return Span.of(self.features.joined(listed))
