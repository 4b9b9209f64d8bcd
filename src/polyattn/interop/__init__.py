"""Projections as transformers have them; torch and onnx, imported only where they are needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from polyattn.interop.from_projections import from_projections
from polyattn.interop.low_rank import ROUNDING
from polyattn.interop.projections import Projections
from polyattn.interop.to_projections import to_projections
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from onnx import ModelProto

    from polyattn.interop.torch import TorchAttention

__all__ = [
    "Projections",
    "from_projections",
    "from_torch",
    "to_multihead",
    "to_onnx",
    "to_projections",
    "to_torch",
]


def to_torch(layer: LinearAttention | SoftmaxAttention) -> TorchAttention:
    """The layer as a ``torch.nn.Module`` that computes the same function and can be trained.

    Its parameters ``attn`` (H, d, d) and ``value`` (H, d, e) are float64 copies; ``.float()``
    and ``.to(device)`` work as for every module.  Linear layers of other forms have the shapes of
    their form, ``skip`` and ``intercept`` are parameters too, and a ``context`` is the second
    argument of the module.  With rotary positions the parameters are ``query``, ``key`` and
    ``value``, and the frequencies a buffer.  Maps of ``pa.maps`` are computed by torch; functions
    of one's own are called with numpy arrays, and pass no gradient to the tokens.
    """
    from polyattn.interop.torch import convert

    return convert.to_torch(layer)


def from_torch(module: object, mode: str | None = None) -> LinearAttention | SoftmaxAttention:
    """The layer inside a module that ``to_torch`` made, or inside ``nn.MultiheadAttention``.

    Modules of ``to_torch`` may have been trained since; they know their mode.  A
    ``nn.MultiheadAttention`` becomes a ``SoftmaxAttention``, as it is used for self-attention
    without dropout: ``mode="full"`` (the default) without a mask, ``mode="causal"`` with a causal
    one.  Its biases become those of a constant coordinate (``bias=True``), and the factor
    1/sqrt(head_dim) is part of ``attn``.  Modules with ``kdim`` or ``vdim`` of their own,
    ``add_bias_kv`` or ``add_zero_attn`` are refused.

    Guarantee: ``from_torch(to_torch(layer)) == layer``, bit for bit.
    """
    from polyattn.interop.torch import convert

    return convert.from_torch(module, mode)


def to_multihead(
    layer: SoftmaxAttention, n_heads: int | str | None = None, tolerance: float = ROUNDING
) -> Any:
    """The layer as ``torch.nn.MultiheadAttention`` (float64, ``batch_first=True``).

    ``module(X, X, X)[0]`` is then ``layer(X)`` in mode ``full``; mode ``causal`` needs a causal
    ``attn_mask``, and of mode ``last`` the outputs are those of the last tokens.

    Possible if the layer has as many outputs as inputs (e = d), and ``attn`` and ``value`` of
    every head have at most rank d / n_heads.  With ``bias``, that is the rank of ``attn``
    without its last column and of ``value`` without its last row, which become biases.
    ``n_heads`` divides d; by default (None or ``"auto"``) it is the smallest such number that is
    not below the number of heads.  Heads that are not needed are zero.

    The rank is the least one that misses at most ``tolerance`` of a matrix in norm (with rows and
    columns at equal size, where only rounding may be missed: up to 1e-12).  What does not fit is
    dropped: ``module.relative_change`` is the largest part of an ``attn`` or ``value`` that
    was.  Layers that were learned have ranks that are right to rounding only: there 1e-9 is apt.
    Rotary positions have no place in the module, and are refused.
    """
    from polyattn.interop.torch import convert

    return convert.to_multihead(layer, n_heads, tolerance)


def to_onnx(
    layer: LinearAttention | SoftmaxAttention,
    path: str | os.PathLike[str] | None = None,
    dtype: str = "float64",
) -> ModelProto:
    """The layer as an ONNX model of standard operators, which runs without Python and polyattn.

    The input ``X`` is (batch, tokens, d), and a layer with ``n_context_dims`` has a second one,
    ``context``; the output ``Y`` is (batch, e) in mode ``last`` and (batch, tokens, e) otherwise.
    Numbers of sequences and tokens are free; sequences of different lengths are given one by one.

    Parameters
    ----------
    layer : LinearAttention of any form, or SoftmaxAttention, with rotary positions or without
        Functions of one's own among the maps of a form are refused: ONNX cannot hold them.
    path : where to write the model too, atomically; by default nowhere
    dtype : "float64" | "float32"
        The type of inputs, outputs, and of everything between.

    Guarantee: the model passes ``onnx.checker``; it computes the function of the layer up to
    rounding, for numbers that are of ordinary size (the layer itself divides tokens and heads of
    extreme size by powers of two, the model does not).
    Cost of a run: linear in the number of tokens for linear layers, quadratic for softmax.

    Examples
    --------
    >>> import polyattn as pa
    >>> layer = pa.data.random_layer(3, 2, mode="causal")
    >>> model = pa.interop.to_onnx(layer, dtype="float32")
    >>> [each.name for each in model.graph.input], [each.name for each in model.graph.output]
    (['X'], ['Y'])
    """
    from polyattn.interop.onnx import export

    return export.to_onnx(layer, path, dtype)


def is_torch_module(obj: object) -> bool:
    """Whether this is a ``torch.nn.Module``; torch is not imported."""
    names = (f"{base.__module__}.{base.__name__}" for base in type(obj).__mro__)
    return "torch.nn.modules.module.Module" in names


def torch_layer(
    module: object, mode: str | None = None
) -> LinearAttention | SoftmaxAttention | None:
    """``from_torch`` for modules whose forward pass is known, so no subclasses; None for others."""
    from polyattn.interop.torch import convert

    return convert.layer_of(module, mode)


def torch_outputs(module: Any, batch: SequenceBatch) -> NDArray | list[NDArray]:
    """What a module makes of sequences: (B, e), (B, n, e), or for ragged ones a list."""
    from polyattn.interop.torch import convert

    return convert.outputs(module, batch)
