"""to_projections: a layer as W_Q, W_K, W_V, W_O with heads of any width.

A linear head is linear in A_h and in V_h: either may be cut into a sum of matrices of lower rank,
each in a head of its own.  A softmax head is linear in V_h alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.errors import InvalidInput, require_integer, require_number
from polyattn.interop.from_projections import Layer, require_scale
from polyattn.interop.low_rank import ROUNDING, LowRank, Matrix, require_width
from polyattn.interop.projections import Projections
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.compare import require_same_kind
from polyattn.model.rotary import RotaryHeads


def to_projections(
    layer: Layer,
    head_dim: int | None = None,
    value_dim: int | None = None,
    *,
    scale: float | None = None,
    tolerance: float = ROUNDING,
) -> Projections:
    """The layer as W_Q, W_K, W_V, W_O with heads of any width.

    A linear head of rank r becomes ceil(r / head_dim) heads with the same value.  A softmax head
    cannot be split so, since the exponential of a sum is no sum: ranks above ``head_dim`` are
    refused.  Values of rank above ``value_dim`` are split for both.

    Parameters
    ----------
    layer : LinearAttention or SoftmaxAttention
    head_dim : int, optional
        Coordinates of a query and of a key; by default the largest rank of an ``attn``.
    value_dim : int, optional
        Coordinates of a value; by default the largest rank of a ``value``.  Many libraries have
        one width for all: give the same number twice.
    scale : float, optional
        What products of queries and keys will be divided by: 1 for linear layers, and
        sqrt(head_dim) for softmax layers, unless given.
    tolerance : float
        The rank is the least one that misses at most this part of a matrix in norm.  What fits
        is kept even if it is smaller.  Up to the default, 1e-12, only rounding is dropped: norms
        are taken with rows and columns at equal size, whatever the units of coordinates are.

    With ``bias`` the rows of the constant become b_Q, b_K and b_V.  In softmax layers b_K would
    have no effect, and since weights sum to one, the last rows of ``value`` are added up in b_O.
    With rotary positions b_K has one, and W_Q and W_K are those of the layer, whatever their rank:
    ``head_dim`` is theirs, and ``scale`` 1 unless given.
    Of linear layers b_O is the ``intercept``, and W_skip the ``skip``, whose constant, with
    ``bias``, is b_O.

    Guarantee: the same function; every ``attn`` and ``value`` is met up to ``change`` of its norm,
    which is at most ``tolerance``, and rounding.
    Cost: O(H d^2 (d + e)).

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> layer = pa.data.random_layer(4, n_heads=2)
    >>> found = pa.interop.to_projections(layer, head_dim=2)
    >>> found
    Projections(linear, 4 heads, head_dim=2, value_dim=4, scale=1)
    >>> pa.same_function(found.to_layer(), layer)
    True
    """
    require_same_kind(layer=layer)
    require_number("tolerance", tolerance, most=1.0)
    if isinstance(layer, SoftmaxAttention) and layer.rotary_heads is not None:
        return _with_rotary(layer, layer.rotary_heads, (head_dim, value_dim), scale, tolerance)
    attn, value, b_O = _matrices(layer)
    logits, values = LowRank.of(attn, tolerance, "attn"), LowRank.of(value, tolerance, "value")
    head_dim = _width("head_dim", head_dim, logits)
    value_dim = _width("value_dim", value_dim, values)
    kind = "linear" if isinstance(layer, LinearAttention) else "softmax"
    if kind == "softmax":
        reason = ", and a softmax head cannot be split"
        require_width(head_dim, [logits], reason, "give head_dim={rank}")
    scale = require_scale(scale, kind, head_dim)
    parts = [
        (h, i, j)
        for h in range(layer.n_heads)
        for i in range(0, max(1, logits.ranks[h]), head_dim)
        for j in range(0, max(1, values.ranks[h]), value_dim)
    ]
    heads, of_logits, of_values = np.array(parts).T
    queries, keys = (np.sqrt(scale) * each for each in logits.terms(head_dim, heads, of_logits))
    inner, outer = values.terms(value_dim, heads, of_values)
    # The last part of each head ends where nothing more of it is held.
    last = np.append(np.flatnonzero(np.diff(heads)), len(heads) - 1)
    change = max(logits.lost(of_logits[last] + head_dim), values.lost(of_values[last] + value_dim))
    # The constants of softmax heads are left out but for that of the query, see ``_matrices``.
    linear_bias = layer.bias and kind == "linear"
    W_Q, b_Q = _split_rows(queries, layer.bias)
    W_K, b_K = _split_rows(keys, linear_bias)
    W_V, b_V = _split_rows(inner, linear_bias)
    found = Projections(
        W_Q, W_K, W_V, np.ascontiguousarray(outer.transpose(0, 2, 1)), b_Q, b_K, b_V, b_O,
        scale=scale, kind=kind, mode=layer.mode, heads=heads, change=change,
    )  # fmt: skip
    return _with_form(found, layer) if isinstance(layer, LinearAttention) else found


def _matrices(layer: Layer) -> tuple[Matrix, Matrix, Matrix | None]:
    """attn and value to factor, and the output bias of softmax heads."""
    if isinstance(layer, SoftmaxAttention) and layer.bias:
        # The constant of a key shifts all logits of a query, and that of a value all outputs.
        return layer.attn[:, :, :-1], layer.value[:, :-1], layer.value[:, -1].sum(axis=0)
    return layer.attn, layer.value, None


def _with_rotary(
    layer: SoftmaxAttention,
    turned: RotaryHeads,
    widths: tuple[int | None, int | None],
    scale: float | None,
    tolerance: float,
) -> Projections:
    """W_Q and W_K as they are; values of any width."""
    own = turned.query.shape[2]
    if widths[0] is not None and require_integer("head_dim", widths[0]) != own:
        raise InvalidInput(
            f"head_dim must be {own}, that of the layer, or None: each of its {own // 2} planes "
            f"turns at its own frequency, so that they cannot be cut; got {widths[0]}."
        )
    scale = 1.0 if scale is None else require_scale(scale, "softmax", own)
    value, b_O = layer.value, None
    if layer.bias:
        value, b_O = layer.value[:, :-1], layer.value[:, -1].sum(axis=0)
    values = LowRank.of(value, tolerance, "value")
    value_dim = _width("value_dim", widths[1], values)
    parts = [
        (h, j) for h in range(layer.n_heads) for j in range(0, max(1, values.ranks[h]), value_dim)
    ]
    heads, starts = np.array(parts).T
    inner, outer = values.terms(value_dim, heads, starts)
    last = np.append(np.flatnonzero(np.diff(heads)), len(heads) - 1)
    W_Q, b_Q = _split_rows(scale * turned.query[heads], layer.bias)
    W_K, b_K = _split_rows(turned.key[heads], layer.bias)
    return Projections(
        W_Q, W_K, inner, np.ascontiguousarray(outer.transpose(0, 2, 1)), b_Q, b_K, None, b_O,
        scale=scale, kind="softmax", mode=layer.mode, heads=heads,
        change=values.lost(starts[last] + value_dim), rotary=turned.frequencies,
    )  # fmt: skip


def _with_form(found: Projections, layer: LinearAttention) -> Projections:
    """The same heads with the form of their layer, and with what it adds to them."""
    W_skip, b_O = layer.skip, layer.intercept
    if W_skip is not None and layer.bias:
        # The constant of the query is the constant that is added.
        W_skip, b_O = W_skip[:-1].copy(), W_skip[-1].copy()
    return replace(
        found, layout=layer.layout, head_scales=layer.head_scales[found.heads],
        W_skip=W_skip, b_O=b_O,
    )  # fmt: skip


def _width(name: str, given: int | None, matrices: LowRank) -> int:
    """The given width, or the largest rank; one at least."""
    return max(1, int(matrices.ranks.max())) if given is None else require_integer(name, given)


def _split_rows(rows: Matrix, constant: bool) -> tuple[Matrix, Matrix | None]:
    """The rows of the coordinates, and that of the constant, if there is one."""
    if not constant:
        return rows, None
    return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy()
