"""Which tokens of a batch are real: padding as the masks of a call show it.

A mask that says anything else, or of which this cannot be told, is refused: a padded token that
counts as one makes every sum wrong, and so do tokens that attend to others than the form says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.quoting import shown

Real = NDArray[np.bool_]

# Masks of torch's own modules: True, or minus infinity, where a token is padding.
PADDING = ("key_padding_mask", "src_key_padding_mask")

# Tables (n, n), or (B * heads, n, n), of who attends to whom; True where it does not.
TABLES = ("attn_mask", "src_mask")

# Modules that attend to all tokens unless a table says otherwise.
OF_TORCH = {nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder}

# Masks that speak of heads, not of tokens.
OF_HEADS = ("head_mask", "layer_head_mask", "cross_attn_head_mask", "decoder_head_mask")

# What is added to a logit that does not count is below this.
FORBIDDING = -1e3

INSTEAD = "Give lengths=, a function of the tokens that returns the length of each sequence."


def real_tokens(
    module: nn.Module, arguments: Mapping[str, Any], n_sequences: int, n_tokens: int, mode: str
) -> Real | None:
    """Which tokens (B, n) are no padding, by the masks of this call; None without such masks.

    Refused where a mask is none of these: ``key_padding_mask`` (B, n), ``attention_mask``
    (B, n) of ones and zeros, or a table of who attends to whom, ``attention_mask`` (B, 1, 1 or n,
    n), ``attn_mask`` (n, n) or (B * heads, n, n), in which tokens attend to the real ones as in
    ``mode``: to all of them, or to those before.
    """
    shape = (n_sequences, n_tokens)
    found: list[Real] = []
    for name, mask in arguments.items():
        if mask is None or "mask" not in name or name in OF_HEADS:
            continue
        if not isinstance(mask, Tensor):
            raise _unclear(name, f"is a {type(mask).__name__}")
        if name in PADDING:
            found.append(_kept_by(name, mask, shape))
        elif name == "attention_mask" and tuple(mask.shape) in (shape, shape[1:]):
            found.append(_by_ones(name, mask).reshape(shape))
        elif _is_table(module, name, mask):
            real = _by_attention(name, _allowed(module, name, mask, shape), mode)
            if name == "attention_mask" or not np.all(real):
                found.append(real)
        else:
            raise _unclear(name, f"has shape {tuple(mask.shape)}")
    return _all_of(found, shape)


def require_mode(module: nn.Module, arguments: Mapping[str, Any], mode: str) -> None:
    """Refuse a call that a flag, or the lack of a table, makes one of another mode."""
    causal = arguments.get("is_causal")
    masks = ((name, mask) for name, mask in arguments.items() if isinstance(mask, Tensor))
    tables = (_is_table(module, name, mask) and mask.shape[-2] > 1 for name, mask in masks)
    if causal is not True and any(tables):
        return
    if causal is None:
        causal = False if type(module) in OF_TORCH else getattr(module, "is_causal", None)
    if isinstance(causal, bool):
        what = "its is_causal=True is" if causal else "a call without a table of who attends is"
        _require_same(what, "causal" if causal else "full", mode)


def tokens_within(
    lengths: Callable[[NDArray[np.float64]], Any], tokens: NDArray[np.float64]
) -> Real:
    """The first ``lengths(tokens)[i]`` tokens of each sequence, of tokens (B, n, d)."""
    n_sequences, n_tokens, _ = tokens.shape
    given = lengths(tokens)
    counts = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
    wrong = counts.shape != (n_sequences,) or counts.dtype.kind not in "iu"
    if wrong or np.any(counts < 0) or np.any(counts > n_tokens):
        raise InvalidInput(
            f"lengths must return one integer between 0 and {n_tokens} for each of "
            f"{n_sequences} sequences; got {shown(given)}."
        )
    return np.asarray(np.arange(n_tokens) < counts[:, None])


def _all_of(found: list[Real], shape: tuple[int, int]) -> Real | None:
    if not found:
        return None
    real = np.logical_and.reduce(found)
    # A block of real tokens in each sequence: more than one begins where a gap ends.
    begins = np.diff(real.astype(np.int8), axis=1, prepend=0) == 1
    if np.any(begins.sum(axis=1) > 1):
        raise InvalidInput(
            "its mask leaves out tokens in the middle of a sequence, which is no padding. "
            f"{INSTEAD}"
        )
    return real.reshape(shape)


def _kept_by(name: str, mask: Tensor, shape: tuple[int, int]) -> Real:
    """Real tokens by a mask of torch: False, or zero, where a token counts."""
    if tuple(mask.shape) not in (shape, shape[1:]):
        raise _unclear(name, f"has shape {tuple(mask.shape)}, not {shape}")
    if mask.dtype == torch.bool:
        return ~_array(mask).reshape(shape)
    if not mask.is_floating_point():
        raise _unclear(name, f"holds {mask.dtype}, neither True and False nor what is added")
    return _by_addition(name, mask).reshape(shape)


def _allowed(module: nn.Module, name: str, mask: Tensor, shape: tuple[int, int]) -> Real:
    """Who attends to whom, (B, 1 or n, n), by a table with or without axes for heads."""
    n_sequences, n_tokens = shape
    allowed = _by_addition(name, mask)
    n_rows, n_columns = allowed.shape[-2:]
    # Torch's own modules have True where a token does not attend; others may where it does, and
    # then each attends to itself.
    turned = name != "attention_mask" and not mask.is_floating_point()
    own = np.diagonal(allowed, axis1=-2, axis2=-1)
    if turned and (type(module) in OF_TORCH or not np.all(own)):
        allowed = ~allowed
    if mask.ndim < 4:
        each = n_sequences if mask.ndim == 3 and len(mask) % n_sequences == 0 else 1
        allowed = allowed.reshape(each, -1, n_rows, n_columns)
    if len(allowed) not in (1, n_sequences) or n_rows not in (1, n_tokens) or n_columns != n_tokens:
        raise _unclear(name, f"has shape {tuple(mask.shape)}")
    if np.any(allowed != allowed[:, :1]):
        raise _unclear(name, "differs from head to head")
    return np.broadcast_to(allowed[:, 0], (n_sequences, n_rows, n_columns))


def _by_attention(name: str, allowed: Real, mode: str) -> Real:
    """Real tokens by who attends to whom, (B, 1 or n, n), which must be so as in ``mode``.

    The last row attends to all real tokens, whether it is padding or not.  That it is so is held
    against all rows of real tokens.  No other row attends to padding, but for those that attend
    to everything: rows that would attend to nothing are often let do so.
    """
    real = allowed[:, -1]
    if allowed.shape[1] == 1:
        return real
    seen = real[:, None, :]
    before = np.tril(np.ones(allowed.shape[1:], dtype=bool))
    beyond = np.any(allowed & ~seen, axis=2) & ~np.all(allowed, axis=2)
    modes = [
        each
        for each, wanted in (("full", seen), ("causal", seen & before))
        if not np.any((allowed != wanted) & real[:, :, None]) and not np.any(beyond)
    ]
    if not modes:
        raise InvalidInput(
            f"its {name} lets tokens attend to others than all, or all before them, as no form "
            "does; capture calls without it."
        )
    if mode not in modes:
        _require_same(f"its {name} is", modes[0], mode)
    return real


def _require_same(what: str, found: str, mode: str) -> None:
    if mode not in (found, "last"):
        raise InvalidInput(
            f"{what} that of mode {found!r}, and the form has mode {mode!r}: the sums would be "
            f"those of another layer. Give a form with mode={found!r}."
        )


def _by_ones(name: str, mask: Tensor) -> Real:
    """Ones for real tokens and zeros for padding; or what is added to logits, if negative."""
    array = _array(mask)
    if mask.is_floating_point() and np.all(array <= 0):
        return _by_addition(name, mask)
    if not np.all((array == 0) | (array == 1)):
        raise _unclear(name, "holds other numbers than 0 and 1")
    return np.asarray(array == 1)


def _by_addition(name: str, mask: Tensor) -> Real:
    """Zero where a token counts, very negative where it does not."""
    array = _array(mask)
    if not mask.is_floating_point():
        if not np.all((array == 0) | (array == 1)):
            raise _unclear(name, "holds other numbers than 0 and 1")
        return np.asarray(array == 1)
    if not np.all((array == 0) | (array <= FORBIDDING)):
        raise _unclear(name, "adds numbers to logits that are neither 0 nor minus infinity")
    return np.asarray(array == 0)


def _is_table(module: nn.Module, name: str, mask: Tensor) -> bool:
    """Whether it says who attends to whom, by its name and axes."""
    if name == "mask" and not isinstance(module, nn.TransformerEncoder):
        return mask.ndim == 4
    least = 3 if name == "attention_mask" else 2
    return name in (*TABLES, "attention_mask", "mask") and least <= mask.ndim <= 4


def _array(mask: Tensor) -> NDArray:
    plain = mask.detach().cpu()
    return np.asarray((plain.float() if plain.is_floating_point() else plain).numpy())


def _unclear(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"its {name} {why}, and does not tell which tokens are padding. {INSTEAD}")
