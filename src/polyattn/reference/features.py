"""Token Grams, cubic features, the fold and the kernel, index by index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def token_gram(X: NDArray) -> NDArray[np.float64]:
    """G[j, k] = sum_t X[t, j] X[t, k], shape (d, d)."""
    n_tokens, n_dims = X.shape
    gram = np.zeros((n_dims, n_dims))
    for j in range(n_dims):
        for k in range(n_dims):
            for t in range(n_tokens):
                gram[j, k] += X[t, j] * X[t, k]
    return gram


def summaries(X: NDArray, mode: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The pairs (G of the tokens attended to, query token) of all predicted positions."""
    n_tokens = len(X)
    if mode == "last":
        return [(token_gram(X), X[-1])]
    if mode == "full":
        return [(token_gram(X), X[t]) for t in range(n_tokens)]
    return [(token_gram(X[: t + 1]), X[t]) for t in range(n_tokens)]


def pairs(n_dims: int) -> list[tuple[int, int]]:
    """All (j, k) with j <= k, row after row."""
    return [(j, k) for j in range(n_dims) for k in range(j, n_dims)]


def vech(G: NDArray) -> NDArray[np.float64]:
    """The entries (j <= k) of a symmetric G (d, d), shape (q,)."""
    return np.array([G[j, k] for j, k in pairs(len(G))])


def cubic_features(G: NDArray, x: NDArray) -> NDArray[np.float64]:
    """psi[(j<=k), l] = G[j, k] x[l], shape (p,), pairs first [yau2024: Algorithm 1]."""
    return np.array([G[j, k] * x[i] for j, k in pairs(len(x)) for i in range(len(x))])


def norm_weights(n_dims: int) -> NDArray[np.float64]:
    """s (p,) with ||T||_F = ||s * P||: 1 for j = k and sqrt(1/2) for j < k."""
    return np.array(
        [1.0 if j == k else np.sqrt(0.5) for j, k in pairs(n_dims) for _ in range(n_dims)]
    )


def tensor(attn: NDArray, value: NDArray) -> NDArray[np.float64]:
    """T[a, j, k, l] = sum_h V_h[j, a] A_h[l, k], shape (e, d, d, d)."""
    n_heads, n_dims, n_outputs = value.shape
    T = np.zeros((n_outputs, n_dims, n_dims, n_dims))
    for a, j, k, i in np.ndindex(T.shape):
        for h in range(n_heads):
            T[a, j, k, i] += value[h, j, a] * attn[h, i, k]
    return T


def fold(T: NDArray) -> NDArray[np.float64]:
    """P[a, (j<k), l] = T[a,j,k,l] + T[a,k,j,l], P[a, (j=j), l] = T[a,j,j,l].

    All that data can see of T, shape (e, q, d) [yau2024: Corollary A.4].
    """
    n_outputs, n_dims = T.shape[:2]
    P = np.zeros((n_outputs, len(pairs(n_dims)), n_dims))
    for a in range(n_outputs):
        for index, (j, k) in enumerate(pairs(n_dims)):
            P[a, index] = T[a, j, j] if j == k else T[a, j, k] + T[a, k, j]
    return P


def unfold(P: NDArray) -> NDArray[np.float64]:
    """The T (e, d, d, d) that is symmetric in (j, k) and whose fold is P (e, q, d)."""
    n_outputs, _, n_dims = P.shape
    T = np.zeros((n_outputs, n_dims, n_dims, n_dims))
    for index, (j, k) in enumerate(pairs(n_dims)):
        share = P[:, index] if j == k else P[:, index] / 2
        T[:, j, k] = share
        T[:, k, j] = share
    return T


def kernel(G: NDArray, x: NDArray, other_G: NDArray, other_x: NDArray) -> float:
    """sum_{j,k,l} (G[j,k] x[l]) (G'[j,k] x'[l]): the inner product in the norm of T."""
    n_dims = len(x)
    total = 0.0
    for j in range(n_dims):
        for k in range(n_dims):
            for i in range(n_dims):
                total += G[j, k] * x[i] * other_G[j, k] * other_x[i]
    return total
