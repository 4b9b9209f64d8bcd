"""Other libraries: each is imported only when a function here needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.model import LinearAttention

if TYPE_CHECKING:
    from polyattn.interop.torch import TorchLinearAttention

__all__ = ["from_torch", "to_torch"]


def to_torch(layer: LinearAttention) -> TorchLinearAttention:
    """The layer as a ``torch.nn.Module`` that computes the same function and can be trained.

    Its parameters ``attn`` (H, d, d) and ``value`` (H, d, e) are float64 copies; ``.float()``
    and ``.to(device)`` work as for every module.
    """
    from polyattn.interop import torch as bridge

    return bridge.to_torch(layer)


def from_torch(module: object) -> LinearAttention:
    """The layer inside a module that ``to_torch`` made (and that was perhaps trained since).

    Guarantee: ``from_torch(to_torch(layer)) == layer``, bit for bit.
    """
    from polyattn.interop import torch as bridge

    return bridge.from_torch(module)
