"""Random layers, random sequences, and the task of recovering the one from the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyattn.data.arguments import (
    RandomState,
    require_generator,
    require_level,
)
from polyattn.errors import InvalidInput, require_choice, require_integer
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.sequences import MODES, SequenceBatch

Length: TypeAlias = int | tuple[int, int]
Layer = TypeVar("Layer", LinearAttention, SoftmaxAttention)


@dataclass(frozen=True, eq=False)
class Planted(Generic[Layer]):
    """A task with a known answer: Y = layer(X) + noise * (standard normal numbers)."""

    X: NDArray[np.float64] | SequenceBatch = field(repr=False)
    Y: NDArray[np.float64] | list[NDArray[np.float64]] = field(repr=False)
    layer: Layer
    noise: float


def random_layer(
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    mode: str = "causal",
    random_state: RandomState = 0,
) -> LinearAttention:
    """A layer with the random parameters of the paper's experiments [yau2024: experiments].

    The paper draws Q_h (d, d) and V_h (e, d) with entries N(0, 1/d), divides the scores by
    sqrt(d) and takes the mean over heads.  Both factors are folded into the parameters here:

        A_h = Q_h^T / sqrt(d),  entries N(0, 1/d^2);      V_h^T / H,  entries N(0, 1/(d H^2)),

    so that the layer computes F(X) = sum_h (X A_h X^T) X V_h without any factor beside it.
    ``n_outputs=None`` means as many as ``n_dims``.
    """
    d, n_heads = require_integer("n_dims", n_dims), require_integer("n_heads", n_heads)
    e = d if n_outputs is None else require_integer("n_outputs", n_outputs)
    mode = require_choice("mode", mode, MODES)
    rng = require_generator(random_state)
    attn = rng.standard_normal((n_heads, d, d)) / d
    value = rng.standard_normal((n_heads, d, e)) / (np.sqrt(d) * n_heads)
    return LinearAttention(attn, value, mode=mode)


def random_sequences(
    n_sequences: int,
    n_tokens: Length,
    n_dims: int,
    scale: float | None = None,
    random_state: RandomState = 0,
) -> NDArray[np.float64] | SequenceBatch:
    """Sequences of independent normal numbers, N(0, scale^2) [yau2024: experiments].

    Parameters
    ----------
    n_tokens : int or (shortest, longest)
        One length for all gives an array (n_sequences, n_tokens, n_dims).  A range gives a
        SequenceBatch whose lengths are uniform between both ends, which are included.
    scale : float, optional
        The standard deviation.  By default 1/sqrt(n) for a sequence of n tokens, as in the
        paper: the expected token Gram is then the identity, whatever the length.
    """
    n_sequences, d = require_integer("n_sequences", n_sequences), require_integer("n_dims", n_dims)
    shortest, longest = length_range(n_tokens)
    if scale is not None:
        scale = require_level(scale, "scale")
    rng = require_generator(random_state)
    if not isinstance(n_tokens, tuple):
        factor = 1.0 / np.sqrt(longest) if scale is None else scale
        return rng.standard_normal((n_sequences, longest, d)) * factor
    lengths = rng.integers(shortest, longest, endpoint=True, size=n_sequences)
    values = rng.standard_normal((int(lengths.sum()), d))
    values *= np.repeat(lengths**-0.5, lengths)[:, None] if scale is None else scale
    return SequenceBatch(values, np.concatenate([[0], np.cumsum(lengths)]))


def planted(
    n_sequences: int,
    n_tokens: Length,
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    mode: str = "causal",
    noise: float = 0.0,
    random_state: RandomState = 0,
) -> Planted[LinearAttention]:
    """The paper's task: recover a random layer from random sequences [yau2024: experiments].

    Y = layer(X) + noise * N(0, 1), independently for every target coordinate, with
    ``random_layer`` and ``random_sequences`` of the same arguments.  The layer is drawn first:
    for one seed it does not change with the number or the length of the sequences, nor do X
    and the layer with the noise.
    """
    noise = require_level(noise, "noise")
    rng = require_generator(random_state)
    layer = random_layer(n_dims, n_outputs, n_heads, mode, rng)
    X = random_sequences(n_sequences, n_tokens, n_dims, random_state=rng)
    return Planted(X, with_noise(layer(X), noise, rng), layer, noise)


def with_noise(
    Y: NDArray[np.float64] | list[NDArray[np.float64]], noise: float, rng: np.random.Generator
) -> NDArray[np.float64] | list[NDArray[np.float64]]:
    """Y plus independent N(0, noise^2); Y itself when the noise is 0."""
    if noise == 0.0:
        return Y
    if isinstance(Y, list):
        return [targets + noise * rng.standard_normal(targets.shape) for targets in Y]
    return Y + noise * rng.standard_normal(Y.shape)


def length_range(n_tokens: Length) -> tuple[int, int]:
    """The shortest and the longest sequence, checked."""
    if not isinstance(n_tokens, tuple):
        length = require_integer("n_tokens", n_tokens)
        return length, length
    if len(n_tokens) != 2:
        raise InvalidInput(
            f"n_tokens must be an integer or a pair (shortest, longest); got {n_tokens!r}."
        )
    shortest, longest = (require_integer("n_tokens", length) for length in n_tokens)
    if shortest > longest:
        raise InvalidInput(
            f"n_tokens must be (shortest, longest) with shortest <= longest; got {n_tokens!r}."
        )
    return shortest, longest
