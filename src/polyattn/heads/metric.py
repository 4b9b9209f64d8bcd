"""The norm of the data: excess risk as a quadratic form.

With moments M = sum psi psi^T (p, p), coefficients P exceed the sum of squared errors of the
optimum P* by  sum_a (P - P*)_a^T M (P - P*)_a.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.form.pairs import FoldedPairs


@dataclass(frozen=True)
class Metric:
    """R -> M R on symmetric tensors (..., J e, n_values, n_keys, r) of J scales.

    gram : M (p, p), in the order (scale, pair, l); without it M is the identity
    shared : how many columns are value and key (see ``algebra``)
    n_scales : J
    unseen : orthonormal columns (n_values n_keys r, k) of directions that count for nothing; of
        one scale, and without ``gram``
    """

    gram: NDArray[np.float64] | None = None
    shared: int | None = None
    n_scales: int = 1
    unseen: NDArray[np.float64] | None = None

    @property
    def work(self) -> float:
        """Multiply-adds of one application to the tensor of a single output."""
        if self.unseen is not None:
            return 2.0 * self.unseen.size
        return 0.0 if self.gram is None else float(self.gram.size)

    def __call__(self, tensor: NDArray) -> NDArray[np.float64]:
        if self.unseen is not None:
            flat = tensor.reshape(-1, len(self.unseen))
            return (flat - flat @ self.unseen @ self.unseen.T).reshape(tensor.shape)
        if self.gram is None:
            return tensor
        *_, n_outputs, n_values, n_keys, n_queries = tensor.shape
        first, times, position = _fold_index((n_values, n_keys), self.shared)
        # Of a symmetric tensor both products of a pair are equal.
        folded = tensor.reshape(-1, n_values * n_keys, n_queries)[:, first] * times
        pulled = self._exchanged(folded, n_outputs // self.n_scales).reshape(-1, len(self.gram))
        pulled = (pulled @ self.gram).reshape(-1, self.n_scales, *folded.shape[1:])
        pulled = self._exchanged(pulled, n_outputs // self.n_scales, back=True)
        return pulled.reshape(folded.shape)[:, position].reshape(tensor.shape)

    def power(self, tensor: NDArray, pulled: NDArray | None = None) -> float:
        """<S, M S>, where M S may be known."""
        image = self(tensor) if pulled is None else pulled
        # M is its own square there, and so what is unseen leaves no rounding.
        return float(np.vdot(tensor if self.unseen is None else image, image))

    def _exchanged(self, folded: NDArray, n_outputs: int, back: bool = False) -> NDArray:
        """Scales within outputs (n, e, J, ...) from outputs within scales, and back."""
        if self.n_scales == 1:
            return folded
        shape = (n_outputs, self.n_scales) if back else (self.n_scales, n_outputs)
        return folded.reshape(-1, *shape, *folded.shape[-2:]).swapaxes(1, 2)


def ordered_pairs(sizes: tuple[int, ...], shared: int | None) -> FoldedPairs:
    """The pairs of ``sizes`` = (n_values, n_keys) columns, of which the first are shared."""
    n_values, n_keys = sizes
    if shared is None:
        return FoldedPairs.whole(n_values)
    own = range(n_values, n_values + n_keys - shared)
    return FoldedPairs.of(tuple(range(n_values)), (*range(shared), *own))


@lru_cache(maxsize=64)
def _fold_index(
    sizes: tuple[int, int], shared: int | None
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
    """Where the pairs stand among all products, how many products each is, and the inverse."""
    pairs = ordered_pairs(sizes, shared)
    first = np.ravel_multi_index(pairs.first, sizes)
    return first, np.where(pairs.folded, 2.0, 1.0)[:, None], pairs.position


def excess(difference: NDArray, gram: NDArray, metric: Metric | None = None) -> float:
    """sum_a D_a^T M D_a for the folded form D of a symmetric tensor."""
    known = metric or Metric()
    return max(0.0, Metric(gram, known.shared, known.n_scales).power(difference))


def require_gram(gram: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """Moments (p, p) in the order (sum, l), finite and symmetric."""
    array = np.asarray(gram, dtype=np.float64)
    if array.shape != (n_features, n_features):
        raise InvalidInput(
            f"gram must have shape {(n_features, n_features)}, one row per pair and query "
            f"coordinate, to go with coef; got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInput("gram contains NaN or infinity; rescale the tokens.")
    if np.max(np.abs(array - array.T)) > 1e-8 * np.max(np.abs(array)):
        raise InvalidInput("gram must be symmetric: a sum of outer products of features.")
    return 0.5 * (array + array.T)
