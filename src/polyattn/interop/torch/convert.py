"""Layers to modules and back, bit for bit, and any module as a function of sequences.

nn.MultiheadAttention has the functions of SoftmaxAttention in other parameters.  A head of width
r with input projections W_Q, W_K, W_V (d, r), biases b_Q, b_K, b_V (r,), and its part W_O (r, d)
of the output projection with bias b_O is, on tokens with an appended 1,

    A = [W_Q; b_Q] [W_K; b_K]^T / sqrt(r),      V = [W_V; b_V] W_O + [0; b_O / H].

Weights sum to one, so the last column of A has no effect and b_O can be shared equally.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType, require_head_count, require_number
from polyattn.interop.low_rank import ROUNDING, LowRank, require_width
from polyattn.interop.torch import modules
from polyattn.interop.torch.linear_attention import TorchLinearAttention
from polyattn.interop.torch.modules import TorchSoftmaxAttention
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.rotary import require_no_rotary
from polyattn.sequences import SequenceBatch

Matrix = NDArray[np.float64]

KINDS: dict[type[LinearAttention | SoftmaxAttention], type[modules.TorchAttention]] = {
    LinearAttention: TorchLinearAttention,
    SoftmaxAttention: TorchSoftmaxAttention,
}


def to_torch(layer: LinearAttention | SoftmaxAttention) -> modules.TorchAttention:
    """The layer as a module, parameters in float64."""
    if type(layer) not in KINDS:
        raise InvalidType(
            "to_torch takes a LinearAttention or a SoftmaxAttention; got "
            f"{type(layer).__name__}. A fit result and an estimator hold theirs as .layer and "
            ".layer_."
        )
    # torch.tensor copies, so that training the module leaves the layer alone.
    tensors: dict[str, Any] = {k: torch.tensor(each) for k, each in layer.arrays().items()}
    if isinstance(layer, SoftmaxAttention):
        attn = tensors["attn"] if "attn" in tensors else (tensors["query"], tensors["key"])
        return TorchSoftmaxAttention(
            attn, tensors["value"], layer.mode, layer.bias, tensors.get("frequencies")
        )
    return TorchLinearAttention(
        **tensors, form=layer.form, n_dims=layer.n_dims,
        n_context_dims=layer.n_context_dims, head_scales=layer.head_scales,
    )  # fmt: skip


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
    value = as_array(module.value)
    if isinstance(module, TorchSoftmaxAttention) and module.frequencies is not None:
        pair, frequencies = (as_array(module.query), as_array(module.key)), module.frequencies
        return SoftmaxAttention(pair, value, module.mode, module.bias, rotary=as_array(frequencies))
    attn = as_array(module.attn)
    if isinstance(module, TorchSoftmaxAttention):
        return SoftmaxAttention(attn, value, module.mode, module.bias)
    return LinearAttention(
        attn, value, form=module.form, n_dims=module.n_dims,
        n_context_dims=module.layout.n_context_dims, head_scales=module.head_scales,
        skip=None if module.skip is None else as_array(module.skip),
        intercept=None if module.intercept is None else as_array(module.intercept),
    )  # fmt: skip


def layer_of(module: object, mode: str | None = None) -> LinearAttention | SoftmaxAttention | None:
    """The layer of a module whose forward pass is known; None for all others."""
    # A subclass may compute something else.
    if type(module) is nn.MultiheadAttention:
        return from_torch(module, mode)
    return from_torch(module) if type(module) in KINDS.values() else None


def outputs(module: nn.Module, batch: SequenceBatch) -> NDArray | list[NDArray]:
    """What any module makes of sequences, in evaluation mode and without gradients.

    Sequences of one length are one tensor (B, n, d), of the dtype and on the device of the
    parameters (float64 without any); others come one by one, as tensors (1, n, d).
    """
    floating = (p for p in module.parameters() if p.is_floating_point())
    target, length = next(floating, torch.empty(0, dtype=torch.float64)), batch.common_length
    # Evaluation mode, without dropout; every part gets its own mode back.
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            if length is not None:
                tokens = batch.values[:].reshape(len(batch), length, batch.n_dims)
                return _run(module, tokens, target)
            return [_run(module, sequence[None], target)[0] for sequence in batch]
    finally:
        for part, training in before:
            part.training = training


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


def from_multihead(module: nn.MultiheadAttention, mode: str) -> SoftmaxAttention:
    """The layer that the module computes as self-attention, without dropout."""
    unsupported = {
        f"kdim={module.kdim}": module.kdim != module.embed_dim,
        f"vdim={module.vdim}": module.vdim != module.embed_dim,
        "add_bias_kv=True": module.bias_k is not None or module.bias_v is not None,
        "add_zero_attn=True": module.add_zero_attn,
    }
    if named := [name for name, present in unsupported.items() if present]:
        raise InvalidInput(
            f"this nn.MultiheadAttention has {', '.join(named)}: it is no self-attention of its "
            "tokens alone (keys or values of another head_dim, or an added token), which "
            "SoftmaxAttention cannot express."
        )
    d, n_heads, head_dim = module.embed_dim, module.num_heads, module.head_dim
    stacked = as_array(module.in_proj_weight).reshape(3, n_heads, head_dim, d).transpose(0, 1, 3, 2)
    outputs = as_array(module.out_proj.weight).T.reshape(n_heads, head_dim, d)
    bias = module.in_proj_bias is not None
    if bias:
        rows = as_array(module.in_proj_bias).reshape(3, n_heads, 1, head_dim)
        stacked = np.concatenate([stacked, rows], axis=2)
    queries, keys, values = stacked  # (H, d, r) each, or one row more for the biases
    attn = queries @ keys.transpose(0, 2, 1) / np.sqrt(head_dim)
    value = values @ outputs
    if bias:
        value[:, -1] += as_array(module.out_proj.bias) / n_heads
    return SoftmaxAttention(attn, value, mode, bias)


def to_multihead(
    layer: SoftmaxAttention, n_heads: int | str | None = None, tolerance: float = ROUNDING
) -> nn.MultiheadAttention:
    """The layer as ``nn.MultiheadAttention``: see ``polyattn.interop.to_multihead``."""
    if not isinstance(layer, SoftmaxAttention):
        raise InvalidType(f"to_multihead takes a SoftmaxAttention; got {type(layer).__name__}.")
    require_no_rotary(
        layer, "nn.MultiheadAttention has no positions",
        "to_torch makes a module that has them, to_projections W_Q and W_K.",
    )  # fmt: skip
    d = layer.n_dims
    if layer.n_outputs != d:
        raise InvalidInput(
            "nn.MultiheadAttention has as many outputs as inputs; the layer has "
            f"{layer.n_outputs} and {d}."
        )
    require_number("tolerance", tolerance, most=1.0)
    count = _number_of_heads(layer, n_heads)
    head_dim = d // count
    # What a constant coordinate adds to the keys has no effect, so keys need no bias.
    logits = LowRank.of(layer.attn[:, :, :d] * np.sqrt(head_dim), tolerance, "attn")
    means = LowRank.of(layer.value[:, :d], tolerance, "value")
    advice = "fewer or simpler heads would fit"
    require_width(head_dim, [logits, means], " of nn.MultiheadAttention", advice)
    heads = np.arange(layer.n_heads)
    (queries, keys), (values, outputs) = (each.terms(head_dim, heads) for each in (logits, means))
    module = nn.MultiheadAttention(d, count, bias=layer.bias, batch_first=True, dtype=torch.float64)
    stacked = np.zeros((4, count, head_dim, d))
    for i, factor in enumerate((queries[:, :d], keys, values, outputs)):
        stacked[i, : layer.n_heads] = factor.transpose(0, 2, 1)
    parameters: dict[str, NDArray] = {
        "in_proj_weight": stacked[:3].reshape(3 * d, d),
        "out_proj.weight": stacked[3].reshape(d, d).T,
    }
    if layer.bias:
        rows = np.zeros((3, count, head_dim))
        rows[0, : layer.n_heads] = queries[:, d]
        parameters["in_proj_bias"] = rows.ravel()
        parameters["out_proj.bias"] = layer.value[:, d].sum(axis=0)
    module.load_state_dict({name: torch.tensor(array) for name, array in parameters.items()})
    # No parameter: only for the reader.
    vars(module).update(relative_change=max(logits.lost(head_dim), means.lost(head_dim)))
    return module


def as_array(parameter: Tensor) -> Matrix:
    """A parameter as float64 numbers of its own."""
    return np.array(parameter.detach().to("cpu", torch.float64).numpy())


def _number_of_heads(layer: SoftmaxAttention, n_heads: int | str | None) -> int:
    """The given number, or the smallest divisor of d that all heads fit into."""
    d = layer.n_dims
    given = require_head_count(n_heads)
    if isinstance(given, int):
        if d % given or given < layer.n_heads:
            raise InvalidInput(
                f"n_heads must divide the {d} coordinates and be at least {layer.n_heads}, the "
                f"number of heads; got {given}."
            )
        return given
    possible = [count for count in range(layer.n_heads, d + 1) if d % count == 0]
    if not possible:
        raise InvalidInput(
            f"nn.MultiheadAttention has at most as many heads as coordinates; the layer has "
            f"{layer.n_heads} and {d}."
        )
    return possible[0]
