"""Layers to modules and back, bit for bit, and any module as a function of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.torch.modules import (
    TorchAttention,
    TorchLinearAttention,
    TorchSoftmaxAttention,
)
from polyattn.interop.torch.multihead import as_array, from_multihead
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.sequences import SequenceBatch


def to_torch(layer: LinearAttention | SoftmaxAttention) -> TorchAttention:
    """The layer as a module, parameters in float64."""
    kinds: dict[type, type[TorchLinearAttention | TorchSoftmaxAttention]] = {
        LinearAttention: TorchLinearAttention,
        SoftmaxAttention: TorchSoftmaxAttention,
    }
    if type(layer) not in kinds:
        raise InvalidType(
            "to_torch takes a LinearAttention or a SoftmaxAttention; got "
            f"{type(layer).__name__}. A fit result and an estimator hold theirs as .layer and "
            ".layer_."
        )
    # torch.tensor copies, so that training the module leaves the layer alone.
    attn, value = torch.tensor(layer.attn), torch.tensor(layer.value)
    return kinds[type(layer)](attn, value, layer.mode, layer.bias)


def from_torch(module: object, mode: str | None = None) -> LinearAttention | SoftmaxAttention:
    """The layer of a module, of any dtype and on any device."""
    if isinstance(module, nn.MultiheadAttention):
        return from_multihead(module, "full" if mode is None else mode)
    if not isinstance(module, TorchLinearAttention | TorchSoftmaxAttention):
        raise InvalidType(
            "from_torch reads TorchLinearAttention and TorchSoftmaxAttention, the modules that "
            f"to_torch makes, and nn.MultiheadAttention; got {type(module).__name__}."
        )
    if mode is not None and mode != module.mode:
        raise InvalidInput(
            f"the module has mode {module.mode!r}, but mode={mode!r} was asked for; leave it out."
        )
    attn, value = as_array(module.attn), as_array(module.value)
    if isinstance(module, TorchLinearAttention):
        return LinearAttention(attn, value, module.mode, module.bias)
    return SoftmaxAttention(attn, value, module.mode, module.bias)


def layer_of(module: object, mode: str | None = None) -> LinearAttention | SoftmaxAttention | None:
    """The layer of a module whose forward pass is known; None for all others."""
    known = (TorchLinearAttention, TorchSoftmaxAttention, nn.MultiheadAttention)
    # A subclass may compute something else.
    if type(module) not in known:
        return None
    return from_torch(module, mode if type(module) is nn.MultiheadAttention else None)


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
