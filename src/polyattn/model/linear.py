"""LinearAttention: F(X) = sum_h (X A_h X^T) X V_h, at the positions that ``mode`` predicts.

Notation (ours -> Yau et al., whose tokens are columns Z = X^T; -> Chen & Li):
    attn   A_h (d, d)  ->  Q_h^T    ->  Theta_h
    value  V_h (d, e)  ->  V_h^T    ->  W_h

The cost of a forward pass is linear in the length of a sequence: y_t = sum_h x_t A_h G_t V_h with
G_t the Gram matrix of the tokens that t attends to.  Of long sequences, earlier chunks enter by
their Gram, and scores are formed only inside a chunk.  Many heads are folded into coefficients
first, whose cost does not depend on H.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import apply_coef
from polyattn.features.pairs import fold_heads, n_features
from polyattn.features.summaries import summary_blocks
from polyattn.model.layer import AttentionLayer, ordinary_tokens, outputs_by_block
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import restored
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Tokens of a causal chunk: the scores of a chunk then stay in the first cache.
CHUNK = 32


@dataclass(frozen=True, eq=False, repr=False)
class LinearAttention(AttentionLayer):
    """A multi-head linear attention layer.

    For a predicted position with query token x (a row) that attends to tokens of Gram matrix G,

        y = sum_h  x A_h G V_h,      y_a = sum_{j<=k, l} coef[a, (jk), l] G[j,k] x[l].

    Parameters
    ----------
    attn : array (H, d, d), or (d, d) for one head
    value : array (H, d, e), or (d, e) for one head
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

    @single_threaded_blas()
    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        attn, value, of_attn, of_value = self._scaled_heads
        exponent = of_attn + of_value
        # Flops per row beyond the Gram, roughly.
        n_heads, width, n_outputs = value.shape
        scores = 2 * CHUNK if self.mode == "causal" else 0
        by_head = 2 * n_heads * width * (2 * width + n_outputs + scores)
        if by_head <= 2 * n_outputs * n_features(width):
            return head_forward(batch, attn, value, self.mode, self.bias, exponent)
        return coef_forward(batch, fold_heads(attn, value), self.mode, self.bias, exponent)


@single_threaded_blas()
def coef_forward(
    batch: SequenceBatch, coef: NDArray, mode: str, bias: bool, exponent: int = 0
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) from folded coefficients (e, q, d).  Cost: 2 e p flops per row.

    Here and below the outputs are multiplied by 2**exponent, together with what was taken out
    of the tokens: each alone may leave the range of float64 where both together do not.
    """
    tokens = ordinary_tokens(batch, bias, coef)
    outputs = np.empty((batch.n_rows(mode), len(coef)))
    for block in summary_blocks(tokens, mode):
        outputs[block.first : block.stop] = apply_coef(coef, block.pairs, block.queries).T
        report(block.stop, len(outputs))
    return restored(outputs, 3 * tokens.exponent + exponent, "outputs")


def head_forward(
    batch: SequenceBatch, attn: NDArray, value: NDArray, mode: str, bias: bool, exponent: int = 0
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of attn (H, d, d), value (H, d, e).  Cost: O(H d (d + e)) per row."""
    tokens = ordinary_tokens(batch, bias, attn, value)
    attend = partial({"last": _last, "causal": _causal, "full": _full}[mode], attn, value)
    outputs = outputs_by_block(tokens, mode, value.shape[2], attend)
    return restored(outputs, 3 * tokens.exponent + exponent, "outputs")


def _last(attn: NDArray, value: NDArray, X: NDArray) -> NDArray[np.float64]:
    """(B, n, d) -> (B, e); scores of one query only: O(n d) per head."""
    outputs = np.zeros((len(X), value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        scores = X @ (X[:, -1] @ A)[:, :, None]
        outputs += (scores.transpose(0, 2, 1) @ X)[:, 0] @ V
    return outputs


def _full(attn: NDArray, value: NDArray, X: NDArray) -> NDArray[np.float64]:
    """(B, n, d) -> (B, n, e) through the Gram of each sequence."""
    gram = X.transpose(0, 2, 1) @ X
    # One (d, e) matrix per sequence serves all its tokens, whatever the number of heads.
    return X @ sum(A @ gram @ V for A, V in zip(attn, value, strict=True))


def _causal(attn: NDArray, value: NDArray, X: NDArray) -> NDArray[np.float64]:
    """(B, n, d) -> (B, n, e) in chunks: earlier chunks by their Gram, the own one by scores."""
    n_sequences, n_tokens, width = X.shape
    chunk = min(CHUNK, n_tokens)
    n_chunks = -(-n_tokens // chunk)
    padded = np.zeros((n_sequences, n_chunks * chunk, width))
    padded[:, :n_tokens] = X
    chunks = padded.reshape(n_sequences, n_chunks, chunk, width)
    grams = np.cumsum(chunks.transpose(0, 1, 3, 2) @ chunks, axis=1)
    earlier = np.concatenate([np.zeros_like(grams[:, :1]), grams[:, :-1]], axis=1)
    attends = np.tril(np.ones((chunk, chunk)))
    outputs = np.zeros((n_sequences, n_chunks, chunk, value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        queries = chunks @ A
        scores = queries @ chunks.transpose(0, 1, 3, 2)
        scores *= attends
        outputs += (queries @ earlier + scores @ chunks) @ V
    return outputs.reshape(n_sequences, -1, value.shape[2])[:, :n_tokens]
