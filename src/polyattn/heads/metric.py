"""The norm of the data: excess risk as a quadratic form, in well conditioned coordinates.

With moments M = sum psi psi^T (p, p), coefficients P exceed the sum of squared errors of the
optimum P* by  sum_a (P - P*)_a^T M (P - P*)_a.  Tokens y = L y' and queries x = K x' map heads to
heads and change only M; with the right L and K the token and query marginals of M are round.
Directions that no token takes are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.features.pairs import fold_tensor, norm_weights, pair_index, pair_position
from polyattn.heads.algebra import Restore

# Directions below this part of the largest (after equal scaling) are not taken by any token.
UNSEEN = 1e-12
# Smaller directions are not enlarged further: that would enlarge the rounding of M with them.
FLOOR = 1e-4


@dataclass(frozen=True)
class Metric:
    """R -> M R on symmetric tensors (batch, d, d, m); without moments M is the identity."""

    gram: NDArray[np.float64] | None = None

    @property
    def work(self) -> float:
        """Multiply-adds of one application to a single (d, d, m)."""
        return 0.0 if self.gram is None else float(self.gram.size)

    def __call__(self, tensor: NDArray) -> NDArray[np.float64]:
        if self.gram is None:
            return tensor
        folded = fold_tensor(tensor)
        pulled = folded.reshape(len(folded), -1) @ self.gram
        return pulled.reshape(folded.shape)[:, pair_position(tensor.shape[1])]

    def power(self, tensor: NDArray) -> float:
        """<S, M S>."""
        return float(np.vdot(tensor, self(tensor)))


def whiten(tensor: NDArray, gram: NDArray) -> tuple[NDArray[np.float64], Metric, Restore]:
    """S (e, d, d, d) in new coordinates, of norm one or zero, and the moments M (p, p) in them.

    Heads come back by V = L^-T V', A^T = L^-T A'^T K^-1.  Cost: O(p^2 (q + d)).
    """
    width = tensor.shape[3]
    scale = float(np.max(np.diag(gram))) or 1.0
    blocks = (gram / scale).reshape(-1, width, len(gram) // width, width)
    position = pair_position(width)
    over_queries = np.einsum("plrl->pr", blocks)
    # sum_k <(y_j y_k)(y_i y_k)>: what one token coordinate contributes beside any other.
    token_moments = np.einsum("jkik->ji", over_queries[position][:, :, position])
    root, dims = _root(token_moments)
    query_root, queries = _root(np.einsum("plpm->lm", blocks))
    new = np.einsum("ajkl,jx,ky,lz->axyz", tensor, root, root, query_root, optimize=True)
    norm = float(np.linalg.norm(new))
    # pairs (q', q): the pair products of L^-1 y from those of y
    rows, columns = pair_index(len(dims))
    products = dims[rows][:, :, None] * dims[columns][:, None, :]
    pairs = fold_tensor(products[..., None])[..., 0]
    # (pairs (x) queries) M (pairs (x) queries)^T without the Kronecker product
    moved: NDArray = blocks.reshape(gram.shape)
    for _ in range(2):
        half = (pairs @ moved.reshape(pairs.shape[1], -1)).reshape(len(pairs), width, -1)
        moved = (queries @ half).reshape(len(pairs) * len(queries), -1).T
    weights = np.repeat(norm_weights(len(dims)), len(queries))
    # Mean eigenvalue one in the coordinates of the Frobenius norm, as the descent expects.
    moved /= np.mean(np.diag(moved) / weights**2) or 1.0

    def restore(value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        return norm * (dims.T @ value), dims.T @ key @ queries

    return new / (norm or 1.0), Metric(moved), restore


def excess(difference: NDArray, gram: NDArray) -> float:
    """sum_a D_a^T M D_a for the folded form D of a symmetric tensor (e, d, d, d)."""
    folded = fold_tensor(difference).reshape(len(difference), -1)
    return max(0.0, float(np.vdot(folded, folded @ gram)))


def require_gram(gram: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """Moments (p, p) in the order (pair, l), finite and symmetric."""
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


def _root(moments: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """L (d, d') with L L^T about the moments, and its left inverse (d', d)."""
    # Coordinates are first brought to equal size, which costs no accuracy whatever their units.
    size = np.sqrt(np.maximum(np.diag(moments), 0.0))
    inverse_size = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    eigenvalues, vectors = np.linalg.eigh(moments * inverse_size * inverse_size[:, None])
    seen = eigenvalues > UNSEEN * max(eigenvalues[-1], 1.0)
    seen[-1] = True
    root = np.sqrt(np.maximum(eigenvalues[seen], FLOOR))
    vectors = vectors[:, seen]
    return size[:, None] * vectors * root, (vectors / root).T * inverse_size
