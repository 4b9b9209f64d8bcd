"""LinearAttention: F(X) = sum_h (X A_h X^T) X V_h, at the positions that ``mode`` predicts.

Notation (ours -> Yau et al., whose tokens are columns Z = X^T; -> Chen & Li):
    attn   A_h (d, d)  ->  Q_h^T    ->  Theta_h
    value  V_h (d, e)  ->  V_h^T    ->  W_h
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import fold_heads
from polyattn.model.forward import forward
from polyattn.model.layer import AttentionLayer
from polyattn.numerics.scaling import restored
from polyattn.sequences import SequenceBatch


@dataclass(frozen=True, eq=False, repr=False)
class LinearAttention(AttentionLayer):
    """A multi-head linear attention layer.

    For a predicted position with query token x (a row) that attends to tokens of Gram matrix G,

        y = sum_h  x A_h G V_h,      y_a = sum_{j<=k, l} coef[a, (jk), l] G[j,k] x[l].

    Parameters
    ----------
    attn : array (H, d, d)
        Attention matrices, or one (d, d).
    value : array (H, d, e)
        Value matrices, or one (d, e).
    mode : "last" | "causal" | "full"
        ``last``: one output, for the last token attending to all; ``causal``: one output per
        token, attending to itself and those before; ``full``: one per token, attending to all.
    bias : bool
        Inputs have one coordinate fewer than ``attn``; a constant 1 is appended to each token.

    Cost of a call: O(n d^2) per sequence and head; the n x n scores are never formed.
    """

    mode: str = "last"
    kind: ClassVar[str] = "linear_attention"

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients P (e, q, d): all that data can see of the layer.

        Pairs j <= k are in the order of ``numpy.triu_indices`` [yau2024: Corollary A.4].
        """
        attn, value, of_attn, of_value = self._scaled_heads
        coef = restored(fold_heads(attn, value), of_attn + of_value, "the coefficients")
        coef.setflags(write=False)
        return coef

    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        attn, value, of_attn, of_value = self._scaled_heads
        return forward(batch, attn, value, self.mode, self.bias, of_attn + of_value)
