"""From coefficients back to heads by one singular value decomposition [yau2024: Algorithm 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.reference.features import unfold


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
