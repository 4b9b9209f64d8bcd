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

    value, logits : tensors (H, ...) of one layer, which become the parameters of these names
    mode, bias : those of the layer, checked
    """

    attn: nn.Parameter
    value: nn.Parameter

    def __init__(self, value: Tensor, mode: str, bias: bool, **logits: Tensor) -> None:
        super().__init__()
        for name, tensor in (*logits.items(), ("value", value)):
            self.register_parameter(name, nn.Parameter(tensor))
        self.mode, self.bias = mode, bias
        # A number, and no shape: graphs follow shapes.
        self._n_dims = int(value.shape[1]) - bias

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
                f"dtype={self.value.dtype}) makes one of an array."
            )
        if X.ndim not in (2, 3) or X.shape[-1] != n_dims or X.shape[-2] == 0:
            raise InvalidInput(
                f"{name} must have shape (B, n, {n_dims}) or (n, {n_dims}) with n >= 1; "
                f"got {tuple(X.shape)}."
            )
        if X.dtype != self.value.dtype:
            raise InvalidType(
                f"{name} has dtype {X.dtype}, the module {self.value.dtype}; convert one of them, "
                f"for example with module.float() or {name}.double()."
            )


class TorchSoftmaxAttention(TorchAttention):
    """F(X) = sum_h softmax(X A_h X^T) X V_h at the positions that ``mode`` predicts.

    The weights are those of ``scaled_dot_product_attention`` without a scale, with x A_h as
    queries and the tokens as keys and values: the largest logit is subtracted first.

    Parameters
    ----------
    attn, value : tensors (H, d, d) and (H, d, e)
        With ``rotary`` attn is the pair of tensors W_Q and W_K (H, d, r), which become the
        parameters ``query`` and ``key``.
    mode : "last" | "causal" | "full"
    bias : bool
        Append a constant 1 to each token; inputs then have d - 1 coordinates.
    rotary : float or tensor (r/2,), optional
        theta, or the frequencies, of rotary positions; they are a buffer, which is not trained.
    """

    frequencies: Tensor | None
    query: nn.Parameter
    key: nn.Parameter

    def __init__(
        self,
        attn: Tensor | tuple[Tensor, Tensor],
        value: Tensor,
        mode: str = "full",
        bias: bool = False,
        rotary: float | Tensor | None = None,
    ) -> None:
        pair = isinstance(attn, tuple | list)
        names = ("query", "key") if pair else ("attn",)
        logits = dict(zip(names, attn if pair else (attn,), strict=True))
        zeros = [zeros_of(each, name) for name, each in logits.items()]
        given = rotary.detach().cpu().numpy() if isinstance(rotary, Tensor) else rotary
        layer = SoftmaxAttention(
            tuple(zeros) if pair else zeros[0], zeros_of(value, "value"), mode, bias, rotary=given
        )
        super().__init__(value, layer.mode, layer.bias, **logits)
        frequencies = layer.frequencies
        turns = None if frequencies is None else value.new_tensor(frequencies)
        self.register_buffer("frequencies", turns)

    def forward(self, X: Tensor) -> Tensor:
        """Outputs (B, e) in mode ``last`` and (B, n, e) otherwise, for X (B, n, d).

        One sequence (n, d) gives (e,) or (n, e).
        """
        self._require(X, self.n_dims, "X")
        batch = X if X.ndim == 3 else X[None]
        if self.bias:
            batch = nn.functional.pad(batch, (0, 1), value=1.0)
        queries, keys = self._queries_and_keys(batch)
        values = batch[:, None].expand(-1, self.value.shape[0], -1, -1)  # (B, H, n, d)
        means = nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=self.mode == "causal", scale=1.0
        )
        outputs = (means @ self.value).sum(1)
        outputs = outputs[:, 0] if self.mode == "last" else outputs
        return outputs if X.ndim == 3 else outputs[0]

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        text = super().extra_repr()
        return text if self.frequencies is None else f"{text}, rotary={len(self.frequencies)}"

    def _queries_and_keys(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Both (B, H, ..., r) for tokens (B, n, d); in mode last the query of the last token."""
        asking = batch[:, -1:] if self.mode == "last" else batch
        if self.frequencies is None:
            return asking[:, None] @ self.attn, batch[:, None].expand(
                -1, self.attn.shape[0], -1, -1
            )
        # Positions as a sum of ones: graphs follow it for every length.
        positions = torch.ones_like(batch[0, :, 0]).cumsum(0) - 1.0
        angles = positions[:, None] * self.frequencies
        own = angles[-1:] if self.mode == "last" else angles
        return (
            _turned(asking[:, None] @ self.query, own),
            _turned(batch[:, None] @ self.key, angles),
        )


def _turned(projected: Tensor, angles: Tensor) -> Tensor:
    """Queries or keys (..., n, r), turned by angles (n, r/2)."""
    real, imaginary = projected.chunk(2, dim=-1)
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat(
        [real * cosines - imaginary * sines, imaginary * cosines + real * sines], dim=-1
    )


def zeros_of(tensor: Tensor, name: str) -> NDArray[np.float64]:
    """Zeros of the shape of heads (H, ...): what a layer of them refuses, is refused."""
    if tensor.ndim != 3:
        raise InvalidInput(
            f"{name} must have three axes, the first for heads; got {tuple(tensor.shape)}."
        )
    return np.zeros(tuple(tensor.shape))
