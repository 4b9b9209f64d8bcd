"""Softmax attention with rotary positions, with the matrix R_t of every position written out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rotation(frequencies: NDArray, t: int) -> NDArray[np.float64]:
    """R_t (r, r): a row times R_t has coordinates i and i + r/2 turned by t * frequencies[i]."""
    half = len(frequencies)
    R = np.zeros((2 * half, 2 * half))
    for i, frequency in enumerate(frequencies):
        cosine, sine = np.cos(t * frequency), np.sin(t * frequency)
        R[i, i], R[i, i + half] = cosine, sine
        R[i + half, i], R[i + half, i + half] = -sine, cosine
    return R


def rotary_weights(
    W_Q: NDArray, W_K: NDArray, frequencies: NDArray, X: NDArray, t: int, mode: str
) -> NDArray[np.float64]:
    """The weights of one head, W_Q and W_K (d, r), with which token t attends to tokens 1..n."""
    attended = t + 1 if mode == "causal" else len(X)
    query = X[t] @ W_Q @ rotation(frequencies, t)
    logits = [float(query @ (X[s] @ W_K @ rotation(frequencies, s))) for s in range(attended)]
    exponentials = [np.exp(logit - max(logits)) for logit in logits]
    weights = np.zeros(len(X))
    for s in range(attended):
        weights[s] = exponentials[s] / sum(exponentials)
    return weights


def rotary_forward(
    W_Q: NDArray, W_K: NDArray, value: NDArray, frequencies: NDArray, X: NDArray, mode: str
) -> NDArray[np.float64]:
    """Outputs at the positions that ``mode`` predicts.

    W_Q, W_K (H, d, r), value (H, d, e), frequencies (r/2,), X (n, d).  Returns (n, e), for
    ``last`` its last row (e,).
    """
    outputs = np.zeros((len(X), value.shape[2]))
    for query, key, V in zip(W_Q, W_K, value, strict=True):
        for t in range(len(X)):
            weights = rotary_weights(query, key, frequencies, X, t, mode)
            for s in range(len(X)):
                outputs[t] += weights[s] * (X[s] @ V)
    return outputs[-1] if mode == "last" else outputs
