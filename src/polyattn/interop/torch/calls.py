"""What a call of a module is given and returns: tokens, outputs, and where their axes are."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType

# What modules call their tokens, where these are given by name.
TOKENS = ("hidden_states", "query", "x", "src", "input", "inputs", "inputs_embeds")

# Sequences attended to that are others than the tokens.
OTHERS = ("encoder_hidden_states", "key_value_states", "cross_states", "memory", "context")

# Keys and values of tokens of earlier calls.
CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")


def arguments_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, in the order of ``forward``; those without one by number."""
    try:
        parameters = signature(module.forward).parameters
        bound = signature(module.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # No signature can be read, or it is called in a way that it does not show.
        return {f"argument {i}": each for i, each in enumerate(args)} | dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.items():
        kind = parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            found |= {f"{name}[{i}]": each for i, each in enumerate(value)}
        elif kind is Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def tokens_of(
    arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor:
    """The first tensor among the arguments: numbers (n, d), or (B, n, d) for sequences."""
    named = (kwargs.get(name) for name in TOKENS)
    found = next((each for each in (*args, *named, *arguments.values()) if _is(each)), None)
    if found is None:
        raise InvalidType(
            "it was called without a tensor; tokens are the first tensor among its arguments, "
            f"or one that is called {', '.join(TOKENS)}."
        )
    if not found.is_floating_point():
        raise InvalidType(
            f"its first tensor holds {found.dtype} of shape {tuple(found.shape)}, which are no "
            "tokens with coordinates; capture a module behind the embedding."
        )
    if found.is_nested:
        raise InvalidInput(
            "its tokens are a nested tensor, which torch itself takes in modules without hooks "
            "alone; make the nn.TransformerEncoder with enable_nested_tensor=False."
        )
    if found.ndim not in (2, 3):
        raise InvalidInput(
            f"its tokens have shape {tuple(found.shape)}; (n, d) or (B, n, d) is needed."
        )
    return found


def outputs_of(returned: Any) -> Tensor:
    """The tensor that a module returned, or the first of several."""
    if isinstance(returned, Mapping):
        named = returned.get("last_hidden_state")
        returned = next(iter(returned.values()), None) if named is None else named
    elif isinstance(returned, tuple | list):
        returned = returned[0] if returned else None
    if not _is(returned):
        raise InvalidType(
            "it must return a tensor, or several that begin with one; got "
            f"{type(returned).__name__}."
        )
    if not returned.is_floating_point():
        raise InvalidType(f"its outputs are {returned.dtype}; real numbers are needed.")
    return returned


def is_batch_first(module: nn.Module) -> bool:
    """Whether (B, n, d) are B sequences, as the module or its own attention says; else True."""
    inner = module
    if isinstance(inner, nn.TransformerEncoder | nn.TransformerDecoder):
        inner = inner.layers[0]
    attention = getattr(inner, "self_attn", None)
    for each in (inner, attention):
        found = getattr(each, "batch_first", None)
        if isinstance(found, bool):
            return found
    return True


def require_self_attention(module: nn.Module, arguments: Mapping[str, Any], tokens: Tensor) -> None:
    """Refuse calls whose tokens attend to other sequences than their own."""
    others = [name for name in OTHERS if _is(arguments.get(name))]
    if isinstance(module, nn.MultiheadAttention):
        others += [name for name in ("key", "value") if _differs(arguments.get(name), tokens)]
    if others:
        raise InvalidInput(
            f"it attends to other sequences, {others[0]}, and not to its own tokens alone; "
            "only self-attention is captured."
        )
    for name in CACHES:
        if _n_cached(arguments.get(name), module):
            raise InvalidInput(
                f"{name} holds tokens of earlier calls, which its tokens attend to; run whole "
                "sequences, with use_cache=False."
            )


def as_numbers(tensor: Tensor) -> NDArray[np.float64]:
    """A copy in float64 that no gradient goes through; no number of a smaller type changes."""
    return np.asarray(tensor.detach().to("cpu", torch.float64, copy=True).numpy())


def in_backward_pass() -> bool:
    """Whether gradients are being computed: calls are then repeated ones, of checkpointing."""
    return torch._C._current_graph_task_id() != -1


def _is(value: object) -> bool:
    return isinstance(value, Tensor)


def _differs(other: Any, tokens: Tensor) -> bool:
    if not _is(other) or other is tokens:
        return False
    return other.shape != tokens.shape or not torch.equal(other, tokens)


def _n_cached(cache: Any, module: nn.Module) -> int:
    """How many tokens, or at least whether any, an argument keeps of earlier calls."""
    if cache is None:
        return 0
    count = getattr(cache, "get_seq_length", None)
    if callable(count):
        numbers = (getattr(each, "layer_idx", None) for each in module.modules())
        return int(count(next((each for each in numbers if isinstance(each, int)), 0)))
    return len(cache) if isinstance(cache, tuple | list) else 1
