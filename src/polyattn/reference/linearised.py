"""Linear attention with a feature map, position by position, and its fit with explicit features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attended(n_tokens: int, t: int, mode: str) -> range:
    """The tokens that position t attends to."""
    return range(t + 1) if mode == "causal" else range(n_tokens)


def softmax_output(q: Array, k: Array, v: Array, t: int, mode: str) -> Array:
    """o_t = sum_s softmax_s(q_t . k_s) v_s."""
    return _weighted([(q[t] @ k[s], v[s]) for s in attended(len(k), t, mode)])


def rows(psi: Array, v: Array, t: int, mode: str, denominator: str) -> Array:
    """Z_t (F, c) of key features psi (n, F) and values v (n, c)."""
    some = attended(len(psi), t, mode)
    found = np.zeros((psi.shape[1], v.shape[1]))
    for feature in range(psi.shape[1]):
        total = sum(psi[s, feature] * v[s] for s in some)
        below = len(some) if denominator == "tokens" else sum(psi[s, feature] for s in some)
        found[feature] = total / below
    return found


def window_row(q: Array, k: Array, v: Array, t: int, mode: str, window: int) -> Array:
    """Softmax attention of position t over the tokens at distances below ``window``."""
    near = [s for s in attended(len(k), t, mode) if abs(t - s) < window]
    return _weighted([(q[t] @ k[s], v[s]) for s in near])


def output(phi: Array, M: Array, Z: Array) -> Array:
    """o^_t = phi^T M Z, (c,)."""
    return phi @ M @ Z


def ratio(phi: Array, M: Array, psi: Array, v: Array, t: int, mode: str) -> Array:
    """The same with one denominator for the position: weights phi^T M psi_s that sum to one."""
    some = attended(len(psi), t, mode)
    weights = [phi @ M @ psi[s] for s in some]
    return sum(w * v[s] for w, s in zip(weights, some, strict=True)) / sum(weights)


def explicit_features(phi: Array, Z: Array) -> Array:
    """One row of features (F G) for each of the c numbers of an output."""
    return np.stack([np.outer(phi, Z[:, a]).ravel() for a in range(Z.shape[1])])


def fit(positions: Sequence[tuple[Array, Array, Array]], ridge: float) -> Array:
    """M (F, G) with the least sum ||o - phi^T M Z||^2 + ridge sum_i G_ii m_i^2.

    positions : (phi (F,), Z (G, c), o (c,)) of each; G is the Gram matrix of the features
    """
    features = np.concatenate([explicit_features(phi, Z) for phi, Z, _ in positions])
    targets = np.concatenate([o for *_, o in positions])
    penalty = np.sqrt(ridge * np.sum(features**2, axis=0))
    both = np.vstack([features, np.diag(penalty)])
    found = np.linalg.lstsq(both, np.concatenate([targets, np.zeros(len(penalty))]), rcond=None)[0]
    return found.reshape(len(positions[0][0]), -1)


def _weighted(pairs: Sequence[tuple[float, Array]]) -> Array:
    """The mean of values with weights exp(logit)."""
    largest = max(logit for logit, _ in pairs)
    weights = [np.exp(logit - largest) for logit, _ in pairs]
    return sum(w * v for w, (_, v) in zip(weights, pairs, strict=True)) / sum(weights)
