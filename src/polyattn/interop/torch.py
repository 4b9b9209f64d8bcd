"""Linear attention as a torch module: the same function, with gradients, on any device.

The only module of the library, beside ``experiments``, that imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, missing_extra, require_choice
from polyattn.model import LinearAttention
from polyattn.sequences import MODES, SequenceBatch

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing_extra("torch", "torch") from None

# Tokens of a causal chunk: scores are formed inside a chunk only.
CHUNK = 64


class TorchLinearAttention(nn.Module):
    """F(X) = sum_h (X A_h X^T) X V_h at the positions that ``mode`` predicts.

    Parameters
    ----------
    attn : tensor (H, d, d), becomes the parameter ``attn``
    value : tensor (H, d, e), becomes the parameter ``value``
    mode : "last" | "causal" | "full"
    bias : bool
        Append a constant 1 to each token; inputs then have d - 1 coordinates.

    Cost of a call: linear in the number of tokens, forward and backward; no n x n scores.
    """

    def __init__(self, attn: Tensor, value: Tensor, mode: str = "last", bias: bool = False) -> None:
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
        self._check(X)
        batch = X if X.ndim == 3 else X[None]
        if self.bias:
            batch = nn.functional.pad(batch, (0, 1), value=1.0)
        outputs = attend(batch, self.attn, self.value, self.mode)
        return outputs if X.ndim == 3 else outputs[0]

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        n_heads, _, n_outputs = self.value.shape
        return (
            f"n_heads={n_heads}, n_dims={self.n_dims}, n_outputs={n_outputs}, "
            f"mode={self.mode!r}, bias={self.bias}"
        )

    def _check(self, X: Tensor) -> None:
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


def to_torch(layer: LinearAttention) -> TorchLinearAttention:
    """The layer as a module, parameters in float64."""
    if not isinstance(layer, LinearAttention):
        raise InvalidType(
            f"to_torch takes a LinearAttention; got {type(layer).__name__}. A fit result and an "
            "estimator hold theirs as .layer and .layer_."
        )
    # torch.tensor copies, so that training the module leaves the layer alone.
    return TorchLinearAttention(
        torch.tensor(layer.attn), torch.tensor(layer.value), layer.mode, layer.bias
    )


def from_torch(module: object) -> LinearAttention:
    """The layer of a ``TorchLinearAttention``, of any dtype and on any device."""
    if isinstance(module, TorchLinearAttention):
        attn, value = (
            parameter.detach().to("cpu", torch.float64).numpy()
            for parameter in (module.attn, module.value)
        )
        return LinearAttention(attn, value, module.mode, module.bias)
    hint = (
        " nn.MultiheadAttention applies softmax to its scores, so it is no linear attention; it "
        "will be readable once this library has softmax layers."
        if isinstance(module, nn.MultiheadAttention)
        else ""
    )
    raise InvalidType(
        "from_torch reads TorchLinearAttention, the module that to_torch makes; "
        f"got {type(module).__name__}.{hint}"
    )


def outputs(module: nn.Module, batch: SequenceBatch) -> NDArray | list[NDArray]:
    """What any module makes of sequences, in evaluation mode and without gradients.

    Sequences of one length are one tensor (B, n, d), of the dtype and on the device of the
    parameters (float64 without any); others come one by one, as tensors (1, n, d).
    """
    like = next((p for p in module.parameters() if p.is_floating_point()), None)
    target = torch.empty(0, dtype=torch.float64) if like is None else like
    length = batch.common_length
    with torch.no_grad(), _evaluating(module):
        if length is not None:
            return _run(module, batch.values.reshape(len(batch), length, batch.n_dims), target)
        return [_run(module, sequence[None], target)[0] for sequence in batch]


def _run(module: nn.Module, X: NDArray, like: Tensor) -> NDArray[np.float64]:
    """Outputs for X (B, n, d), computed in the dtype and on the device of ``like``."""
    result = module(torch.tensor(np.ascontiguousarray(X), dtype=like.dtype, device=like.device))
    if not isinstance(result, Tensor) or result.shape[:1] != (len(X),):
        came = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise InvalidInput(
            f"the module must return one tensor with a row for each of the {len(X)} sequences; "
            f"got {came}. Wrap it in a function that does."
        )
    return result.to("cpu", torch.float64).numpy()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout; every part gets its own mode back."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def attend(X: Tensor, attn: Tensor, value: Tensor, mode: str) -> Tensor:
    """Outputs (B, e) or (B, n, e) of heads attn (H, d, d), value (H, d, e) for X (B, n, d)."""
    if mode == "causal":
        return _causal(X, attn, value)
    gram = X.transpose(1, 2) @ X
    # One (d, e) matrix per sequence serves all its tokens: sum_h A_h G V_h.
    map_per_sequence = (attn @ gram[:, None] @ value).sum(1)
    queries = X[:, -1:] if mode == "last" else X
    outputs = queries @ map_per_sequence
    return outputs[:, 0] if mode == "last" else outputs


def _causal(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """In chunks: earlier chunks through their Gram matrix, the own one through its scores."""
    n_sequences, n_tokens, n_dims = X.shape
    chunk = min(CHUNK, n_tokens)
    padded = nn.functional.pad(X, (0, 0, 0, -n_tokens % chunk))
    chunks = padded.reshape(n_sequences, 1, -1, chunk, n_dims)  # (B, 1, chunks, chunk, d)
    queries = chunks @ attn[:, None]  # (B, H, chunks, chunk, d)
    mixed = torch.tril(queries @ chunks.transpose(-1, -2)) @ chunks
    if n_tokens > chunk:
        grams = (chunks.transpose(-1, -2) @ chunks).cumsum(2)
        earlier = nn.functional.pad(grams[:, :, :-1], (0, 0, 0, 0, 1, 0))
        mixed = mixed + queries @ earlier
    outputs = (mixed @ value[:, None]).sum(1)
    return outputs.reshape(n_sequences, -1, value.shape[2])[:, :n_tokens]
