"""Empirical risk minimisation as regression in cubic features, and heads [yau2024: Algorithm 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.reference.features import cubic_features, norm_weights, summaries, unfold


def design(sequences: Sequence[NDArray], mode: str) -> NDArray[np.float64]:
    """psi of every predicted position, one per row: shape (rows, p)."""
    return np.array([cubic_features(G, x) for X in sequences for G, x in summaries(X, mode)])


def fit(
    sequences: Sequence[NDArray],
    targets: NDArray,
    mode: str,
    ridge: float = 0.0,
    weights: NDArray | None = None,
) -> NDArray[np.float64]:
    """The folded coefficients P (e, q, d) of the layer of least (penalised) squared error.

    They minimise

        sum_r w_r ||y_r - P psi_r||^2 + ridge ||T||_F^2,

    and are of least norm ||T||_F where several do.  ``targets`` (rows, e) and ``weights``
    (rows,) go by predicted position.

    In the coordinates theta = s * P of that norm the features are psi / s (off the diagonal
    sqrt(2) psi), the penalty is ridge ||theta||^2, and both are one call of numpy's lstsq.
    """
    n_dims = sequences[0].shape[1]
    s = norm_weights(n_dims)
    features = design(sequences, mode) / s
    right = np.asarray(targets, dtype=np.float64)
    if weights is not None:
        features = np.sqrt(weights)[:, None] * features
        right = np.sqrt(weights)[:, None] * right
    if ridge > 0:
        features = np.concatenate([features, np.sqrt(ridge) * np.eye(len(s))])
        right = np.concatenate([right, np.zeros((len(s), right.shape[1]))])
    theta = np.linalg.lstsq(features, right, rcond=None)[0]
    return (theta.T / s).reshape(right.shape[1], -1, n_dims)


def predict(P: NDArray, sequences: Sequence[NDArray], mode: str) -> NDArray[np.float64]:
    """y_a = sum P[a, (j<=k), l] G[j, k] x[l] for every predicted position: (rows, e)."""
    return design(sequences, mode) @ P.reshape(len(P), -1).T


def risk(P: NDArray, sequences: Sequence[NDArray], targets: NDArray, mode: str) -> float:
    """The mean over predicted positions of ||y - F(X)||^2."""
    return float(np.mean(np.sum((targets - predict(P, sequences, mode)) ** 2, axis=1)))


def second_moment(sequences: Sequence[NDArray], mode: str) -> NDArray[np.float64]:
    """Lambda_D = mean of psi psi^T (p, p), features without weights [yau2024: Lemma 2.3].

    If its smallest eigenvalue is positive, every empirical risk minimiser is the same function.
    """
    features = design(sequences, mode)
    total = np.zeros((features.shape[1], features.shape[1]))
    for psi in features:
        total += np.outer(psi, psi)
    return total / len(features)


def heads(P: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """attn (H, d, d) and value (H, d, e) whose fold is P (e, q, d), with H <= d^2.

    T as the matrix M[(a, j), (k, l)] = sum_h V_h[j, a] A_h[l, k]: each singular triple is one
    head, its left vector the value matrix and its right vector the attention matrix.
    """
    T = unfold(P)
    n_outputs, n_dims = T.shape[:2]
    matrix = T.reshape(n_outputs * n_dims, n_dims * n_dims)
    left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
    attn = [row.reshape(n_dims, n_dims).T for row in right]
    value = [
        s * column.reshape(n_outputs, n_dims).T for s, column in zip(sigma, left.T, strict=True)
    ]
    return np.array(attn), np.array(value)
