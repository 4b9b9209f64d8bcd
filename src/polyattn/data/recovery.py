"""Random layers, random sequences, and the task of recovering the one from the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_flag, require_integer, require_number
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.sequences import SequenceBatch

Length: TypeAlias = int | tuple[int, int]
Layer = TypeVar("Layer", LinearAttention, SoftmaxAttention)


@dataclass(frozen=True, eq=False)
class Planted(Generic[Layer]):
    """A task with a known answer: Y = layer(X) + noise * (standard normal numbers).

    ``context`` are the sequences attended to, where they are others than X; Y is then
    layer(X, context=context), and noise.  ``unmodelled`` is a further part of Y that is not the
    layer's, where there is one: Y = layer(X) + unmodelled + noise, and the layer need not be the
    one that fits best.
    """

    X: NDArray[np.float64] | SequenceBatch = field(repr=False)
    Y: NDArray[np.float64] | list[NDArray[np.float64]] = field(repr=False)
    layer: Layer
    noise: float
    context: NDArray[np.float64] | SequenceBatch | None = field(default=None, repr=False)
    unmodelled: NDArray[np.float64] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        layer: Layer,
        X: NDArray | SequenceBatch,
        noise: float,
        rng: np.random.Generator,
        context: NDArray | SequenceBatch | None = None,
    ) -> Planted[Layer]:
        """The task of recovering this layer from these sequences, with fresh noise."""
        beside: dict[str, Any] = {} if context is None else {"context": context}
        Y = layer(X, **beside)
        if noise and isinstance(Y, list):
            Y = [targets + noise * rng.standard_normal(targets.shape) for targets in Y]
        elif noise:
            Y = Y + noise * rng.standard_normal(Y.shape)
        return cls(X, Y, layer, noise, context)


def random_layer(
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    mode: str = "causal",
    random_state: RandomState = 0,
    *,
    bias: bool = False,
    form: Form | None = None,
    n_context_dims: int | None = None,
) -> LinearAttention:
    """A layer with random parameters, normal and independent.

        A_h (d, d),  entries N(0, 1/d^2);      V_h (d, e),  entries N(0, 1/(d H^2)).

    The scaling is ours: it gives tokens with entries of order one scores of order one, and the
    heads are averaged.  The paper has one head and one output, with entries of A and V drawn from
    "N(0, I/sqrt(d))" and no further factor [yau2024: experiments].

    ``n_outputs=None`` means as many as ``n_dims``.  With ``bias`` the heads have one coordinate
    more, for the constant 1 that the layer appends to tokens of ``n_dims`` coordinates.

    A ``form`` replaces ``mode`` and ``bias``: r numbers of a query, rk of a key and rv of a value
    are seen, and A_h (r, rk) has entries N(0, 1/(r rk)), V_h (rv, e) entries N(0, 1/(rv H^2)).
    Each scale of the form has ``n_heads`` heads, those of the first scale first; ``skip`` (r, e)
    has entries N(0, 1/r) and ``intercept`` (e,) N(0, 1).
    """
    if n_context_dims is not None:
        n_context_dims = require_integer("n_context_dims", n_context_dims)
    n_heads, _, e = head_shapes(n_heads, n_dims, n_outputs, bias)
    chosen = _chosen_form(form, mode, bias)
    layout = Layout.of(chosen, int(n_dims), n_context_dims)
    n_queries, n_keys, n_values = len(layout.query), layout.pairs.n_keys, layout.pairs.n_values
    rng, count = require_generator(random_state), n_heads * layout.n_scales
    attn = rng.standard_normal((count, n_queries, n_keys)) / np.sqrt(n_queries * n_keys)
    value = rng.standard_normal((count, n_values, e)) / (np.sqrt(n_values) * n_heads)
    more: dict[str, Any] = {}
    if chosen.skip:
        more["skip"] = rng.standard_normal((n_queries, e)) / np.sqrt(n_queries)
    if chosen.intercept:
        more["intercept"] = rng.standard_normal(e)
    return LinearAttention(
        attn, value, form=chosen, n_dims=layout.n_dims, n_context_dims=n_context_dims,
        head_scales=np.repeat(np.arange(layout.n_scales), n_heads), **more,
    )  # fmt: skip


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
        The standard deviation.  By default 1/sqrt(n) for a sequence of n tokens: the expected
        token Gram is then the identity, whatever the length.  (The paper writes N(0, I/sqrt(n)),
        read here as a standard deviation.)
    """
    n_sequences, d = require_integer("n_sequences", n_sequences), require_integer("n_dims", n_dims)
    scale = None if scale is None else require_number("scale", scale)
    rng = require_generator(random_state)
    lengths = _drawn_lengths(n_sequences, n_tokens, rng)
    values = rng.standard_normal((int(lengths.sum()), d))
    if scale is not None:
        values *= scale
    elif isinstance(n_tokens, tuple):
        values *= np.repeat(lengths**-0.5, lengths)[:, None]
    else:
        values *= 1.0 / np.sqrt(n_tokens)
    return _sequences(values, lengths, n_tokens)


def boolean_sequences(
    n_sequences: int, n_tokens: Length, n_dims: int, random_state: RandomState = 0
) -> NDArray[np.float64] | SequenceBatch:
    """Sequences whose coordinates are -1 or 1, independently and equally often [chen2024].

    ``n_tokens`` is one length for all, or a range, as for ``random_sequences``.
    """
    n_sequences, d = require_integer("n_sequences", n_sequences), require_integer("n_dims", n_dims)
    rng = require_generator(random_state)
    lengths = _drawn_lengths(n_sequences, n_tokens, rng)
    values = rng.choice(np.array([-1.0, 1.0]), size=(int(lengths.sum()), d))
    return _sequences(values, lengths, n_tokens)


def planted(
    n_sequences: int,
    n_tokens: Length,
    n_dims: int,
    n_outputs: int | None = None,
    n_heads: int = 1,
    mode: str = "causal",
    noise: float = 0.0,
    random_state: RandomState = 0,
    *,
    bias: bool = False,
    form: Form | None = None,
    n_context_dims: int | None = None,
) -> Planted[LinearAttention]:
    """Recover a random layer from random sequences, as in the paper [yau2024: experiments].

    Y = layer(X) + noise * N(0, 1), independently for every target coordinate, with
    ``random_layer`` and ``random_sequences`` of the same arguments.  The layer is drawn first:
    for one seed it does not change with the number or the length of the sequences, nor do X
    and the layer with the noise, which is in the units of the targets.

    A ``form`` replaces ``mode`` and ``bias``.  With ``n_context_dims`` the layer attends to other
    random sequences, ``context``: in mode ``causal`` of the lengths of X, otherwise of lengths of
    their own.
    """
    noise = require_number("noise", noise)
    rng = require_generator(random_state)
    layer = random_layer(
        n_dims, n_outputs, n_heads, mode, rng,
        bias=bias, form=form, n_context_dims=n_context_dims,
    )  # fmt: skip
    X = random_sequences(n_sequences, n_tokens, n_dims, random_state=rng)
    width = layer.n_context_dims
    context: NDArray[np.float64] | SequenceBatch | None = None
    if width is not None and layer.mode == "causal" and isinstance(X, SequenceBatch):
        sizes = np.repeat(X.lengths**-0.5, X.lengths)[:, None]
        context = SequenceBatch(sizes * rng.standard_normal((len(sizes), width)), X.offsets)
    elif width is not None:
        context = random_sequences(n_sequences, n_tokens, width, random_state=rng)
    return Planted.of(layer, X, noise, rng, context)


def head_shapes(
    n_heads: int, n_dims: int, n_outputs: int | None, bias: bool
) -> tuple[int, int, int]:
    """How many heads, their width (``n_dims``, and the constant of ``bias``), their outputs."""
    d = require_integer("n_dims", n_dims)
    e = d if n_outputs is None else require_integer("n_outputs", n_outputs)
    return require_integer("n_heads", n_heads), d + require_flag("bias", bias), e


def _chosen_form(form: Form | None, mode: str, bias: bool) -> Form:
    """The form that was given, or that of ``mode`` and ``bias``."""
    if form is None:
        return require_form(None, mode, bias)
    chosen = require_form(form, bias=bias)
    # "causal" is the default of these functions, and says nothing beside a form.
    if mode not in ("causal", chosen.mode):
        raise InvalidInput(
            f"mode={mode!r} was given beside a form with mode {chosen.mode!r}: give one of them."
        )
    return chosen


def _sequences(
    values: NDArray[np.float64], lengths: NDArray, n_tokens: Length
) -> NDArray[np.float64] | SequenceBatch:
    """Tokens one below the other as an array, or as a batch where lengths differ."""
    if isinstance(n_tokens, tuple):
        return SequenceBatch(values, np.concatenate([[0], np.cumsum(lengths)]))
    return values.reshape(len(lengths), -1, values.shape[1])


def _drawn_lengths(n_sequences: int, n_tokens: Length, rng: np.random.Generator) -> NDArray:
    """The length of each sequence: the one that is given, or uniform between two."""
    if not isinstance(n_tokens, tuple):
        return np.full(n_sequences, require_integer("n_tokens", n_tokens))
    if len(n_tokens) != 2:
        raise InvalidInput(
            f"n_tokens must be an integer or a pair (shortest, longest); got {n_tokens!r}."
        )
    shortest, longest = (require_integer("n_tokens", length) for length in n_tokens)
    if shortest > longest:
        raise InvalidInput(
            f"n_tokens must be (shortest, longest) with shortest <= longest; got {n_tokens!r}."
        )
    return rng.integers(shortest, longest, endpoint=True, size=n_sequences)
