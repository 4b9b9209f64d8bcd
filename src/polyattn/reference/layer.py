"""Multi-head linear and softmax attention, head by head, score by score and weight by weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def forward(attn: NDArray, value: NDArray, X: NDArray, mode: str) -> NDArray[np.float64]:
    """F(X) = sum_h (X A_h X^T) X V_h at the positions that ``mode`` predicts.

    attn (H, d, d), value (H, d, e), X (n, d).  Position t attends to all n tokens (``full``,
    ``last``) or to tokens 1..t (``causal``: the scores above the diagonal are struck out).
    Returns (n, e), and for ``last`` only its last row (e,).

    Cost: O(H n^2 d); all n x n scores of all heads.
    """
    n_tokens = len(X)
    outputs = np.zeros((n_tokens, value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        scores = X @ A @ X.T
        for t in range(n_tokens):
            attended = t + 1 if mode == "causal" else n_tokens
            for s in range(attended):
                outputs[t] += scores[t, s] * (X[s] @ V)
    return outputs[-1] if mode == "last" else outputs


def forward_columns(V: NDArray, Q: NDArray, Z: NDArray) -> NDArray[np.float64]:
    """MHLA(Z) = sum_h V_h Z (Z^T Q_h Z), tokens in columns [yau2024: eq. 4].

    V (H, e, d), Q (H, d, d), Z (d, n); returns (e, n).  Ours: V_h^T, A_h^T, X^T.
    """
    outputs = np.zeros((V.shape[1], Z.shape[1]))
    for V_h, Q_h in zip(V, Q, strict=True):
        outputs += V_h @ Z @ (Z.T @ Q_h @ Z)
    return outputs


def forward_last_column(V: NDArray, Q: NDArray, Z: NDArray) -> NDArray[np.float64]:
    """The last column alone, sum_h V_h Z (Z^T Q_h Z[:, n]); returns (e,) [yau2024: eq. 5]."""
    outputs = np.zeros(V.shape[1])
    for V_h, Q_h in zip(V, Q, strict=True):
        outputs += V_h @ Z @ (Z.T @ Q_h @ Z[:, -1])
    return outputs


def with_constant(X: NDArray) -> NDArray[np.float64]:
    """X (n, d) with a last coordinate that is always 1: what ``bias=True`` means."""
    return np.concatenate([X, np.ones((len(X), 1))], axis=1)


def softmax_weights(A: NDArray, X: NDArray, t: int, mode: str) -> NDArray[np.float64]:
    """The weights with which token t attends to tokens 1..n (n,); zero where it may not."""
    n_tokens = len(X)
    attended = t + 1 if mode == "causal" else n_tokens
    logits = [float(X[t] @ A @ X[s]) for s in range(attended)]
    exponentials = [np.exp(logit - max(logits)) for logit in logits]
    weights = np.zeros(n_tokens)
    for s in range(attended):
        weights[s] = exponentials[s] / sum(exponentials)
    return weights


def softmax_forward(attn: NDArray, value: NDArray, X: NDArray, mode: str) -> NDArray[np.float64]:
    """F(X) = sum_h softmax(X A_h X^T) X V_h at the positions that ``mode`` predicts [chen2024].

    attn (H, d, d), value (H, d, e), X (n, d).  Returns (n, e), for ``last`` its last row (e,).
    """
    outputs = np.zeros((len(X), value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        for t in range(len(X)):
            weights = softmax_weights(A, X, t, mode)
            for s in range(len(X)):
                outputs[t] += weights[s] * (X[s] @ V)
    return outputs[-1] if mode == "last" else outputs


def softmax_jacobian(A: NDArray, V: NDArray, X: NDArray, t: int, mode: str) -> NDArray[np.float64]:
    """d y_c / d A[a, b] at token t for one head, shape (d, d, e): x_a (Cov_p(X) V)[b, c]."""
    weights = softmax_weights(A, X, t, mode)
    mean = weights @ X
    covariance = np.zeros((X.shape[1], X.shape[1]))
    for weight, token in zip(weights, X, strict=True):
        covariance += weight * np.outer(token - mean, token - mean)
    return np.einsum("a,bc->abc", X[t], covariance @ V)
