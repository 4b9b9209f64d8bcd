"""to_weights: a layer as the state dict of a real module."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import (
    InvalidInput,
    InvalidType,
    OutOfRange,
    require_choice,
    require_integer,
    require_number,
)
from polyattn.interop.low_rank import ROUNDING, Matrix, dividing_head_count
from polyattn.interop.weights.factoring import (
    HeadGroups,
    bias_of_values,
    joint_attn,
    joint_value,
    query_and_key,
    value_and_output,
)
from polyattn.interop.weights.naming import named
from polyattn.model import SoftmaxAttention
from polyattn.quoting import shown

# Modules whose heads have d / n_heads coordinates, and no rotary positions.
SQUARE = ("multihead", "bert", "albert", "gpt2")
WRITTEN = (*SQUARE, "llama", "qwen2", "transformer_lens")

# Modules whose tokens attend to themselves and those before.
CAUSAL = ("gpt2", "llama", "qwen2")

# Modules that have biases whatever the layer has.
ALWAYS_BIASED = ("bert", "albert", "gpt2", "qwen2", "transformer_lens")

TYPES = ("float64", "float32", "float16")


def to_weights(
    layer: SoftmaxAttention,
    layout: str,
    n_heads: int | None = None,
    *,
    n_kv_heads: int | None = None,
    head_dim: int | None = None,
    rotary: str | None = "auto",
    prefix: str = "",
    dtype: str = "float64",
    tolerance: float = ROUNDING,
) -> dict[str, NDArray]:
    """The layer as a state dict: names and arrays that the attention module of a library takes.

    ``module.load_state_dict({name: torch.tensor(each) for name, each in found.items()})``.

    Parameters
    ----------
    layer : SoftmaxAttention
        With as many outputs as coordinates.
    layout : "multihead" | "bert" | "albert" | "gpt2" | "llama" | "qwen2" | "transformer_lens"
        As for ``from_weights``; ``qwen2`` are the names of llama with biases of queries, keys and
        values, and none of outputs.  Normalisation beside attention is not written.
    n_heads : int, optional
        Heads of the module; those that are not needed are zero.  By default as many as the layer
        has, or where they must divide the coordinates, the next such number.
    n_kv_heads : int, optional
        Heads of keys and values, for llama, qwen2 and transformer_lens: n_heads / n_kv_heads
        neighbours share them.  By default every head has its own.
    head_dim : int, optional
        Coordinates of a query, a key and a value: d / n_heads for most modules, and otherwise by
        default the fewest that hold all heads; those of rotary positions are given by the layer.
    rotary : "auto" or None
        llama and qwen2 turn queries and keys: the layer must have rotary positions, unless None
        says that the module turns nothing.
    prefix : str
        The name of the attention module, which is put before all names.
    dtype : "float64" | "float32" | "float16"
    tolerance : float
        The part of an ``attn`` or ``value`` (in norm) that may be dropped to fit a width.

    The module must compute the mode of the layer, divide by sqrt(head_dim), and turn by the
    frequencies of the layer; planes behind the last that turns are taken for coordinates that do
    not turn (partial_rotary_factor).  Layouts gpt2, llama and qwen2 are causal.

    Guarantee: the same function up to ``tolerance`` and the rounding of ``dtype``.  What does not
    fit is refused: ranks above head_dim, keys or values that are not shared, other outputs than
    coordinates.
    Cost: O(H d^2 (d + e)).

    Examples
    --------
    >>> import polyattn as pa
    >>> layer = pa.data.random_softmax_layer(4, n_heads=2, rank=2, mode="causal")
    >>> found = pa.interop.to_weights(layer, "gpt2")
    >>> {name: each.shape for name, each in found.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'c_attn.weight': (4, 12), 'c_attn.bias': (12,), 'c_proj.weight': (4, 4),
     'c_proj.bias': (4,)}
    >>> again = pa.interop.from_weights(found, n_heads=2)
    """
    _require_fitting(layer, require_choice("layout", layout, WRITTEN), rotary)
    require_choice("dtype", dtype, TYPES)
    require_number("tolerance", tolerance, most=1.0)
    if not isinstance(prefix, str):
        raise InvalidType(f"prefix must be the name of a module; got {shown(prefix)}.")
    groups = _groups(layer, layout, n_heads, n_kv_heads, head_dim)
    width = _width(layer, layout, groups, head_dim, tolerance)
    factors = query_and_key(layer, groups, width, tolerance)
    factors |= value_and_output(layer, groups, width, tolerance)
    if layer.bias or layout in ALWAYS_BIASED:
        factors = _with_biases(factors)
    if layout == "qwen2":
        factors["b_V"] = bias_of_values(factors, groups.shared)
        del factors["b_O"]
    before = f"{prefix.rstrip('.')}." if prefix else ""
    return {
        f"{before}{name}": _converted(each, f"{before}{name}", dtype)
        for name, each in named(factors, layout).items()
    }


def _require_fitting(layer: object, layout: str, rotary: str | None) -> None:
    """Refuse layers that no module of the layout computes, whatever their ranks."""
    if not isinstance(layer, SoftmaxAttention):
        raise InvalidType(
            f"to_weights takes a SoftmaxAttention; got {type(layer).__name__}. A result holds its "
            "own as .layer; linear layers are written by to_torch and to_projections."
        )
    if layer.n_outputs != layer.n_dims:
        raise InvalidInput(
            f"layout {layout!r} has as many outputs as coordinates; the layer has "
            f"{layer.n_outputs} and {layer.n_dims}."
        )
    if layout in CAUSAL and layer.mode == "full":
        raise InvalidInput(
            f"modules of layout {layout!r} are causal, and the layer has mode 'full'; give a layer "
            "of mode 'causal', or layout 'bert' or 'multihead'."
        )
    if rotary not in ("auto", None):
        raise InvalidInput(f"rotary must be 'auto' or None; got {shown(rotary)}.")
    turned = layer.frequencies is not None
    if turned and (layout in SQUARE or rotary is None):
        raise InvalidInput(
            f"the layer has rotary positions, and layout={layout!r}, rotary={rotary!r} turns "
            "nothing; layouts llama, qwen2 and transformer_lens can."
        )
    if not turned and rotary == "auto" and layout in ("llama", "qwen2"):
        raise InvalidInput(
            f"modules of layout {layout!r} turn queries and keys, and the layer has no rotary "
            "positions; give rotary=None for a module that turns nothing."
        )


def _groups(
    layer: SoftmaxAttention,
    layout: str,
    n_heads: int | None,
    n_kv_heads: int | None,
    head_dim: int | None,
) -> HeadGroups:
    """The heads of the module, and those of keys and values."""
    if layout in SQUARE:
        if n_kv_heads is not None and n_kv_heads != n_heads:
            raise InvalidInput(
                f"n_kv_heads was given, and in layout {layout!r} every head has keys and values of "
                "its own; leave it out."
            )
        if head_dim is not None and n_heads is None:
            n_heads = max(1, layer.n_dims // require_integer("head_dim", head_dim))
        count = dividing_head_count(layer, n_heads, f"layout {layout!r}")
        return HeadGroups(count, count)
    count = layer.n_heads if n_heads is None else require_integer("n_heads", n_heads)
    if count < layer.n_heads:
        raise InvalidInput(
            f"n_heads must be at least {layer.n_heads}, the heads of the layer; got {count}."
        )
    groups = count if n_kv_heads is None else require_integer("n_kv_heads", n_kv_heads)
    if count % groups:
        raise InvalidInput(f"n_kv_heads must divide n_heads = {count}; got {groups}.")
    return HeadGroups(count, groups)


def _width(
    layer: SoftmaxAttention,
    layout: str,
    groups: HeadGroups,
    head_dim: int | None,
    tolerance: float,
) -> int:
    """The coordinates of a head of the module: fixed by it or the layer, given, or the fewest."""
    given = None if head_dim is None else require_integer("head_dim", head_dim)
    fixed, why = None, ""
    if layout in SQUARE:
        fixed, why = layer.n_dims // groups.n_heads, f"d / n_heads in layout {layout!r}"
    elif layer.query is not None:
        fixed, why = layer.query.shape[2], "as the rotary positions of the layer have"
    if fixed is None and given is None:
        terms = (joint(layer, groups, tolerance) for joint in (joint_attn, joint_value))
        return max(1, *(int(each.ranks.max()) for each in terms))
    if fixed is not None and given not in (None, fixed):
        raise InvalidInput(f"head_dim must be {fixed}, {why}; got {given}.")
    return cast(int, given if fixed is None else fixed)


def _with_biases(factors: dict[str, Matrix]) -> dict[str, Matrix]:
    """The same with all four biases, zeros where there is none."""
    shapes = {f"b_{role}": factors[f"W_{role}"][:, 0].shape for role in "QKV"}
    shapes["b_O"] = factors["W_O"].shape[2:]
    return {name: np.zeros(shape) for name, shape in shapes.items()} | factors


def _converted(array: Matrix, name: str, dtype: str) -> NDArray:
    """The array in its type; numbers that this cannot hold are refused."""
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(found).all():
        raise OutOfRange(
            f"{name} holds numbers up to {np.abs(array).max():.2g}, which {dtype} cannot hold; "
            "choose a wider dtype."
        )
    return found
