"""Structure: features that data never show, or show only as multiples of others.

That is no accident of the numbers: an in-context prompt asks with the label 0, and one-hot tokens
never have two ones.  Such features are found exactly, left out, and the verdict is about the rest:
whether all that the data show of a layer is determined.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.evidence import Evidence
from polyattn.certify.exact.structure import Multiple, multiples, occurring
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.certify.verified.gram import Gram
from polyattn.form.columns import Columns
from polyattn.form.layout import Layout
from polyattn.quoting import counted
from polyattn.stats.rows import Rows

# More coordinates than this are not named one by one.
MOST_NAMED = 6


@dataclass(frozen=True)
class Structure:
    """What is always zero or equal in the data, and the verdict on the rest.

    Attributes
    ----------
    n_zero, n_multiples : int
        Features that are zero in every row, and features that are multiples of others.
    rest : "identifiable" | "not_identifiable" | "undecided"
        Whether the data determine the coefficients of all other features.
    queries : tuple of int
        Entries of the query that are always zero.
    columns : tuple of int
        Columns of the tokens attended to that are always zero.
    """

    n_zero: int
    n_multiples: int
    rest: str
    queries: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {
            "n_zero": self.n_zero, "n_multiples": self.n_multiples, "rest": self.rest,
            "queries": list(self.queries), "columns": list(self.columns),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Structure:
        """The inverse of ``to_dict``."""
        lists = {name: tuple(content[name]) for name in ("queries", "columns")}
        return cls(**content | lists)

    def in_words(self, layout: Layout, n_features: int) -> str:
        """What never occurs, and what that leaves of so many features."""
        parts = []
        if self.n_zero:
            why, asked = [], [each for each in self.queries if each < len(layout.query)]
            if asked:
                places = [int(layout.query[each]) for each in asked]
                why.append(f"{_named(layout.columns, places)} of the query")
            if self.columns:
                seen = _named(layout.pair_columns, list(self.columns))
                why.append(f"{seen} of the tokens attended to")
            several = len(why) > 1 or len(asked) > 1 or len(self.columns) > 1
            reason = f": {' and '.join(why)} {'are' if several else 'is'} always zero"
            reason = reason if why else ""
            verb = "never occurs" if self.n_zero == 1 else "never occur"
            parts.append(f"{counted(self.n_zero, 'feature')} {verb} in the data{reason}")
        if self.n_multiples:
            verb = "is" if self.n_multiples == 1 else "are"
            parts.append(
                f"{counted(self.n_multiples, 'feature')} {verb} always a multiple of another"
            )
        rest = {
            IDENTIFIABLE: "all others are determined: layers of least squared error agree wherever "
            "the same holds",
            NOT_IDENTIFIABLE: "the others are not all determined either",
        }.get(self.rest, "whether all others are determined is open")
        if self.n_zero == n_features:
            rest = "there are no others, so that the data say nothing of the layer"
        return f"{', and '.join(parts)}; {rest}."


@dataclass(frozen=True, eq=False)
class FeatureRelations:
    """What holds among the features of a space in every row, by their places."""

    zero: NDArray[np.intp]
    equal: list[Multiple] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(len(self.zero) or self.equal)

    def kept(self, dimension: int) -> NDArray[np.intp]:
        """The features that are neither zero nor a multiple of another."""
        left = np.ones(dimension, dtype=bool)
        left[self.zero] = False
        left[[each.column for each in self.equal]] = False
        return np.flatnonzero(left)

    def direction(self, dimension: int) -> tuple[int, ...]:
        """The simplest vector (m,) that every row is orthogonal to."""
        vector = [0] * dimension
        if len(self.zero):
            vector[int(self.zero[0])] = 1
            return tuple(vector)
        least = min(self.equal, key=lambda each: abs(each.factor) + abs(each.other_factor))
        return self.vector_of(least, dimension)

    @staticmethod
    def vector_of(multiple: Multiple, dimension: int) -> tuple[int, ...]:
        """The two entries of one relation."""
        vector = [0] * dimension
        vector[multiple.column], vector[multiple.other] = multiple.factor, -multiple.other_factor
        return tuple(vector)

    def expansion(self, dimension: int) -> csr_array:
        """How all features (m,) follow from those that are kept: (m, kept)."""
        kept = self.kept(dimension)
        rows, others = kept.tolist(), list(kept)
        factors = [1.0] * len(kept)
        for each in self.equal:
            rows.append(each.column)
            others.append(each.other)
            factors.append(each.other_factor / each.factor)
        columns = np.searchsorted(kept, others)
        return csr_array((factors, (rows, columns)), shape=(dimension, len(kept)))

    def within(self, places: NDArray[np.intp]) -> FeatureRelations:
        """The same of a larger space, in which the features of this one have these places."""
        equal = [
            replace(each, column=int(places[each.column]), other=int(places[each.other]))
            for each in self.equal
        ]
        return FeatureRelations(places[self.zero], equal)


@dataclass(frozen=True, eq=False)
class RemainingEvidence(Evidence):
    """Evidence on some of the features of another, whose sums it shares."""

    whole: Evidence
    places: NDArray[np.intp]

    @classmethod
    def of(cls, whole: Evidence, places: NDArray[np.intp]) -> RemainingEvidence:
        """Evidence on the features at these places."""
        return cls(whole.source, whole.space.only(places), whole, places)

    @cached_property
    def gram(self) -> Gram:
        all_of_them = self.whole.gram
        matrix = all_of_them.matrix[np.ix_(self.places, self.places)]
        taken_out = all_of_them.subtracted
        return replace(
            all_of_them,
            matrix=matrix,
            magnitudes=all_of_them.magnitudes[self.places],
            subtracted=None if taken_out is None else taken_out[self.places],
        )


def zero_features(evidence: Evidence) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    """The places of features that never occur, and the entries of the query that are always zero.

    Sums know which features never had a term, and not what the queries were.
    """
    if isinstance(evidence.source, Rows):
        found, asked = occurring(evidence.exact_rows)
        return np.flatnonzero(~found), tuple(np.flatnonzero(~asked).tolist())
    return np.flatnonzero(evidence.source.absent[evidence.space.columns]), ()


def equal_features(evidence: Evidence) -> list[Multiple]:
    """Features that are multiples of others in every row; sums do not show them."""
    return [] if evidence.rows is None else multiples(evidence.exact_rows)


def zero_columns(evidence: Evidence) -> tuple[int, ...]:
    """Columns of the tokens attended to that are zero in every token, before any rounding."""
    if evidence.rows is not None:
        sizes = evidence.exact_rows.attended.extents.largest
    else:
        sizes = evidence.source.coordinate_sizes[-evidence.space.layout.pair_columns.n_columns :]
    return tuple(np.flatnonzero(sizes == 0).tolist())


def seen_part(
    difference: NDArray[np.float64], space: FeatureSpace, relations: FeatureRelations | None
) -> NDArray[np.float64]:
    """The part of coefficients (p, e) that shows: the projection on what the features span.

    They span less where features depend on others on the domain, and where some are zero in the
    data, or multiples of others.
    """
    if not space.is_whole:
        spanning = space.expansion
        if relations is not None:
            spanning = spanning @ relations.expansion(space.dimension)
        basis, _ = np.linalg.qr(spanning.toarray())
        return np.asarray(basis @ (basis.T @ difference))
    if relations is None:
        return difference
    # Columns of this expansion have no row in common: they are orthogonal.
    spanning = relations.expansion(space.dimension)
    sizes = np.asarray(spanning.power(2).sum(axis=0)).ravel()
    return np.asarray(spanning @ ((spanning.T @ difference) / sizes[:, None]))


def _named(columns: Columns, which: list[int]) -> str:
    """The coordinates behind columns, in words."""
    coordinates = np.arange(columns.n_dims) if columns.coordinates is None else columns.coordinates
    if any(each >= len(coordinates) for each in which):
        return f"{counted(len(which), 'number')} seen"
    numbers = [str(int(coordinates[each])) for each in which]
    if len(numbers) > MOST_NAMED:
        return f"{len(numbers)} coordinates"
    return f"coordinate{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
