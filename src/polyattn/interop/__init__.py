"""Projections as transformers have them; torch and onnx, imported only where they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from numpy.typing import NDArray

from polyattn.form.form import Form
from polyattn.interop.circuits import Circuits, circuits
from polyattn.interop.from_projections import from_projections
from polyattn.interop.low_rank import ROUNDING
from polyattn.interop.projections import Projections
from polyattn.interop.sequence_buffer import TakesUpdates
from polyattn.interop.to_projections import to_projections
from polyattn.interop.weights import from_weights, read_projections, to_weights
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.linearised import LinearisedAttention
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from onnx import ModelProto

    from polyattn.interop.torch import TorchAttention
    from polyattn.interop.torch.linearised import TorchLinearisedAttention

AnyLayer: TypeAlias = LinearAttention | SoftmaxAttention | LinearisedAttention

__all__ = [
    "Circuits",
    "Projections",
    "capture",
    "circuits",
    "from_projections",
    "from_torch",
    "from_weights",
    "read_projections",
    "to_multihead",
    "to_onnx",
    "to_projections",
    "to_torch",
    "to_weights",
]


@overload
def to_torch(layer: LinearAttention | SoftmaxAttention) -> TorchAttention: ...
@overload
def to_torch(layer: LinearisedAttention) -> TorchLinearisedAttention: ...


def to_torch(
    layer: LinearAttention | SoftmaxAttention | LinearisedAttention,
) -> TorchAttention | TorchLinearisedAttention:
    """The layer as a ``torch.nn.Module`` that computes the same function and can be trained.

    Its parameters ``attn`` (H, d, d) and ``value`` (H, d, e) are float64 copies; ``.float()``
    and ``.to(device)`` work as for every module.  Linear layers of other forms have the shapes of
    their form, ``skip`` and ``intercept`` are parameters too, and a ``context`` is the second
    argument of the module.  With rotary positions the parameters are ``query``, ``key`` and
    ``value``, and the frequencies a buffer.  Maps of ``pa.maps`` are computed by torch; functions
    of one's own are called with numpy arrays, and pass no gradient to the tokens.

    Of a LinearisedAttention all arrays are parameters, projections and landmarks included; it
    runs in time that is linear in the number of tokens.
    """
    from polyattn.interop.torch import convert

    if isinstance(layer, LinearisedAttention):
        from polyattn.interop.torch.linearised import TorchLinearisedAttention

        return TorchLinearisedAttention(layer)
    return convert.to_torch(layer)


def from_torch(module: object, mode: str | None = None) -> AnyLayer:
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
    from polyattn.interop.torch.linearised import TorchLinearisedAttention

    if isinstance(module, TorchLinearisedAttention):
        return module.to_layer(mode)
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


def capture(
    module: Any,
    form: Form,
    *,
    name: str | None = None,
    into: str | TakesUpdates = "moments",
    lengths: Callable[..., Any] | None = None,
    calls: int | Collection[int] | None = None,
    batch_first: bool | None = None,
) -> AbstractContextManager[Any]:
    """Add up the inputs and outputs of a module while a model runs: ``with capture(...) as sums:``.

    Tokens are the first tensor that the module is given, (n, d) or (B, n, d), outputs the tensor
    that it returns, or the first of several; both become float64.  After the block ``sums`` are
    statistics like any others: ``pa.fit`` and ``pa.certify`` take ``statistics=sums``, they are
    added by ``+``, and saved.

    Parameters
    ----------
    module : torch.nn.Module
        The module, or the model that it is a part of, with ``name``.
    form : Form
        The layer whose statistics are wanted.  Query, key and value that are matrices (d, r) make
        sums of wide tokens small.
    name : str, optional
        What ``model.named_modules()`` calls the module.  The model's own masks are then known too.
    into : "moments", "triangular", "source", or an object with a method ``update(X, Y)``
        ``Moments``; a ``TriangularFactor``; a source for ``pa.fit(source, form=form)``, whose
        sequences lie in a temporary file, where features are too many for sums; or what was made
        before, such as the sums of an earlier run.
    lengths : function, optional
        How many tokens of each sequence are no padding, (B,), by the tokens (B, n, d); masks are
        not read then.
    calls : int or several, optional
        Of a module that the model calls several times in one forward pass, which of these calls
        count, from 0; needs ``name``.  Default: all of them.
    batch_first : bool, optional
        Whether (B, n, d) is meant, or (n, B, d).  Default: what the module says, else True.

    Padding is left out: by ``lengths``, or by the ``key_padding_mask`` or ``attention_mask`` that
    the module or the model is given.  A mask that does not tell which tokens are padding is
    refused, and so are tokens that attend to other sequences, or to tokens of earlier calls.
    Tables of who attends to whom (``attn_mask``, ``mask``), ``is_causal``, and modules of torch
    without either must attend as the mode of the form does; what a module does inside is not seen.

    Guarantee: ``sums`` equal the statistics of all sequences given at once, to rounding.  No number
    of a forward pass changes, and the hooks are gone after the block, whatever ended it.  (Of
    ``nn.TransformerEncoderLayer`` torch itself takes its fused kernel only where there are no
    hooks: in evaluation without gradients, rounding may differ.)  A module that is never called
    raises ``InvalidInput`` at the end of the block.
    Cost: memory of the statistics and one portion of 8 MB, however many tokens there are.
    """
    from polyattn.interop.torch import capture as torch_capture

    return torch_capture.capture(module, form, name, into, lengths, calls, batch_first)


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
    Cost of a run: quadratic in the number of tokens n for softmax; for linear layers linear, but
    for sums over chunks of 64 tokens in causal ones, (n / 64)^2 additions.

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
