"""SoftmaxAttention: F(X) = sum_h softmax(X A_h X^T) X V_h, where ``mode`` predicts.

Notation (ours -> Chen & Li):
    attn   A_h (d, d)  ->  Theta_h
    value  V_h (d, e)  ->  W_h
A transformer's head with weights W_Q, W_K, W_V (d, r) and output projection W_O (r, e) is
A_h = W_Q W_K^T / sqrt(r), V_h = W_V W_O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.model.forward_softmax import forward
from polyattn.model.layer import AttentionLayer
from polyattn.sequences import SequenceBatch


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxAttention(AttentionLayer):
    """A multi-head softmax attention layer.

    For a predicted position with query token x (a row) that attends to tokens X (n, d),

        y = sum_h  softmax(x A_h X^T) X V_h.

    Parameters
    ----------
    attn : array (H, d, d)
        Attention matrices, or one (d, d).
    value : array (H, d, e)
        Value matrices, or one (d, e).
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

    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        attn, value, of_attn, of_value = self._scaled_heads
        return forward(batch, attn, value, self.mode, self.bias, of_attn, of_value)
