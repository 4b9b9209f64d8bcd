"""Moments: the Gram statistics (sum psi psi^T, sum psi y^T, sum y y^T).  They add."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.cubic import correlate
from polyattn.features.pairs import n_pairs
from polyattn.features.summaries import default_block_rows, sequence_grams
from polyattn.parallel import column_slices, map_pieces, single_threaded_blas
from polyattn.scaling import restored
from polyattn.stats.base import Statistics
from polyattn.stats.grams import PairedGram, make_gram, shaped_like
from polyattn.stats.rows import RowBlock, Rows


class Moments(Statistics):
    """Second moments of the cubic features and their products with the targets.

    Guarantee: the least-squares problem over layers with any number of heads depends on the
    data only through these sums [yau2024: Algorithm 1], so fitting streams, shards and resumes.
    Sums are of the unweighted features psi[(j<=k), l] = G[j,k] x[l].

    Cost: about p^2/2 multiply-adds per predicted position (mode ``full``: per sequence);
    memory q(q+1)/2 * q numbers for wide tokens, p^2 for narrow ones.
    """

    kind = "moments"

    def __init__(
        self, n_dims: int, n_outputs: int = 0, mode: str = "last", bias: bool = False
    ) -> None:
        super().__init__(n_dims, n_outputs, mode, bias)
        self._gram = make_gram(self.width, mode)
        self._cross = np.zeros((n_pairs(self.width), self.width, self.n_outputs))
        self._targets = np.zeros((self.n_outputs, self.n_outputs))

    @property
    def gram(self) -> NDArray[np.float64]:
        """sum psi psi^T (p, p), order (pair, l), weights included."""
        return restored(self._gram.matrix(), 6 * (self.token_exponent or 0), "the moments")

    @property
    def cross(self) -> NDArray[np.float64]:
        """sum psi y^T (p, e)."""
        exponent = 3 * (self.token_exponent or 0) + (self.target_exponent or 0)
        return restored(self.scaled_cross().copy(), exponent, "the cross moments")

    @property
    def target_gram(self) -> NDArray[np.float64]:
        """sum y y^T (e, e)."""
        return restored(self._targets.copy(), 2 * (self.target_exponent or 0), "the target moments")

    @property
    def second_moment(self) -> NDArray[np.float64]:
        """Lambda_D = (sum psi psi^T) / (sum of weights) [yau2024: Lemma 2.3]."""
        if self.total_weight == 0.0:
            raise InvalidInput("the moments are empty; call update(X, Y) first.")
        return self.gram / self.total_weight

    def spectrum(self) -> NDArray[np.float64]:
        """The eigenvalues of Lambda_D in ascending order, as computed in float64."""
        return np.asarray(np.linalg.eigvalsh(self.second_moment), dtype=np.float64)

    def scaled_gram(self) -> NDArray[np.float64]:
        """sum psi psi^T of the tokens divided by 2**token_exponent."""
        return self._gram.matrix()

    def scaled_cross(self) -> NDArray[np.float64]:
        """sum psi y^T (p, e) of the scaled tokens and targets."""
        return self._cross.reshape(self.n_features, self.n_outputs)

    def scaled_target_power(self) -> float:
        """sum ||y||^2 of the scaled targets."""
        return float(np.trace(self._targets))

    # Idle BLAS threads spin for a while, and would take the cores from ours.
    @single_threaded_blas()
    def _accumulate(self, rows: Rows) -> None:
        if isinstance(self._gram, PairedGram) and self.mode == "full":
            self._accumulate_full(rows, self._gram)
            return
        for block in rows.blocks():
            self._gram.add(block.pairs, block.queries)
            self._add_targets(block)

    def _accumulate_full(self, rows: Rows, gram: PairedGram) -> None:
        """All tokens of a sequence share G, and their sum x x^T is G again: one row each."""
        weights = rows.sequence_weights
        for first in range(0, len(rows.batch), step := default_block_rows(rows.width)):
            stop = min(first + step, len(rows.batch))
            pairs = sequence_grams(rows.tokens, first, stop)
            gram.add_query_pairs(pairs, pairs if weights is None else pairs * weights[first:stop])
        if self.n_outputs:
            for block in rows.blocks():
                self._add_targets(block)

    def _add_targets(self, block: RowBlock) -> None:
        if not self.n_outputs:
            return

        def part(some: slice) -> NDArray[np.float64]:
            return correlate(block.pairs[:, some], block.queries[:, some], block.targets[:, some])

        for cross in map_pieces(part, column_slices(block.stop - block.first)):
            self._cross += cross
        self._targets += block.targets @ block.targets.T

    def _absorb(self, other: Moments) -> None:
        self._gram.sums += other._gram.sums
        self._cross += other._cross
        self._targets += other._targets

    def _rescale(self, tokens: int, targets: int) -> None:
        np.ldexp(self._gram.sums, 6 * tokens, out=self._gram.sums)
        np.ldexp(self._cross, 3 * tokens + targets, out=self._cross)
        np.ldexp(self._targets, 2 * targets, out=self._targets)

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"gram": self._gram.sums, "cross": self._cross, "targets": self._targets}

    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        self._gram.restore(arrays["gram"])
        self._cross = shaped_like(self._cross, arrays["cross"])
        self._targets = shaped_like(self._targets, arrays["targets"])
