"""Random softmax layers, and the task of recovering them from sequences and outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.data.hard_softmax import hard_softmax_layer
from polyattn.data.recovery import (
    Length,
    Planted,
    boolean_sequences,
    head_shapes,
    random_sequences,
    with_noise,
)
from polyattn.errors import InvalidInput, require_choice, require_integer, require_number
from polyattn.model import SoftmaxAttention
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.sequences import MODES

DISTRIBUTIONS = ("boolean", "gaussian")


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
) -> SoftmaxAttention:
    """Heads of independent normal numbers: attn N(0, (logits/d)^2), value N(0, 1/d).

    Tokens with coordinates of order one then have logits of order ``logits`` and outputs of
    order one.

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
    """
    n_heads, d, e = head_shapes(n_heads, n_dims, n_outputs, bias)
    mode, logits = require_choice("mode", mode, MODES), require_number("logits", logits)
    if rank is not None and require_integer("rank", rank) > d:
        raise InvalidInput(f"rank must be at most {d}, the width of the heads; got {rank}.")
    rng = require_generator(random_state)
    attn = _matrices(rng, n_heads, d, d, rank) * (logits / d)
    value = _matrices(rng, n_heads, d, e, rank) / np.sqrt(d)
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
    require_choice("distribution", distribution, DISTRIBUTIONS)
    rng = require_generator(random_state)
    if family is None:
        layer = random_softmax_layer(n_dims, n_outputs, n_heads, logits, None, mode, rng, bias=bias)
    else:
        layer = hard_softmax_layer(family, n_dims, n_heads, logits, n_outputs, mode, rng, bias=bias)
    X = (
        boolean_sequences(n_sequences, n_tokens, n_dims, rng)
        if distribution == "boolean"
        else random_sequences(n_sequences, n_tokens, n_dims, 1.0, rng)
    )
    return Planted(X, with_noise(layer(X), noise, rng), layer, noise)


def _matrices(
    rng: np.random.Generator, count: int, n_rows: int, n_columns: int, rank: int | None
) -> NDArray[np.float64]:
    """Matrices (count, n_rows, n_columns) with entries of variance one, of the given rank."""
    if rank is None:
        return rng.standard_normal((count, n_rows, n_columns))
    left = rng.standard_normal((count, n_rows, rank))
    return left @ rng.standard_normal((count, rank, n_columns)) / np.sqrt(rank)
