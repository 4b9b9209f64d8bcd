"""to_torch and from_torch: layers to modules and back, bit for bit."""

from __future__ import annotations

import torch
from torch import nn

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.torch.modules import (
    TorchAttention,
    TorchLinearAttention,
    TorchSoftmaxAttention,
)
from polyattn.interop.torch.multihead import as_array, from_multihead
from polyattn.model import LinearAttention, SoftmaxAttention


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
