"""Softmax layers that are hard to learn, each for a reason of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.data.recovery import head_shapes
from polyattn.errors import InvalidInput, require_choice, require_number
from polyattn.model import SoftmaxAttention
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.sequences import MODES

# attn (H, d, d) for logits of order one, and value (H, d, e).
Heads = tuple[NDArray[np.float64], NDArray[np.float64]]

# Heads of "close" differ by this part of their size.
CLOSE = 0.1


def hard_softmax_layer(
    family: str,
    n_dims: int,
    n_heads: int = 3,
    logits: float = 1.0,
    n_outputs: int | None = None,
    mode: str = "full",
    random_state: RandomState = 0,
    *,
    bias: bool = False,
) -> SoftmaxAttention:
    """A layer of one of the hard families; other parameters are as in ``random_softmax_layer``.

    With G_h (d, d) of entries N(0, 1/d^2), W_h (d, e) of entries N(0, 1/d), c = ``logits``:

    ================== =========================================================================
    "close"            A_h = c (G_0 + 0.1 G_h): attention matrices within 10 % of each other
    "same_value"       V_h = W_1 for all heads: only their attention tells them apart
    "rank_one_value"   V_h = u_h v_h^T: each head writes one direction
    "scales"           V_h = 10^-(h-1) W_h: heads of sizes 1, 0.1, 0.01, ...
    "identity"         A_h = c h / (H sqrt(d)) I: multiples of one matrix
    "rank_one_attn"    A_h = c u_h v_h^T: each head looks at one direction
    "cancel"           V_h = W_h - mean W: the values sum to zero, so the mean output says nothing
    "sharp_mix"        A_h = c 3^-(h-1) G_h: sharp heads beside blurred ones
    "permutation"      A_h = c P_h / sqrt(d), permutation matrices: equal singular values
    ================== =========================================================================

    Guarantee: the heads are distinct and have non-zero values, so all sequences together
    determine them (with ``logits > 0``; in "permutation" while no permutation is drawn twice).
    """
    draw = FAMILIES[require_choice("family", family, tuple(FAMILIES))]
    n_heads, d, e = head_shapes(n_heads, n_dims, n_outputs, bias)
    mode, logits = require_choice("mode", mode, MODES), require_number("logits", logits)
    if family == "cancel" and n_heads < 2:
        raise InvalidInput('the values of one head cannot cancel; family "cancel" needs n_heads 2.')
    rng = require_generator(random_state)
    attn = rng.standard_normal((n_heads, d, d)) / d
    value = rng.standard_normal((n_heads, d, e)) / np.sqrt(d)
    attn, value = draw(attn, value, rng)
    return SoftmaxAttention(logits * attn, value, mode, bool(bias))


def _close(attn: NDArray, value: NDArray, rng: np.random.Generator) -> Heads:
    common = rng.standard_normal(attn.shape[1:]) / attn.shape[1]
    return common + CLOSE * attn, value


def _same_value(attn: NDArray, value: NDArray, _: np.random.Generator) -> Heads:
    return attn, np.broadcast_to(value[0], value.shape)


def _rank_one_value(attn: NDArray, value: NDArray, rng: np.random.Generator) -> Heads:
    return attn, _rank_one(rng, value.shape) / np.sqrt(value.shape[1])


def _scales(attn: NDArray, value: NDArray, _: np.random.Generator) -> Heads:
    return attn, value * _powers(0.1, len(value))


def _identity(attn: NDArray, value: NDArray, _: np.random.Generator) -> Heads:
    n_heads, d, _ = attn.shape
    multiples = np.arange(1, n_heads + 1) / (n_heads * np.sqrt(d))
    return multiples[:, None, None] * np.eye(d), value


def _rank_one_attn(attn: NDArray, value: NDArray, rng: np.random.Generator) -> Heads:
    return _rank_one(rng, attn.shape) / attn.shape[1], value


def _cancel(attn: NDArray, value: NDArray, _: np.random.Generator) -> Heads:
    return attn, value - value.mean(axis=0)


def _sharp_mix(attn: NDArray, value: NDArray, _: np.random.Generator) -> Heads:
    return attn * _powers(1 / 3, len(attn)), value


def _permutation(attn: NDArray, value: NDArray, rng: np.random.Generator) -> Heads:
    d = attn.shape[1]
    chosen = np.stack([np.eye(d)[rng.permutation(d)] for _ in attn])
    return chosen / np.sqrt(d), value


def _rank_one(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    left, right = rng.standard_normal((*shape[:2], 1)), rng.standard_normal((shape[0], 1, shape[2]))
    return left * right


def _powers(base: float, count: int) -> NDArray[np.float64]:
    return np.power(base, np.arange(count, dtype=np.float64))[:, None, None]


FAMILIES: dict[str, Callable[[NDArray, NDArray, np.random.Generator], Heads]] = {
    "close": _close,
    "same_value": _same_value,
    "rank_one_value": _rank_one_value,
    "scales": _scales,
    "identity": _identity,
    "rank_one_attn": _rank_one_attn,
    "cancel": _cancel,
    "sharp_mix": _sharp_mix,
    "permutation": _permutation,
}
