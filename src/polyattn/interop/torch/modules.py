"""Linear and softmax attention as torch modules: the same function, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.sequences import MODES

# Tokens of a causal chunk of linear attention: scores are formed inside a chunk only.
CHUNK = 64


class TorchAttention(nn.Module):
    """What both modules share: heads as parameters, and the forms of inputs and outputs.

    Parameters
    ----------
    attn, value : tensors (H, d, d) and (H, d, e), which become the parameters of these names
    mode : "last" | "causal" | "full"
    bias : bool
        Append a constant 1 to each token; inputs then have d - 1 coordinates.
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str, bias: bool = False) -> None:
        super().__init__()
        if attn.ndim != 3 or attn.shape[1] != attn.shape[2] or attn.shape[:2] != value.shape[:2]:
            raise InvalidInput(
                "attn must have shape (H, d, d) and value (H, d, e); "
                f"got {tuple(attn.shape)} and {tuple(value.shape)}."
            )
        self.attn = nn.Parameter(attn)
        self.value = nn.Parameter(value)
        self.mode = require_choice("mode", mode, MODES)
        self.bias = bool(bias)

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self.attn.shape[1] - self.bias

    def forward(self, X: Tensor) -> Tensor:
        """Outputs (B, e) in mode ``last`` and (B, n, e) otherwise, for X (B, n, d).

        One sequence (n, d) gives (e,) or (n, e).
        """
        if X.ndim not in (2, 3) or X.shape[-1] != self.n_dims or X.shape[-2] == 0:
            raise InvalidInput(
                f"X must have shape (B, n, {self.n_dims}) or (n, {self.n_dims}) with n >= 1; "
                f"got {tuple(X.shape)}."
            )
        if X.dtype != self.attn.dtype:
            raise InvalidType(
                f"X has dtype {X.dtype}, the module {self.attn.dtype}; convert one of them, for "
                "example with module.float() or X.double()."
            )
        batch = X if X.ndim == 3 else X[None]
        if self.bias:
            batch = nn.functional.pad(batch, (0, 1), value=1.0)
        queries = batch[:, -1:] if self.mode == "last" else batch
        outputs = self._attend(batch, queries)
        outputs = outputs[:, 0] if self.mode == "last" else outputs
        return outputs if X.ndim == 3 else outputs[0]

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        n_heads, _, n_outputs = self.value.shape
        return (
            f"n_heads={n_heads}, n_dims={self.n_dims}, n_outputs={n_outputs}, "
            f"mode={self.mode!r}, bias={self.bias}"
        )

    def _attend(self, X: Tensor, queries: Tensor) -> Tensor:
        """Outputs of the queries, the last or all of the tokens X (B, n, d), constant included."""
        raise NotImplementedError


class TorchLinearAttention(TorchAttention):
    """F(X) = sum_h (X A_h X^T) X V_h at the positions that ``mode`` predicts.

    Cost of a call: linear in the number of tokens, forward and backward; no n x n scores.
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str = "last", bias: bool = False) -> None:
        super().__init__(attn, value, mode, bias)

    def _attend(self, X: Tensor, queries: Tensor) -> Tensor:
        if self.mode == "causal":
            return _linear_causal(X, self.attn, self.value)
        gram = X.transpose(1, 2) @ X
        # One (d, e) matrix per sequence serves all its tokens: sum_h A_h G V_h.
        return queries @ (self.attn @ gram[:, None] @ self.value).sum(1)


class TorchSoftmaxAttention(TorchAttention):
    """F(X) = sum_h softmax(X A_h X^T) X V_h at the positions that ``mode`` predicts.

    The weights are those of ``scaled_dot_product_attention`` without a scale, with x A_h as
    queries and the tokens as keys and values: the largest logit is subtracted first.
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str = "full", bias: bool = False) -> None:
        super().__init__(attn, value, mode, bias)

    def _attend(self, X: Tensor, queries: Tensor) -> Tensor:
        keys = X[:, None].expand(-1, len(self.attn), -1, -1)  # (B, H, n, d)
        means = nn.functional.scaled_dot_product_attention(
            queries[:, None] @ self.attn, keys, keys, is_causal=self.mode == "causal", scale=1.0
        )
        return (means @ self.value).sum(1)


def _linear_causal(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """In chunks: earlier chunks through their Gram matrix, the own one through its scores."""
    n_sequences, n_tokens, width = X.shape
    chunk = min(CHUNK, n_tokens)
    padded = nn.functional.pad(X, (0, 0, 0, -n_tokens % chunk))
    chunks = padded.reshape(n_sequences, 1, -1, chunk, width)  # (B, 1, chunks, chunk, d)
    queries = chunks @ attn[:, None]  # (B, H, chunks, chunk, d)
    mixed = torch.tril(queries @ chunks.transpose(-1, -2)) @ chunks
    if n_tokens > chunk:
        grams = (chunks.transpose(-1, -2) @ chunks).cumsum(2)
        earlier = nn.functional.pad(grams[:, :, :-1], (0, 0, 0, 0, 1, 0))
        mixed = mixed + queries @ earlier
    outputs = (mixed @ value[:, None]).sum(1)
    return outputs.reshape(n_sequences, -1, value.shape[2])[:, :n_tokens]
