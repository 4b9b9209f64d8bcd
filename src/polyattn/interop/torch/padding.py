"""Which tokens of a batch are real: padding as the masks of a call show it.

A mask that says anything else, or of which this cannot be told, is refused: a padded token that
counts as one makes every sum wrong.
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

# Tables (n, n) of who attends to whom, the same for all sequences; True where it does not.
TABLES = ("attn_mask", "src_mask")

# Masks that speak of heads, not of tokens.
OF_HEADS = ("head_mask", "layer_head_mask", "cross_attn_head_mask", "decoder_head_mask")

# What is added to a logit that does not count is below this.
FORBIDDING = -1e3

INSTEAD = "Give lengths=, a function of the tokens that returns the length of each sequence."


def real_tokens(
    module: nn.Module, arguments: Mapping[str, Any], n_sequences: int, n_tokens: int
) -> Real | None:
    """Which tokens (B, n) are no padding, by the masks of this call; None without such masks.

    Refused where a mask is none of these: ``key_padding_mask`` (B, n), ``attention_mask``
    (B, n) of ones and zeros, ``attention_mask`` (B, 1, 1 or n, n) of who attends to whom, in which
    all tokens attend to the real ones, or to those before them; tables (n, n) say nothing.
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
        elif name == "attention_mask" or (name == "mask" and mask.ndim == 4):
            found.append(_attended(name, mask, shape))
        elif not _is_table(module, name, mask, n_tokens):
            raise _unclear(name, f"has shape {tuple(mask.shape)}")
    return _all_of(found, shape)


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


def _attended(name: str, mask: Tensor, shape: tuple[int, int]) -> Real:
    """Real tokens by ``attention_mask``, of whatever number of axes."""
    if tuple(mask.shape) in (shape, shape[1:]):
        return _by_ones(name, mask).reshape(shape)
    n_sequences, n_tokens = shape
    if mask.ndim not in (3, 4) or mask.shape[-1] != n_tokens:
        raise _unclear(name, f"has shape {tuple(mask.shape)}")
    allowed = _array(mask) if mask.dtype == torch.bool else _by_addition(name, mask)
    if mask.ndim == 3:
        allowed = allowed[:, None]
    if len(allowed) not in (1, n_sequences) or allowed.shape[2] not in (1, n_tokens):
        raise _unclear(name, f"has shape {tuple(mask.shape)}")
    if np.any(allowed != allowed[:, :1]):
        raise _unclear(name, "differs from head to head")
    return _by_attention(name, np.broadcast_to(allowed[:, 0], (n_sequences, *allowed.shape[2:])))


def _by_attention(name: str, allowed: Real) -> Real:
    """Real tokens by who attends to whom, (B, 1 or n, n).

    The last row attends to all real tokens, whether it is padding or not.  That it is so is held
    against all rows of real tokens.  No other row attends to padding, but for those that attend
    to everything: rows that would attend to nothing are often let do so.
    """
    real = allowed[:, -1]
    seen = real[:, None, :]
    before = np.tril(np.ones(allowed.shape[1:], dtype=bool))
    rows = np.ones((1, 1), dtype=bool) if allowed.shape[1] == 1 else real
    beyond = np.any(allowed & ~seen, axis=2) & ~np.all(allowed, axis=2)
    for wanted in (seen, seen & before):
        if not np.any((allowed != wanted) & rows[:, :, None]) and not np.any(beyond):
            return real
    raise _unclear(name, "lets tokens attend to others than all, or all before them")


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


def _is_table(module: nn.Module, name: str, mask: Tensor, n_tokens: int) -> bool:
    """Whether it is a table of torch's modules that holds for all sequences alike."""
    named = name in TABLES or (name == "mask" and isinstance(module, nn.TransformerEncoder))
    return named and tuple(mask.shape) == (n_tokens, n_tokens)


def _array(mask: Tensor) -> NDArray:
    plain = mask.detach().cpu()
    return np.asarray((plain.float() if plain.is_floating_point() else plain).numpy())


def _unclear(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"its {name} {why}, and does not tell which tokens are padding. {INSTEAD}")
