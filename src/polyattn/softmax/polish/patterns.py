"""What each head attends to, and what it sees there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import softmax
from polyattn.softmax.examples import Block

Matrix = NDArray[np.float64]


def patterns(block: Block, A: Matrix) -> Matrix:
    """softmax(x A X^T) of every query, shape (B, r, n); zero where a query does not see."""
    logits = (block.queries @ A) @ block.keys.transpose(0, 2, 1)
    if block.hidden is not None:
        logits[:, block.hidden] = -np.inf
    return softmax(logits)


def seen(block: Block, attn: Matrix) -> Matrix:
    """Z = [p_1 X, ..., p_m X], the mean tokens that the heads see, shape (B r, m d)."""
    columns = [patterns(block, A) @ block.keys for A in attn]
    return np.concatenate(columns, axis=2).reshape(block.n_rows, -1)


def responses(block: Block, weights: list[Matrix], value: Matrix) -> Matrix:
    """Cov_p(X) V of every query and head, shape (B r, m, d, e), for patterns and values (m, d, e).

    The derivative of a head's output: d y_c / d A[a, b] = x_a (Cov_p(X) V)[b, c].  It is zero for
    the constant of ``bias``, and not only up to rounding: nothing moves there.
    """
    keys = block.keys
    parts = []
    for pattern, V in zip(weights, value, strict=True):
        outputs = keys @ V
        centred = outputs[:, None] - (pattern @ outputs)[:, :, None]
        centred *= pattern[..., None]
        parts.append(centred)
    together = np.matmul(keys.transpose(0, 2, 1)[:, None], np.concatenate(parts, axis=3))
    n_heads, width, n_outputs = value.shape
    together = together.reshape(block.n_rows, width, n_heads, n_outputs)
    if block.bias:
        together[:, -1] = 0.0
    return together.transpose(0, 2, 1, 3)
