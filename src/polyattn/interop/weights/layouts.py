"""Layouts of weights: how libraries name the tensors of an attention layer, and lay them out.

A layout knows names as they stand below the attention module.  Its tensors become matrices for
rows x, with the heads side by side: W_Q, W_K, W_V (d, heads * head_dim), W_O (heads * head_dim, e).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.interop.low_rank import Matrix

#: From names below the attention module to arrays, and from these to W_Q, ..., b_O.
Tensors: TypeAlias = Mapping[str, Matrix]
Sides: TypeAlias = "dict[str, Matrix]"


@dataclass(frozen=True)
class WeightLayout:
    """One way to name and lay out the weights of a layer.

    name : what users call it
    forms : for each form of it the tensors that must be there
    optional : tensors that may be there, biases
    ignored : ends of names that stand beside the weights and change nothing of attention
    models : ``model_type`` of configurations whose attention is exactly this one
    sides : from tensors to W_Q, W_K, W_V, W_O and biases, heads side by side
    causal : whether a token attends to itself and those before; None: the weights do not say
    grouped : whether several heads may share keys and values
    rotary : whether queries and keys are turned; None: ``rotary_sin`` beside the weights says so
    """

    name: str
    forms: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...]
    ignored: tuple[str, ...]
    models: tuple[str, ...]
    sides: Callable[[Tensors], Sides]
    causal: bool | None = False
    grouped: bool = False
    rotary: bool | None = False

    @property
    def known(self) -> tuple[str, ...]:
        """All tensors that are read."""
        return tuple(dict.fromkeys((*(each for form in self.forms for each in form),
                                    *self.optional)))  # fmt: skip


# Of layouts that are four ``nn.Linear``: their names of queries, keys, values and outputs.
_BERT = "self.query self.key self.value output.dense"
_ALBERT = "query key value dense"
_LLAMA = "q_proj k_proj v_proj o_proj"
NAMES = {"bert": _BERT, "albert": _ALBERT, "llama": _LLAMA, "qwen2": _LLAMA}


def _linear(names: str) -> Callable[[Tensors], Sides]:
    """Four ``nn.Linear``: ``names`` of query, key, value and output, weights (out, in)."""

    def sides(tensors: Tensors) -> Sides:
        found = {}
        for role, name in zip("QKVO", names.split(), strict=True):
            found[f"W_{role}"] = tensors[f"{name}.weight"].T
            if f"{name}.bias" in tensors:
                found[f"b_{role}"] = tensors[f"{name}.bias"]
        return found

    return sides


def _linear_names(names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The weights and the biases of four ``nn.Linear``."""
    each = names.split()
    return tuple(f"{name}.weight" for name in each), tuple(f"{name}.bias" for name in each)


def _multihead(tensors: Tensors) -> Sides:
    """``nn.MultiheadAttention``: one weight (3 d, d), or three (d, d)."""
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    if "in_proj_weight" in tensors:
        stacked = thirds(tensors["in_proj_weight"], 0, "in_proj_weight", "(3 d, d)")
    else:
        stacked = [tensors[name] for name in names]
    found = {f"W_{role}": each.T for role, each in zip("QKV", stacked, strict=True)}
    found["W_O"] = tensors["out_proj.weight"].T
    if "in_proj_bias" in tensors:
        rows = thirds(tensors["in_proj_bias"], 0, "in_proj_bias", "(3 d,)")
        found |= {f"b_{role}": each for role, each in zip("QKV", rows, strict=True)}
    if "out_proj.bias" in tensors:
        found["b_O"] = tensors["out_proj.bias"]
    return found


def _gpt2(tensors: Tensors) -> Sides:
    """Fused ``Conv1D``: weights (in, out), not transposed."""
    fused = tensors["c_attn.weight"]
    if fused.ndim == 2 and fused.shape[0] == 3 * fused.shape[1]:
        raise InvalidInput(
            f"c_attn.weight has shape {fused.shape}, that of an nn.Linear; layout 'gpt2' holds "
            "Conv1D weights (d, 3 d): transpose c_attn.weight and c_proj.weight."
        )
    found = {
        f"W_{role}": each
        for role, each in zip("QKV", thirds(fused, 1, "c_attn.weight", "(d, 3 d)"), strict=True)
    }
    found["W_O"] = tensors["c_proj.weight"]
    if "c_attn.bias" in tensors:
        rows = thirds(tensors["c_attn.bias"], 0, "c_attn.bias", "(3 d,)")
        found |= {f"b_{role}": each for role, each in zip("QKV", rows, strict=True)}
    if "c_proj.bias" in tensors:
        found["b_O"] = tensors["c_proj.bias"]
    return found


def _transformer_lens(tensors: Tensors) -> Sides:
    """Stacked heads: W_Q (h, d, k), W_O (h, k, d), b_Q (h, k), b_O (d,)."""
    found = {}
    for name, each in tensors.items():
        role = name.lstrip("_")
        axes = 1 if role == "b_O" else 2 if role.startswith("b") else 3
        if each.ndim != axes:
            raise InvalidInput(
                f"{name} must have {axes} axes in layout 'transformer_lens', the first for heads "
                f"unless it is b_O; got {each.shape}."
            )
        if axes == 3 and role != "W_O":
            each = each.transpose(1, 0, 2).reshape(each.shape[1], -1)
        found[role] = each.reshape(-1, each.shape[-1]) if role == "W_O" else each
    return {role: each.ravel() if role[0] == "b" else each for role, each in found.items()}


def thirds(array: Matrix, axis: int, name: str, shape: str) -> list[Matrix]:
    """Three equal parts of a fused array."""
    if array.ndim <= axis or array.shape[axis] % 3:
        raise InvalidInput(f"{name} must have shape {shape}; got {array.shape}.")
    return np.split(array, 3, axis=axis)


# In the order in which they are named.
LAYOUTS = {
    layout.name: layout
    for layout in (
        WeightLayout(
            "multihead",
            (("in_proj_weight", "out_proj.weight"),
             ("q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight")),
            ("in_proj_bias", "out_proj.bias"), (), (), _multihead,
        ),
        WeightLayout(
            "bert", (_linear_names(_BERT)[0],), _linear_names(_BERT)[1],
            ("output.LayerNorm.weight", "output.LayerNorm.bias", "output.LayerNorm.gamma",
             "output.LayerNorm.beta"),
            ("bert", "roberta", "xlm-roberta", "camembert", "electra"), _linear(_BERT),
        ),
        WeightLayout(
            "albert", (_linear_names(_ALBERT)[0],), _linear_names(_ALBERT)[1],
            ("LayerNorm.weight", "LayerNorm.bias"), ("albert",), _linear(_ALBERT),
        ),
        WeightLayout(
            "gpt2", (("c_attn.weight", "c_proj.weight"),), ("c_attn.bias", "c_proj.bias"),
            # Buffers of the causal mask.
            ("bias", "masked_bias"), ("gpt2",), _gpt2, causal=True,
        ),
        WeightLayout(
            "llama", (_linear_names(_LLAMA)[0],), _linear_names(_LLAMA)[1],
            ("rotary_emb.inv_freq",), ("llama", "mistral", "qwen2", "gemma"), _linear(_LLAMA),
            causal=True, grouped=True, rotary=True,
        ),
        WeightLayout(
            "transformer_lens",
            (("W_Q", "W_K", "W_V", "W_O"), ("W_Q", "_W_K", "_W_V", "W_O")),
            ("b_Q", "b_K", "b_V", "b_O", "_b_K", "_b_V"),
            ("mask", "IGNORE", "rotary_sin", "rotary_cos"), (), _transformer_lens,
            causal=None, grouped=True, rotary=None,
        ),
    )
}  # fmt: skip

# Layouts that are read as another one is.
SAME_NAMES = {"qwen2": "llama"}
