"""Projections as the tensors of each layout: the inverse of what ``layouts`` reads.

Projections are stacks of heads: W_Q (H, d, r), W_K and W_V (groups, d, r), W_O (H, r, e), b_Q
(H, r), b_K and b_V (groups, r), b_O (e,); biases may be absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from polyattn.interop.low_rank import Matrix
from polyattn.interop.weights.layouts import NAMES

Stacks: TypeAlias = Mapping[str, Matrix]


def named(stacks: Stacks, layout: str) -> dict[str, Matrix]:
    """The tensors by the names that they have below the attention module."""
    if layout in NAMES:
        return _linear(stacks, NAMES[layout])
    return _OTHERS[layout](stacks)


def _flat(stacks: Stacks, role: str) -> Matrix:
    """Heads side by side: (d, H r), and of outputs (H r, e)."""
    stack = stacks[f"W_{role}"]
    if role == "O":
        return stack.reshape(-1, stack.shape[2])
    return stack.transpose(1, 0, 2).reshape(stack.shape[1], -1)


def _linear(stacks: Stacks, names: str) -> dict[str, Matrix]:
    """Four ``nn.Linear``, whose weights are (out, in)."""
    found = {}
    for role, name in zip("QKVO", names.split(), strict=True):
        found[f"{name}.weight"] = _flat(stacks, role).T
        if f"b_{role}" in stacks:
            found[f"{name}.bias"] = stacks[f"b_{role}"].ravel()
    return found


def _multihead(stacks: Stacks) -> dict[str, Matrix]:
    """``nn.MultiheadAttention`` with one weight (3 d, d)."""
    found = {"in_proj_weight": np.concatenate([_flat(stacks, role).T for role in "QKV"])}
    if "b_Q" in stacks:
        found["in_proj_bias"] = _fused_bias(stacks)
    found["out_proj.weight"] = _flat(stacks, "O").T
    return found | ({"out_proj.bias": stacks["b_O"]} if "b_O" in stacks else {})


def _gpt2(stacks: Stacks) -> dict[str, Matrix]:
    """``Conv1D``, whose weights are (in, out)."""
    return {
        "c_attn.weight": np.concatenate([_flat(stacks, role) for role in "QKV"], axis=1),
        "c_attn.bias": _fused_bias(stacks),
        "c_proj.weight": _flat(stacks, "O"),
        "c_proj.bias": stacks["b_O"],
    }


def _transformer_lens(stacks: Stacks) -> dict[str, Matrix]:
    """Stacks as they are; keys and values that heads share have a line before their names."""
    line = "_" if len(stacks["W_K"]) < len(stacks["W_Q"]) else ""
    return {f"{line if name[-1] in 'KV' else ''}{name}": each for name, each in stacks.items()}


def _fused_bias(stacks: Stacks) -> Matrix:
    return np.concatenate([stacks[f"b_{role}"].ravel() for role in "QKV"])


_OTHERS: dict[str, Callable[[Stacks], dict[str, Matrix]]] = {
    "multihead": _multihead,
    "gpt2": _gpt2,
    "transformer_lens": _transformer_lens,
}
