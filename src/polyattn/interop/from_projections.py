"""from_projections: the layer of given W_Q, W_K, W_V, W_O, checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from polyattn.errors import InvalidInput, require_choice, require_integer, require_number
from polyattn.form.form import Form, require_form
from polyattn.interop.low_rank import Matrix
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.quoting import counted, shown

Layer: TypeAlias = LinearAttention | SoftmaxAttention


def from_projections(
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    W_O: ArrayLike,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    b_O: ArrayLike | None = None,
    *,
    kind: str,
    n_heads: int | None = None,
    scale: float | None = None,
    mode: str | None = None,
    form: Form | None = None,
    n_dims: int | None = None,
    n_context_dims: int | None = None,
    head_scales: ArrayLike | None = None,
    W_skip: ArrayLike | None = None,
    rotary: ArrayLike | None = None,
) -> Layer:
    """The layer of these projections, which compute what ``Projections`` says.

    Parameters
    ----------
    W_Q, W_K, W_V : arrays (H, d, head_dim), (H, d, head_dim), (H, d, value_dim)
        Or with the heads side by side, (d, H head_dim) and so on; ``n_heads`` then tells H.
        Tokens are rows, x W: a ``torch.nn.Linear`` holds the transpose, ``weight.T``.
    W_O : array (H, value_dim, e), or (H value_dim, e)
    b_Q, b_K, b_V : arrays (H, head_dim), (H, head_dim), (H, value_dim), or of one axis; optional
    b_O : array (e,), optional
    kind : "linear" | "softmax"
    n_heads : int, optional
        H, needed where heads stand side by side.
    scale : float, optional
        What products of queries and keys are divided by: 1 for linear layers, and
        sqrt(head_dim) for softmax layers, unless given.
    mode : "last" | "causal" | "full", optional
        By default ``last`` for linear and ``full`` for softmax layers, as for layers.
    form, n_dims, n_context_dims, head_scales : optional
        Of linear layers, as for ``LinearAttention``.
    W_skip : array (d, e), optional
        Of linear layers: x_t W_skip is added, where x_t is what is seen of the query.
    rotary : float or array (head_dim / 2,), optional
        Of softmax layers: rotary positions of this theta, or of these frequencies.  Coordinates i
        and i + head_dim/2 are turned together; where a model turns 2i and 2i + 1, give the
        columns of W_Q and W_K, and b_Q and b_K, in the order 0, 2, 4, ..., 1, 3, 5, ...  Pairs
        that a model does not turn have frequency zero.

    With biases of queries, keys or values the layer has ``bias=True``.  Weights of softmax heads
    sum to one, so each head holds an equal part of b_O in the last row of its ``value``.  Linear
    layers hold b_O as their ``intercept`` (with ``bias`` and ``skip`` in the constant row of
    ``skip``); a ``form`` that is given must have a place for every bias.

    Guarantee: the same function up to rounding; its heads are those of the projections, in order.
    Cost: O(H d (d + e) head_dim).

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> rng = np.random.default_rng(0)
    >>> W_Q, W_K, W_V, W_O = rng.standard_normal((4, 6, 6))  # two heads of three, side by side
    >>> pa.interop.from_projections(W_Q, W_K, W_V, W_O, kind="softmax", n_heads=2)
    SoftmaxAttention(2 heads, 6 -> 6, mode 'full')
    """
    require_choice("kind", kind, ("linear", "softmax"))
    stacks = {
        "W_Q": _stack(W_Q, "W_Q", n_heads),
        "W_K": _stack(W_K, "W_K", n_heads),
        "W_V": _stack(W_V, "W_V", n_heads),
        "W_O": _stack(W_O, "W_O", n_heads, side_by_side=0),
    }
    _require_fitting(stacks, of_tokens=form is None and n_context_dims is None)
    count, n_queries, head_dim = stacks["W_Q"].shape
    value_dim, n_outputs = stacks["W_O"].shape[1:]
    b_Q, b_K = (_checked(b, name, (count, head_dim)) for b, name in ((b_Q, "b_Q"), (b_K, "b_K")))
    b_V, b_O = _checked(b_V, "b_V", (count, value_dim)), _checked(b_O, "b_O", (n_outputs,))
    W_skip = _checked(W_skip, "W_skip", (n_queries, n_outputs))
    constants = {"b_Q": b_Q, "b_K": b_K, "b_V": b_V}
    scale = require_scale(scale, kind, head_dim)
    if kind == "softmax":
        beside = {"form": form, "n_dims": n_dims, "n_context_dims": n_context_dims}
        _require_none(beside | {"head_scales": head_scales, "W_skip": W_skip})
        bias = b_O is not None or _any(constants)
        queries, keys, value = _factors(stacks, constants, bias)
        if b_O is not None:
            value[:, -1] += b_O / count
        mode = "full" if mode is None else mode
        if rotary is not None:
            return SoftmaxAttention((queries / scale, keys), value, mode, bias, rotary=rotary)
        return SoftmaxAttention(queries @ keys.transpose(0, 2, 1) / scale, value, mode, bias)
    if rotary is not None:
        raise InvalidInput("rotary was given for linear heads, which have none; leave it out.")
    chosen = _chosen_form(form, "last" if mode is None else mode, constants, b_O, W_skip)
    queries, keys, value = _factors(stacks, constants, chosen.bias)
    if chosen.skip and chosen.bias:
        rows = np.zeros((n_queries, n_outputs)) if W_skip is None else W_skip
        W_skip, b_O = np.vstack([rows, np.zeros(n_outputs) if b_O is None else b_O]), None
    return LinearAttention(
        queries @ keys.transpose(0, 2, 1) / scale, value, form=chosen, n_dims=n_dims,
        n_context_dims=n_context_dims, head_scales=head_scales, skip=W_skip, intercept=b_O,
    )  # fmt: skip


def _factors(
    stacks: dict[str, Matrix], constants: dict[str, Matrix | None], bias: bool
) -> tuple[Matrix, Matrix, Matrix]:
    """Queries and keys (H, d, head_dim), and value; with ``bias`` their last rows are constants."""
    queries, keys, values = (
        _with_row(stacks[f"W_{name}"], constants[f"b_{name}"]) if bias else stacks[f"W_{name}"]
        for name in "QKV"
    )
    return queries, keys, values @ stacks["W_O"]


def _chosen_form(
    form: Form | None,
    mode: str,
    constants: dict[str, Matrix | None],
    b_O: Matrix | None,
    W_skip: Matrix | None,
) -> Form:
    """The given form, if it has a place for all that is given, or the one that is needed."""
    bias, skip = _any(constants), W_skip is not None
    if form is None:
        smallest = Form(mode=mode, bias=bias, skip=skip)
        wanting = b_O is not None and not _holds_constant(smallest)
        return replace(smallest, intercept=wanting)
    chosen = require_form(form, mode)
    given = [name for name, each in constants.items() if each is not None]
    lacking = {
        "bias": [] if chosen.bias else given,
        "skip": [] if chosen.skip or not skip else ["W_skip"],
        "intercept": [] if b_O is None or _holds_constant(chosen) else ["b_O"],
    }
    for place, names in lacking.items():
        if names:
            raise InvalidInput(
                f"{names[0]} was given, but the form has no place for it: give "
                f"Form({place}=True, ...)."
            )
    return chosen


def _holds_constant(form: Form) -> bool:
    """Whether layers of this form add a constant to their outputs."""
    return form.intercept or (form.skip and form.bias)


def _any(constants: dict[str, Matrix | None]) -> bool:
    return any(each is not None for each in constants.values())


def _require_none(beside: dict[str, object]) -> None:
    """Refuse what only linear layers have."""
    for name, given in beside.items():
        if given is not None:
            raise InvalidInput(
                f"{name} was given for softmax heads, which have no form: only linear ones do; "
                "leave it out."
            )


def require_scale(given: float | None, kind: str, head_dim: int) -> float:
    """What products of queries and keys are divided by."""
    if given is None:
        return float(np.sqrt(head_dim)) if kind == "softmax" else 1.0
    if require_number("scale", given) == 0.0:
        raise InvalidInput("scale must be positive: products are divided by it; got 0.")
    return float(given)


def _stack(given: ArrayLike, name: str, n_heads: int | None, side_by_side: int = 1) -> Matrix:
    """Heads in the first axis; of two axes that numbered ``side_by_side`` holds all heads."""
    array = real_array(given, name)
    require_finite(array, name)
    if array.ndim == 2 and n_heads is not None:
        count, length = require_integer("n_heads", n_heads), array.shape[side_by_side]
        if length % count:
            raise InvalidInput(
                f"{name} {array.shape} must hold {counted(count, 'head')} of one width side by "
                f"side, but n_heads = {count} does not divide {length}."
            )
        shape = (count, -1, array.shape[1]) if side_by_side == 0 else (len(array), count, -1)
        array = array.reshape(shape)
        array = array if side_by_side == 0 else array.transpose(1, 0, 2)
    if array.ndim != 3 or 0 in array.shape:
        wanted = "(H, value_dim, e)" if side_by_side == 0 else "(H, d, head_dim)"
        raise InvalidInput(
            f"{name} must have shape {wanted}, or two axes and n_heads; got {array.shape}"
            f"{' without n_heads (1 for one head)' if array.ndim == 2 else ''}."
        )
    if n_heads is not None and len(array) != n_heads:
        raise InvalidInput(
            f"{name} has {counted(len(array), 'head')}, but n_heads = {shown(n_heads)}."
        )
    return np.asarray(array, dtype=np.float64)


def _require_fitting(stacks: dict[str, Matrix], of_tokens: bool) -> None:
    """Refuse projections that differ in heads or widths, or, of tokens, in coordinates."""
    W_Q, W_K, W_V, W_O = stacks.values()
    shapes = ", ".join(f"{name} {each.shape}" for name, each in stacks.items())
    if len({len(each) for each in stacks.values()}) > 1:
        raise InvalidInput(
            f"all projections must have the same number of heads; got {shapes}. Where heads share "
            "keys and values, repeat these: np.repeat(W_K, n, axis=0)."
        )
    if of_tokens and not W_Q.shape[1] == W_K.shape[1] == W_V.shape[1]:
        raise InvalidInput(
            f"W_Q, W_K and W_V must take tokens of one width d; got {shapes}. Those of a layer "
            "that sees parts of a token need its form, and n_dims: from_projections(..., "
            "form=layer.form, n_dims=layer.n_dims)."
        )
    if W_Q.shape[2] != W_K.shape[2] or W_V.shape[2] != W_O.shape[1]:
        raise InvalidInput(
            "queries and keys must have one width, and W_O must take values of the width of W_V; "
            f"got {shapes}."
        )


def _checked(given: ArrayLike | None, name: str, shape: tuple[int, ...]) -> Matrix | None:
    """An array of this shape, also if it came in one axis; None if none was given."""
    if given is None:
        return None
    array = real_array(given, name)
    require_finite(array, name)
    if array.shape not in (shape, (int(np.prod(shape)),)):
        raise InvalidInput(f"{name} must have shape {shape}; got {array.shape}.")
    return np.asarray(array, dtype=np.float64).reshape(shape)


def _with_row(weights: Matrix, constant: Matrix | None) -> Matrix:
    """Weights (H, d, k) with a last row: that of the constant, or zeros."""
    row = np.zeros_like(weights[:, :1]) if constant is None else constant[:, None]
    return np.concatenate([weights, row], axis=1)
