"""Random and hard softmax layers, and the task of recovering them from sequences and outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.data.recovery import Length, Planted, boolean_sequences, head_shapes, random_sequences
from polyattn.errors import InvalidInput, require_choice, require_integer, require_number
from polyattn.model import SoftmaxAttention
from polyattn.numerics.random_state import RandomState, require_generator

# Heads of "close" differ by this part of their size.
CLOSE = 0.1


def random_softmax_layer(
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    logits: float = 1.0,
    rank: int | None = None,
    mode: str = "full",
    random_state: RandomState = 0,
    *,
    bias: bool = False,
    rotary: ArrayLike | None = None,
) -> SoftmaxAttention:
    """Heads of independent normal numbers: attn N(0, (logits/d)^2), value N(0, 1/d).

    Tokens of order one then have logits of order ``logits`` and outputs of order one.

    Parameters
    ----------
    n_dims, n_outputs, n_heads : int
        d, e (by default d) and H.
    logits : float
        The size c of the logits: attention is nearly uniform for c << 1 and picks single tokens
        for c >> 1.
    rank : int, optional
        Every ``attn`` and ``value`` is a product of factors (d, rank) and (rank, ...), as in a
        transformer's head of that width; the entries keep their standard deviations.
    mode : "full" | "causal" | "last"
    random_state : int, Generator or None
    bias : bool
        The heads have one coordinate more, d = n_dims + 1 above, for the constant 1 that the
        layer appends to every token.
    rotary : float or array (rank / 2,), optional
        Rotary positions of this theta, or of these frequencies; ``rank``, which is then needed, is
        the even number of coordinates of a query.
    """
    n_heads, d, e = head_shapes(n_heads, n_dims, n_outputs, bias)
    logits = require_number("logits", logits)
    if rotary is not None and rank is None:
        raise InvalidInput("with rotary give rank, the even number of coordinates of a query.")
    if rank is not None and require_integer("rank", rank) > d and rotary is None:
        raise InvalidInput(f"rank must be at most {d}, the width of the heads; got {rank}.")
    rng = require_generator(random_state)
    if rotary is not None and rank is not None:
        # A product of queries and keys adds up rank terms.
        query, key = np.sqrt(logits / d) * rng.standard_normal((2, n_heads, d, rank)) / rank**0.25
        value = _matrices(rng, (n_heads, d, e), min(rank, d)) / np.sqrt(d)
        return SoftmaxAttention((query, key), value, mode, bool(bias), rotary=rotary)
    attn = _matrices(rng, (n_heads, d, d), rank) * (logits / d)
    value = _matrices(rng, (n_heads, d, e), rank) / np.sqrt(d)
    return SoftmaxAttention(attn, value, mode, bool(bias))


def planted_softmax(
    n_sequences: int,
    n_tokens: Length,
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    logits: float = 1.0,
    distribution: str = "boolean",
    family: str | None = None,
    noise: float = 0.0,
    mode: str = "full",
    random_state: RandomState = 0,
    *,
    bias: bool = False,
) -> Planted[SoftmaxAttention]:
    """The task of Chen and Li: recover a softmax layer from random examples [chen2024].

    Y = layer(X) + noise * N(0, 1), independently for every target coordinate.

    Parameters
    ----------
    n_sequences, n_tokens, n_dims : as for ``boolean_sequences``
    n_outputs, n_heads, logits, mode, bias : as for ``random_softmax_layer``
    distribution : "boolean" | "gaussian"
        Coordinates of the tokens: uniform in {-1, 1}, or N(0, 1).
    family : str, optional
        One of the hard families of ``hard_softmax_layer`` instead of a random layer.
    noise : float
        Standard deviation of the noise on the targets, in their units.
    random_state : int, Generator or None
        The layer is drawn first, then X, then the noise: for one seed the layer does not change
        with the sequences, nor do both with the noise.
    """
    noise = require_number("noise", noise)
    require_choice("distribution", distribution, ("boolean", "gaussian"))
    rng = require_generator(random_state)
    if family is None:
        layer = random_softmax_layer(n_dims, n_outputs, n_heads, logits, None, mode, rng, bias=bias)
    else:
        layer = hard_softmax_layer(family, n_dims, n_heads, logits, n_outputs, mode, rng, bias=bias)
    if distribution == "boolean":
        X = boolean_sequences(n_sequences, n_tokens, n_dims, rng)
    else:
        X = random_sequences(n_sequences, n_tokens, n_dims, 1.0, rng)
    return Planted.of(layer, X, noise, rng)


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
    logits = require_number("logits", logits)
    if family == "cancel" and n_heads < 2:
        raise InvalidInput('the values of one head cannot cancel; family "cancel" needs n_heads 2.')
    rng = require_generator(random_state)
    attn = rng.standard_normal((n_heads, d, d)) / d
    value = rng.standard_normal((n_heads, d, e)) / np.sqrt(d)
    attn, value = draw(attn, value, rng)
    return SoftmaxAttention(logits * attn, value, mode, bool(bias))


def _matrices(
    rng: np.random.Generator, shape: tuple[int, ...], rank: int | None
) -> NDArray[np.float64]:
    """Matrices (H, rows, columns) with entries of variance one, of the given rank."""
    if rank is None:
        return rng.standard_normal(shape)
    left = rng.standard_normal((*shape[:2], rank))
    return left @ rng.standard_normal((shape[0], rank, shape[2])) / np.sqrt(rank)


def _powers(base: float, heads: NDArray) -> NDArray[np.float64]:
    return np.power(base, np.arange(len(heads), dtype=np.float64))[:, None, None]


def _multiples(attn: NDArray) -> NDArray[np.float64]:
    """The identity times h / (H sqrt(d))."""
    n_heads, d, _ = attn.shape
    return np.arange(1, n_heads + 1)[:, None, None] / (n_heads * np.sqrt(d)) * np.eye(d)


def _permutations(attn: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    d = attn.shape[1]
    return np.stack([np.eye(d)[rng.permutation(d)] for _ in attn]) / np.sqrt(d)


# From attn (H, d, d) and value (H, d, e) of independent normal numbers to those of a family, for
# logits of order one.
FAMILIES: dict[str, Callable[[NDArray, NDArray, np.random.Generator], tuple[NDArray, NDArray]]] = {
    "close": lambda attn, value, rng: (
        rng.standard_normal(attn.shape[1:]) / attn.shape[1] + CLOSE * attn, value
    ),
    "same_value": lambda attn, value, _: (attn, np.broadcast_to(value[0], value.shape)),
    "rank_one_value": lambda attn, value, rng: (
        attn, _matrices(rng, value.shape, 1) / np.sqrt(value.shape[1])
    ),
    "scales": lambda attn, value, _: (attn, value * _powers(0.1, value)),
    "identity": lambda attn, value, _: (_multiples(attn), value),
    "rank_one_attn": lambda attn, value, rng: (
        _matrices(rng, attn.shape, 1) / attn.shape[1], value
    ),
    "cancel": lambda attn, value, _: (attn, value - value.mean(axis=0)),
    "sharp_mix": lambda attn, value, _: (attn * _powers(1 / 3, attn), value),
    "permutation": lambda attn, value, rng: (_permutations(attn, rng), value),
}  # fmt: skip
