"""Attention layers as torch modules and back: the only package of the library with torch."""

from polyattn.errors import missing_extra

try:
    import torch as _torch  # noqa: F401 – here, so that its absence is reported once
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing_extra("torch", "torch") from None

from polyattn.interop.torch.convert import from_torch, layer_of, outputs, to_multihead, to_torch
from polyattn.interop.torch.linear_attention import TorchLinearAttention
from polyattn.interop.torch.modules import TorchAttention, TorchSoftmaxAttention

__all__ = [
    "TorchAttention",
    "TorchLinearAttention",
    "TorchSoftmaxAttention",
    "from_torch",
    "layer_of",
    "outputs",
    "to_multihead",
    "to_torch",
]
