"""Moments: the Gram statistics (sum psi psi^T, sum psi y^T, sum y y^T).  They add."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files.fields import Check, array, require
from polyattn.form.layout import Layout
from polyattn.form.pairs import n_pairs
from polyattn.numerics.scaling import require_comparable_squares, restored
from polyattn.stats.difference import difference
from polyattn.stats.moment_sums import ExplicitSums, PairedSums
from polyattn.stats.rows import Rows
from polyattn.stats.statistics import Statistics

# From so many queries on the paired way wins (benchmarks/moments_update.py prints both).
PAIRED_FROM_QUERIES = 12


class Moments(Statistics):
    """Second moments of the features and their products with the targets.

    Guarantee: the least-squares problem over layers with any number of heads depends on the
    data only through these sums [yau2024: Algorithm 1], so fitting streams, shards and resumes.
    Sums are of the unweighted features psi = S ⊗ u (of the papers' layer: G[j,k] x[l], j <= k).

    Cost: about p^2/2 multiply-adds per predicted position (mode ``full``: per sequence);
    memory p^2/4 numbers for wide tokens, p^2 for narrow ones.
    """

    kind = "moments"

    def _begin(self) -> None:
        self._sums = make_sums(self.layout, self.n_outputs)

    @property
    def gram(self) -> NDArray[np.float64]:
        """sum psi psi^T (p, p), order (sum, query), weights included."""
        return restored(self.scaled_gram(), 6 * (self.token_exponent or 0), "the moments")

    @property
    def cross(self) -> NDArray[np.float64]:
        """sum psi y^T (p, e)."""
        exponent = 3 * (self.token_exponent or 0) + (self.target_exponent or 0)
        return restored(self.scaled_cross().copy(), exponent, "the cross moments")

    @property
    def target_gram(self) -> NDArray[np.float64]:
        """sum y y^T (e, e)."""
        require_comparable_squares(self.output_sizes)
        return restored(
            self._sums.targets.copy(), 2 * (self.target_exponent or 0), "the target moments"
        )

    @property
    def second_moment(self) -> NDArray[np.float64]:
        """Lambda_D = (sum psi psi^T) / (sum of weights) [yau2024: Lemma 2.3]."""
        if self.total_weight == 0.0:
            raise InvalidInput("the moments are empty; call update(X, Y) first.")
        return self.gram / self.total_weight

    def spectrum(self) -> NDArray[np.float64]:
        """The eigenvalues of Lambda_D in ascending order, as computed in float64."""
        return np.asarray(np.linalg.eigvalsh(self.second_moment), dtype=np.float64)

    def scaled_gram(self, factors: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """sum psi psi^T of the tokens divided by 2**token_exponent, features times ``factors``."""
        kept, every = self.layout.kept, np.ones(self.layout.n_sums * self.layout.n_queries)
        every[slice(None) if kept is None else kept] = 1.0 if factors is None else factors
        matrix = self._sums.matrix(every)
        return matrix if kept is None else matrix[np.ix_(kept, kept)]

    def scaled_feature_powers(self) -> NDArray[np.float64]:
        """The diagonal of ``scaled_gram``."""
        return self.layout.select(self._sums.diagonal())

    def scaled_cross(self) -> NDArray[np.float64]:
        """sum psi y^T (p, e) of the scaled tokens and targets."""
        n_products = self.layout.n_sums * self.layout.n_queries
        return self.layout.select(self._sums.cross.reshape(n_products, self.n_outputs))

    def scaled_target_power(self) -> float:
        """sum ||y||^2 of the scaled targets."""
        return float(np.trace(self._sums.targets))

    def _accumulate(self, rows: Rows) -> None:
        sums = self._sums
        if not (isinstance(sums, PairedSums) and self.form.shares_sums):
            for blocks in rows.groups():
                sums.add(blocks)
            return
        # All tokens of a sequence share S: with the sum of u u^T it is one row.
        for shared, query_pairs in rows.shared_moments():
            sums.add_shared(shared, query_pairs)
        if self.n_outputs:
            for blocks in rows.groups():
                sums.add_targets(blocks)

    def _absorb(self, other: Moments) -> None:
        self._sums.absorb(other._sums)

    def __sub__(self, other: Moments) -> Moments:
        """The moments without the chunks of ``other``, all of which must be in; neither changes.

        Guarantee: certificates from them are as sound as any; where taking out would cost more
        than half of the digits of a sum of squares, it is refused.
        """
        return difference(self, other) if isinstance(other, Moments) else NotImplemented

    def _subtract(self, other: Moments) -> None:
        self._sums.subtract(other._sums)

    def _down_weigh(self, factor: float) -> None:
        self._sums.down_weigh(factor)

    def _target_powers(self) -> NDArray[np.float64]:
        return self._sums.targets.diagonal()

    def _rescale(self, tokens: int, targets: int) -> None:
        self._sums.rescale(tokens, targets)

    @property
    def _numbers(self) -> int:
        m, r = self.layout.n_sums, self.layout.n_queries
        gram = n_pairs(r) * n_pairs(m) if _by_pairs(self.layout) else (m * r) ** 2
        return gram + m * r * self.n_outputs

    @classmethod
    def _stored(cls, layout: Layout, n_outputs: int, largest: float) -> dict[str, Check]:
        m, r = layout.n_sums, layout.n_queries
        sums = partial(array, least=-largest, most=largest)
        return {
            "gram": sums((m * r, m * r), (n_pairs(r), n_pairs(m))),
            "cross": sums((m, r, n_outputs)),
            "targets": sums((n_outputs, n_outputs)),
        }

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        return self._sums.arrays()

    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        """Take stored sums, whichever way they were accumulated."""
        if arrays["gram"].shape != self._sums.gram.shape:
            other = ExplicitSums if isinstance(self._sums, PairedSums) else PairedSums
            stored = other(self.layout, self.n_outputs)
            stored.restore(arrays)
            matrix = stored.matrix(np.ones(stored.n_sums * stored.n_queries))
            arrays = arrays | {"gram": self._sums.as_stored(matrix)}
        self._sums.restore(arrays)
        for name, squares in (
            ("gram", self.scaled_feature_powers()), ("targets", self._target_powers()),
        ):  # fmt: skip
            least = float(squares.min(initial=0.0))
            require(least >= 0.0, f"arrays.{name}", "sums of squares that are >= 0", least)


def make_sums(layout: Layout, n_outputs: int) -> ExplicitSums | PairedSums:
    """The accumulator that is faster; where all tokens of a sequence share S, pairs always are."""
    kind = PairedSums if _by_pairs(layout) else ExplicitSums
    return kind(layout, n_outputs)


def _by_pairs(layout: Layout) -> bool:
    return layout.form.shares_sums or layout.n_queries >= PAIRED_FROM_QUERIES
