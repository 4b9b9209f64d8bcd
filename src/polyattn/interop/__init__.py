"""Other libraries: each is imported only when a function here needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from polyattn.interop.torch import TorchLinearAttention

__all__ = ["from_torch", "is_torch_module", "to_torch", "torch_layer", "torch_outputs"]

TORCH_MODULE = "torch.nn.modules.module.Module"


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


def is_torch_module(obj: object) -> bool:
    """Whether this is a ``torch.nn.Module``, asked without importing torch."""
    return any(f"{base.__module__}.{base.__name__}" == TORCH_MODULE for base in type(obj).__mro__)


def torch_layer(module: object) -> LinearAttention | None:
    """The layer of a module whose forward pass is that of ``to_torch``; None for any other."""
    from polyattn.interop import torch as bridge

    return bridge.from_torch(module) if type(module) is bridge.TorchLinearAttention else None


def torch_outputs(module: Any, batch: SequenceBatch) -> NDArray | list[NDArray]:
    """What a module makes of sequences: (B, e), (B, n, e), or for ragged ones a list."""
    from polyattn.interop import torch as bridge

    return bridge.outputs(module, batch)
