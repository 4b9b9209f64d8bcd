"""Evidence: the data or sums behind a certificate, and what was computed from them, once.

Whether it lies in the domain, data say token by token.  Sums know the longest sequence, and
whether the relations of the domain's features hold over all rows: the sum of (psi_f - sum of its
representatives)^2 is zero iff they do, and it is made of entries of the Gram.  Rounding may hide a
small violation, so what passes remains a premise, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.certify.domains import Domain
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.domains.tokens import Real, TokenDomain
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.verified.gram import Definite, Gram, gram_of, prove_definite, whole_matrix
from polyattn.certify.verified.rounding import feature_depth, gamma, longest
from polyattn.certify.verified.triangular import Triangle, triangle_of_rows, triangular_factor
from polyattn.errors import InvalidInput
from polyattn.features.summaries import SeenSequences
from polyattn.numerics.arrays import float64_holds, pieces
from polyattn.sequences import SequenceBatch
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# Up to this many features the rank of few rows is worth a singular value decomposition.
RANKED_COLUMNS = 4096

# A singular value of this share of the largest is zero for every purpose, and so is one of the
# second share times the root of the number of rows, which rounding errors grow with.
NEGLIGIBLE, NEGLIGIBLE_PER_ROOT = 2.0**-48, 2.0**-50

# If the largest product of a token and a matrix is above this, what underflow does to products,
# 2^-1074, is far below their rounding even in rows or features that are smaller by 2^610.
LEAST_PRODUCT = 2.0**-400


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sequences or their sums, seen through a space of features.

    Features are those of tokens divided by 2**token_exponent.
    """

    source: Rows | Moments | TriangularFactor
    space: FeatureSpace

    @property
    def rows(self) -> Rows | None:
        """The sequences, unless only their sums are known."""
        return self.source if isinstance(self.source, Rows) else None

    @cached_property
    def exact_rows(self) -> FeatureRows:
        """The space's features of the sequences, for exact arithmetic; sums have none."""
        rows = self.rows
        assert rows is not None  # noqa: S101 - sums are rounded already
        return FeatureRows(rows.batch, self.space.columns, rows.layout, rows.context)

    @cached_property
    def in_float64(self) -> bool:
        """Whether float64 holds every column; integers beyond 2^53 it may not.

        Nor does it hold products of small tokens with a small matrix, which are made before powers
        of two are taken out: below 2^-1022 they lose digits.
        """
        layout, largest = self.source.layout, float(self.source.coordinate_sizes.max())
        maps = layout.columns.maps + layout.pair_columns.maps
        lost = largest < LEAST_PRODUCT and any(isinstance(map_, np.ndarray) for _, map_, _ in maps)
        return not lost and all(float64_holds(batch.values) for batch in self.batches)

    @property
    def batches(self) -> list[SequenceBatch]:
        """The sequences, and those they attend to if these are others; none of sums."""
        rows = self.rows
        if rows is None:
            return []
        return [rows.batch] if rows.context is None else [rows.batch, rows.context]

    @cached_property
    def rounded(self) -> NDArray[np.bool_]:
        """Which coordinates look rounded, of the tokens (d,), then of the context.

        Others are exactly what they are.
        """
        if self.rows is None:
            return np.ones(self.source.n_dims, dtype=bool)
        rows, own = self.exact_rows, self.exact_rows.tokens.rounded
        return own if rows.context is None else np.append(own, rows.attended.rounded)

    @cached_property
    def is_integer_data(self) -> bool:
        """Whether the columns hold powers of two times small integers."""
        rows = self.exact_rows
        whole = all(each.are_small_integers for each in (rows.tokens, rows.attended))
        return whole and all(scale.decay == 1.0 for scale in rows.layout.form.scales)

    @property
    def token_exponent(self) -> int:
        return self.source.token_exponent or 0

    @cached_property
    def token_size(self) -> float:
        """The root mean square of a coordinate of the scaled tokens; 1 where unknown or zero."""
        if self.rows is None:
            return 1.0
        power, size = 0.0, sum(batch.values.size for batch in self.batches)
        for piece in (piece for batch in self.batches for piece in pieces(batch.values)):
            power += float(np.sum(np.ldexp(piece.astype(np.float64), -self.token_exponent) ** 2))
        return float(np.sqrt(power / size)) or 1.0

    @cached_property
    def gram(self) -> Gram:
        return gram_of(self.source, self.space)

    @cached_property
    def definite(self) -> Definite | None:
        """The proof of definiteness from the Gram, if there is one."""
        return prove_definite(self.gram) if self.in_float64 else None

    @cached_property
    def triangle(self) -> Triangle | None:
        """The triangular factor of the features; moments alone cannot give one."""
        if isinstance(self.source, Rows):
            return triangle_of_rows(self.source, self.space)
        if isinstance(self.source, TriangularFactor):
            factor = self.source.scaled_factor()
            if not self.space.is_whole:
                factor = triangular_factor([factor[:, self.space.columns]])
            return Triangle(factor * self.gram.scale, self.gram.scale, self.gram.feature_size)
        return None

    @cached_property
    def tolerance(self) -> float:
        """A quarter of what rounding may do to all features, as a norm over the rows.

        Layers that differ by D v, ||v|| = 1, with ||Phi D v|| below this agree on the data as far
        as float64 can tell.
        """
        depth = self.space.dimension + feature_depth(self.space.layout, longest(self.source))
        sized = self.gram if self.triangle is None else self.triangle
        return 0.25 * gamma(depth) * sized.feature_size

    @cached_property
    def null_basis(self) -> NDArray[np.float64]:
        """Directions D v (m, k) with Phi D v = 0 up to rounding, the v orthonormal."""
        return self.least_seen()

    def least_seen(self, count: int | None = None) -> NDArray[np.float64]:
        """The ``null_basis``; or so many directions, where their number is known better."""
        if self.triangle is not None:
            scale, (sizes, vectors) = self.triangle.scale, self.triangle.singular
            share = max(NEGLIGIBLE, NEGLIGIBLE_PER_ROOT * np.sqrt(self.source.n_rows))
            columns, error, least = vectors.T, self.tolerance, share * sizes[0]
        else:
            scale = self.gram.scale
            sizes, columns = np.linalg.eigh(self.gram.scaled(scale))
            error, least = self.gram.error(scale), NEGLIGIBLE * sizes[-1]
        rounding = max(error, least)
        unseen = sizes <= rounding if count is None else np.argsort(sizes)[:count]
        return scale[:, None] * columns[:, unseen]

    def features_of(
        self, sequences: SequenceBatch, context: SequenceBatch | None = None
    ) -> Iterator[NDArray[np.float64]]:
        """The space's features (m, rows) of other sequences, block by block."""
        seen = SeenSequences(self.source.layout, sequences, context, self.token_exponent)
        for block in seen.blocks():
            yield self.space.features(block.sums, block.queries)

    @property
    def rank(self) -> int:
        """The numerical rank: singular values of the features above rounding."""
        return self.space.dimension - self.null_basis.shape[1]

    def unseen_direction(self) -> NDArray[np.float64]:
        """A vector (m,) that the features of few rows do not see, up to rounding.

        Any N + 1 features suffice, so wide tokens cost N^3, not p^3.
        """
        rows, size = self.rows, self.space.dimension
        if rows is None or size <= RANKED_COLUMNS:
            return self.null_basis[:, -1]
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.choice(size, rows.n_rows + 1, replace=False))
        sums, query = (each[chosen] for each in self.space.factors)
        blocks = [block.sums[sums] * block.queries[query] for block in rows.blocks()]
        phi = np.concatenate(blocks, axis=1)
        sizes = np.abs(phi).max(axis=1)
        scale = np.ldexp(1.0, -np.frexp(np.where(sizes > 0, sizes, 1.0))[1])
        # The last column of the orthogonal factor is orthogonal to all rows.
        orthogonal = qr(scale[:, None] * phi)[0][:, -1]
        direction = np.zeros(size)
        direction[chosen] = scale * orthogonal
        return direction


def require_inside(evidence: Evidence, domain: Domain) -> str:
    """Refuse evidence that contradicts the domain; the premise that remains, in words, or ""."""
    statistics, space = evidence.source, evidence.space
    for batch, name in zip(evidence.batches, ("X", "context"), strict=False):
        domain.require_inside(batch, name)
    if isinstance(statistics, Rows) or not isinstance(domain, TokenDomain):
        return ""
    _, most = domain.length_range
    if most is not None and statistics.max_length > most:
        raise InvalidInput(
            f"the sums hold a sequence of {statistics.max_length} tokens, more than the domain "
            f"{domain} allows; choose a domain that holds your data."
        )
    if isinstance(domain, Real):
        return ""  # every token is real, and the longest sequence is known
    whole = whole_matrix(statistics)
    depth = evidence.gram.depth + len(whole)
    # sum (psi_f - (E phi)_f)^2 over rows, for each of the p features.
    E, with_kept = space.expansion, whole[:, space.columns]
    mixed = np.asarray(E.multiply(with_kept).sum(axis=1)).ravel()
    expanded = np.asarray(E.multiply(E @ with_kept[space.columns]).sum(axis=1)).ravel()
    violations = whole.diagonal() - 2.0 * mixed + expanded
    # Within 16 roundings of all features they are not seen.
    added = np.trace(whole)
    if statistics.subtracted is not None:
        added += statistics.subtracted[: len(whole)].sum()
    if np.max(violations) > 16.0 * gamma(depth) * added:
        raise InvalidInput(
            f"the sums are not those of sequences of the domain {domain.name!r}: features that are "
            "equal on it differ; choose a domain that holds your data, such as 'real'."
        )
    return "Sums cannot show that every token lies in the domain: that is taken from you."
