"""Moments: the Gram statistics (sum psi psi^T, sum psi y^T, sum y y^T).  They add."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.pairs import n_features, n_pairs
from polyattn.features.summaries import default_block_rows, sequence_grams
from polyattn.files.fields import Check, array, require
from polyattn.numerics.scaling import require_comparable_squares, restored
from polyattn.stats.moment_sums import ExplicitSums, PairedSums
from polyattn.stats.rows import Rows
from polyattn.stats.statistics import Statistics

# From this width on the paired way wins (benchmarks/moments_update.py prints both).
PAIRED_FROM_WIDTH = 12


class Moments(Statistics):
    """Second moments of the cubic features and their products with the targets.

    Guarantee: the least-squares problem over layers with any number of heads depends on the
    data only through these sums [yau2024: Algorithm 1], so fitting streams, shards and resumes.
    Sums are of the unweighted features psi[(j<=k), l] = G[j,k] x[l].

    Cost: about p^2/2 multiply-adds per predicted position (mode ``full``: per sequence);
    memory q(q+1)/2 * q numbers for wide tokens, p^2 for narrow ones.
    """

    kind = "moments"

    def _begin(self) -> None:
        self._sums = make_sums(self.width, self.n_outputs, self.mode)

    @property
    def gram(self) -> NDArray[np.float64]:
        """sum psi psi^T (p, p), order (pair, l), weights included."""
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
        return self._sums.matrix(np.ones(self.n_features) if factors is None else factors)

    def scaled_feature_powers(self) -> NDArray[np.float64]:
        """sum psi^2 (p,) of the scaled tokens: the diagonal of ``scaled_gram``."""
        return self._sums.diagonal()

    def scaled_cross(self) -> NDArray[np.float64]:
        """sum psi y^T (p, e) of the scaled tokens and targets."""
        return self._sums.cross.reshape(self.n_features, self.n_outputs)

    def scaled_target_power(self) -> float:
        """sum ||y||^2 of the scaled targets."""
        return float(np.trace(self._sums.targets))

    def _accumulate(self, rows: Rows) -> None:
        sums, weights = self._sums, rows.sequence_weights
        if not (isinstance(sums, PairedSums) and self.mode == "full"):
            for blocks in rows.groups():
                sums.add(blocks)
            return
        # All tokens of a sequence share G, and their sum x x^T is G again: one row each.
        for first in range(0, len(rows.batch), step := default_block_rows(rows.width)):
            stop = min(first + step, len(rows.batch))
            pairs = sequence_grams(rows.tokens, first, stop)
            sums.add_pairs(pairs, pairs if weights is None else pairs * weights[first:stop])
        if self.n_outputs:
            for blocks in rows.groups():
                sums.add_targets(blocks)

    def _absorb(self, other: Moments) -> None:
        self._sums.absorb(other._sums)

    def _mean_squares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weight = self.total_weight or 1.0
        return self.scaled_feature_powers() / weight, self._sums.targets.diagonal() / weight

    def _rescale(self, tokens: int, targets: int) -> None:
        self._sums.rescale(tokens, targets)

    @property
    def _numbers(self) -> int:
        p, q = self.n_features, n_pairs(self.width)
        gram = q * n_pairs(q) if _by_pairs(self.width, self.mode) else p * p
        return gram + p * self.n_outputs

    @classmethod
    def _stored(cls, width: int, n_outputs: int, largest: float) -> dict[str, Check]:
        p, q = n_features(width), n_pairs(width)
        sums = partial(array, least=-largest, most=largest)
        return {
            "gram": sums((p, p), (q, n_pairs(q))),
            "cross": sums((q, width, n_outputs)),
            "targets": sums((n_outputs, n_outputs)),
        }

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        return self._sums.arrays()

    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        """Take stored sums, whichever way they were accumulated."""
        if arrays["gram"].shape != self._sums.gram.shape:
            other = ExplicitSums if isinstance(self._sums, PairedSums) else PairedSums
            stored = other(self.width, self.n_outputs)
            stored.restore(arrays)
            matrix = stored.matrix(np.ones(self.n_features))
            arrays = arrays | {"gram": self._sums.as_stored(matrix)}
        self._sums.restore(arrays)
        for name, squares in (
            ("gram", self.scaled_feature_powers()), ("targets", self._sums.targets.diagonal()),
        ):  # fmt: skip
            least = float(squares.min(initial=0.0))
            require(least >= 0.0, f"arrays.{name}", "sums of squares that are >= 0", least)


def make_sums(width: int, n_outputs: int, mode: str) -> ExplicitSums | PairedSums:
    """The accumulator that is faster for this width (mode ``full`` always gains by pairs)."""
    kind = PairedSums if _by_pairs(width, mode) else ExplicitSums
    return kind(width, n_outputs)


def _by_pairs(width: int, mode: str) -> bool:
    return mode == "full" or width >= PAIRED_FROM_WIDTH
