"""Attention as torch modules: what all of them share, and softmax attention."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.torch.graphs import is_traced
from polyattn.model import SoftmaxAttention


class TorchAttention(nn.Module):
    """What both modules share: heads as parameters, and the forms of inputs and outputs.

    attn, value : tensors (H, ...) of one layer, which become the parameters of these names
    mode, bias : those of the layer, checked
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str, bias: bool) -> None:
        super().__init__()
        self.attn = nn.Parameter(attn)
        self.value = nn.Parameter(value)
        self.mode, self.bias = mode, bias
        # A number, and no shape: graphs follow shapes.
        self._n_dims = int(attn.shape[1]) - bias

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self._n_dims

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        n_heads, _, n_outputs = self.value.shape
        return (
            f"n_heads={n_heads}, n_dims={self.n_dims}, n_outputs={n_outputs}, "
            f"mode={self.mode!r}, bias={self.bias}"
        )

    def _require(self, X: Tensor, n_dims: int, name: str) -> None:
        if is_traced():
            # A graph serves all lengths, so that only what is the same for all is checked.
            if torch.compiler.is_compiling():
                torch._check(
                    X.shape[-1] == n_dims, lambda: f"{name} must have {n_dims} coordinates"
                )
            return
        if not isinstance(X, Tensor):
            raise InvalidType(
                f"{name} must be a torch.Tensor; got {type(X).__name__}. torch.as_tensor({name}, "
                f"dtype={self.attn.dtype}) makes one of an array."
            )
        if X.ndim not in (2, 3) or X.shape[-1] != n_dims or X.shape[-2] == 0:
            raise InvalidInput(
                f"{name} must have shape (B, n, {n_dims}) or (n, {n_dims}) with n >= 1; "
                f"got {tuple(X.shape)}."
            )
        if X.dtype != self.attn.dtype:
            raise InvalidType(
                f"{name} has dtype {X.dtype}, the module {self.attn.dtype}; convert one of them, "
                f"for example with module.float() or {name}.double()."
            )


class TorchSoftmaxAttention(TorchAttention):
    """F(X) = sum_h softmax(X A_h X^T) X V_h at the positions that ``mode`` predicts.

    The weights are those of ``scaled_dot_product_attention`` without a scale, with x A_h as
    queries and the tokens as keys and values: the largest logit is subtracted first.

    Parameters
    ----------
    attn, value : tensors (H, d, d) and (H, d, e)
    mode : "last" | "causal" | "full"
    bias : bool
        Append a constant 1 to each token; inputs then have d - 1 coordinates.
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str = "full", bias: bool = False) -> None:
        layer = SoftmaxAttention(zeros_of(attn, "attn"), zeros_of(value, "value"), mode, bias)
        super().__init__(attn, value, layer.mode, layer.bias)

    def forward(self, X: Tensor) -> Tensor:
        """Outputs (B, e) in mode ``last`` and (B, n, e) otherwise, for X (B, n, d).

        One sequence (n, d) gives (e,) or (n, e).
        """
        self._require(X, self.n_dims, "X")
        batch = X if X.ndim == 3 else X[None]
        if self.bias:
            batch = nn.functional.pad(batch, (0, 1), value=1.0)
        queries = batch[:, -1:] if self.mode == "last" else batch
        keys = batch[:, None].expand(-1, self.attn.shape[0], -1, -1)  # (B, H, n, d)
        means = nn.functional.scaled_dot_product_attention(
            queries[:, None] @ self.attn, keys, keys, is_causal=self.mode == "causal", scale=1.0
        )
        outputs = (means @ self.value).sum(1)
        outputs = outputs[:, 0] if self.mode == "last" else outputs
        return outputs if X.ndim == 3 else outputs[0]


def zeros_of(tensor: Tensor, name: str) -> NDArray[np.float64]:
    """Zeros of the shape of heads (H, ...): what a layer of them refuses, is refused."""
    if tensor.ndim != 3:
        raise InvalidInput(
            f"{name} must have three axes, the first for heads; got {tuple(tensor.shape)}."
        )
    return np.zeros(tuple(tensor.shape))
