"""SoftmaxAttention: F(X) = sum_h softmax(X A_h X^T) X V_h, where ``mode`` predicts.

Notation (ours -> Chen & Li):
    attn   A_h (d, d)  ->  Theta_h
    value  V_h (d, e)  ->  W_h
A transformer's head with weights W_Q, W_K, W_V (d, r) and output projection W_O (r, e) is
A_h = W_Q W_K^T / sqrt(r), V_h = W_V W_O.

The forward pass is stable at every scale, in blocks of bounded memory: logits are computed of
order one, and the powers of two that were taken out of tokens and heads come back only after the
largest logit has been subtracted.  What is then too negative for float64 is a weight of zero, and
nothing overflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.model.layer import AttentionLayer, ordinary_tokens, outputs_by_block
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import restored
from polyattn.sequences import SequenceBatch

# Logits that are in memory together.
BLOCK_LOGITS = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxAttention(AttentionLayer):
    """A multi-head softmax attention layer.

    For a predicted position with query token x (a row) that attends to tokens X (n, d),

        y = sum_h  softmax(x A_h X^T) X V_h.

    Parameters
    ----------
    attn : array (H, d, d), or (d, d) for one head
    value : array (H, d, e), or (d, e) for one head
    mode : "full" | "causal" | "last"
        ``full``: one output per token, attending to all; ``causal``: one per token, attending
        to itself and those before; ``last``: one output, for the last token attending to all.
    bias : bool
        Inputs have one coordinate fewer than ``attn``; a constant 1 is appended to each token.
        The last column of ``attn`` then shifts all logits of a query alike and is invisible,
        and of the last rows of ``value`` only their sum over heads can be seen.

    Cost of a call: O(n^2 d) per sequence and head; scores are formed in blocks of bounded size.
    """

    mode: str = "full"
    kind: ClassVar[str] = "softmax_attention"

    @single_threaded_blas()
    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        attn, value, of_attn, of_value = self._scaled_heads
        tokens = ordinary_tokens(batch, self.bias, attn, value, degree=2)
        exponent = of_attn + 2 * tokens.exponent

        def attend(X: NDArray) -> NDArray[np.float64]:
            return _attend(X, attn, value, self.mode, exponent)

        outputs = outputs_by_block(tokens, self.mode, self.n_outputs, attend)
        return restored(outputs, of_value + tokens.exponent, "outputs")


def softmax(logits: NDArray, exponent: int = 0) -> NDArray[np.float64]:
    """Softmax of 2**exponent * logits along the last axis, in place; -inf is a weight of 0."""
    logits -= logits.max(axis=-1, keepdims=True)
    if exponent:
        with np.errstate(over="ignore", under="ignore"):
            np.ldexp(logits, exponent, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


def _attend(X: NDArray, attn: NDArray, value: NDArray, mode: str, exponent: int) -> NDArray:
    """(B, n, d) -> (B, n, e), or (B, 1, e) in mode ``last``."""
    n_sequences, n_tokens, _ = X.shape
    first_query = n_tokens - 1 if mode == "last" else 0
    outputs = np.zeros((n_sequences, n_tokens - first_query, value.shape[2]))
    at_once = max(1, BLOCK_LOGITS // (n_sequences * n_tokens))
    for begin, end in even_ranges(n_tokens - first_query, at_once):
        queries = X[:, first_query + begin : first_query + end]
        keys = X[:, :end] if mode == "causal" else X
        # Which of the tokens 0..end lie behind each of the queries begin..end.
        later = np.arange(end) > np.arange(begin, end)[:, None] if mode == "causal" else None
        for A, V in zip(attn, value, strict=True):
            logits = (queries @ A) @ keys.transpose(0, 2, 1)
            if later is not None:
                logits[:, later] = -np.inf
            outputs[:, begin:end] += (softmax(logits, exponent) @ keys) @ V
    return outputs
