"""from_weights and read_projections: a layer of a trained model, from wherever its weights are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from polyattn.errors import InvalidInput, require_choice, require_flag, require_integer
from polyattn.interop.from_projections import require_scale
from polyattn.interop.low_rank import Matrix
from polyattn.interop.projections import Projections
from polyattn.interop.weights.choosing import Place, find_place
from polyattn.interop.weights.head_counts import HeadCounts
from polyattn.interop.weights.rotations import frequencies_of, half_order, padded
from polyattn.interop.weights.settings import (
    default_mode,
    default_scale,
    require_expressible,
)
from polyattn.interop.weights.sources import WeightSource
from polyattn.model import SoftmaxAttention
from polyattn.quoting import shown
from polyattn.sequences import MODES


def from_weights(
    source: Mapping[str, Any] | str | os.PathLike[str] | Any,
    layer: int | str | None = None,
    n_heads: int | None = None,
    layout: str = "auto",
    *,
    mode: str | None = None,
    scale: float | None = None,
    rotary: float | str | ArrayLike | None = "auto",
    n_kv_heads: int | None = None,
    interleaved: bool = False,
    config: Any = None,
    max_length: int | None = None,
) -> SoftmaxAttention:
    """The attention of one layer of a trained model, as a SoftmaxAttention.

    What it computes is what the attention module adds: without the residual connection, without
    normalisation before or after it, and without dropout.

    Parameters
    ----------
    source : a state dict, a torch module, or a path
        A state dict maps names to arrays or tensors of any float type.  A path names a
        .safetensors file, of which only the tensors of the layer are read, a .bin or .pt file
        with nothing but tensors in it, the .index.json of one in shards, or a folder.
    layer : int | str, optional
        The number of a block, or the name of the attention module or a part of it
        ("encoder.layer.3"); may be left out where there is one.
    n_heads : int, optional
        H; needed where neither a configuration nor the shapes say it.
    layout : "auto" | "multihead" | "bert" | "albert" | "gpt2" | "llama" | "transformer_lens"
        How tensors are called: those of ``nn.MultiheadAttention``; BERT and RoBERTa; ALBERT; GPT-2
        (Conv1D); Llama, Mistral, Qwen2 and Gemma (``"qwen2"`` is the same); TransformerLens.
        ``"auto"`` goes by the names, and refuses models (``model_type``) whose attention is not
        known to be that of the layout.
    mode : "full" | "causal" | "last", optional
        By default ``causal`` for gpt2, llama and decoders, ``full`` for others; weights of
        TransformerLens without a configuration need it.
    scale : float, optional
        What products of queries and keys are divided by; sqrt(head_dim) unless the model differs.
    rotary : "auto" | float | array | None
        For llama: ``"auto"`` takes the frequencies that a module holds, or theta from the
        configuration, and is refused without one.  A number theta;
        frequencies (rd/2,) of the first rd coordinates of a head; None where nothing is turned.
    n_kv_heads : int, optional
        Heads of keys and values, where they are fewer; by default as the shapes say.
    interleaved : bool
        Whether rotary positions turn coordinates (2 i, 2 i + 1) of a head, as in GPT-J, rather
        than (i, i + rd/2); weights are put into the order of the latter.
    config : mapping or path, optional
        Settings of the model: by default those of the module, or ``config.json`` beside the file.
    max_length : int, optional
        The longest sequence that the layer will get: it allows a sliding window that is not
        shorter.

    Biases become those of a constant coordinate (``bias=True``), and the scale is part of
    ``attn``.  Sliding windows, relative positions, normalised queries and keys, softcapping,
    ALiBi, attention to another sequence, and tensors that are not known are refused.

    Guarantee: float64 arithmetic on the numbers that are stored; heads are those of the model, in
    order.  A number of heads that contradicts the configuration, or the shapes, is refused.
    Cost: reading, and O(H d (d + e) head_dim).

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> rng = np.random.default_rng(0)
    >>> names = ("self.query", "self.key", "self.value", "output.dense")
    >>> state = {f"attention.{name}.weight": rng.standard_normal((6, 6)) for name in names}
    >>> pa.interop.from_weights(state, n_heads=2)
    SoftmaxAttention(2 heads, 6 -> 6, mode 'full')
    """
    found = read_projections(
        source, layer, n_heads, layout, mode=mode, scale=scale, rotary=rotary,
        n_kv_heads=n_kv_heads, interleaved=interleaved, config=config, max_length=max_length,
    )  # fmt: skip
    return cast(SoftmaxAttention, found.to_layer())


def read_projections(
    source: Mapping[str, Any] | str | os.PathLike[str] | Any,
    layer: int | str | None = None,
    n_heads: int | None = None,
    layout: str = "auto",
    *,
    mode: str | None = None,
    scale: float | None = None,
    rotary: float | str | ArrayLike | None = "auto",
    n_kv_heads: int | None = None,
    interleaved: bool = False,
    config: Any = None,
    max_length: int | None = None,
) -> Projections:
    """What ``from_weights`` reads, as W_Q, W_K, W_V, W_O and biases, as they were trained.

    Parameters are those of ``from_weights``, which is ``read_projections(...).to_layer()``.  Keys
    and values that several heads share are repeated for each of them; ``rotary`` holds the
    frequencies of rotary positions in the half layout, None without.
    """
    weights = WeightSource.of(source, config)
    require_flag("interleaved", interleaved)
    if max_length is not None:
        require_integer("max_length", max_length)
    place = find_place(weights.names, layer, layout, weights.config)
    settings = weights.config_of(place.name)
    require_expressible(place, settings, layout, max_length)
    part = weights.part(place.name)
    _require_plain_multihead(place, part)
    mode = default_mode(place, settings) if mode is None else require_choice("mode", mode, MODES)
    tensors = {name: weights.read(whole) for name, whole in place.names.items()}
    sides = place.layout.sides(tensors)
    n_heads = _certain(n_heads, place, tensors, part)
    counts = HeadCounts.of(sides, place, settings, n_heads, n_kv_heads)
    stacks = counts.split(sides)
    frequencies = _frequencies(place, weights, rotary, counts.head_dim, settings)
    if frequencies is not None:
        interleaved = interleaved or bool((settings or {}).get("rotary_adjacent_pairs"))
        order = half_order(counts.head_dim, 2 * len(frequencies), interleaved)
        for name in {"W_Q", "W_K", "b_Q", "b_K"} & stacks.keys():
            stacks[name] = stacks[name][..., order]
        frequencies = padded(frequencies, counts.head_dim)
    if scale is None:
        scale = default_scale(place, settings, counts.head_dim)
    W_Q, W_K, W_V, W_O = (stacks[f"W_{role}"] for role in "QKVO")
    b_Q, b_K, b_V, b_O = (stacks.get(f"b_{role}") for role in "QKVO")
    return Projections(
        W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O,
        scale=require_scale(scale, "softmax", counts.head_dim), kind="softmax", mode=mode,
        heads=np.arange(counts.n_heads), change=0.0, rotary=frequencies,
    )  # fmt: skip


def _certain(
    n_heads: int | None, place: Place, tensors: dict[str, Matrix], part: Any
) -> int | None:
    """The number of heads that stacked weights or a module have, or the one that was given."""
    there = None
    if place.layout.name == "transformer_lens":
        there = len(tensors["W_Q"])
    elif place.layout.name == "multihead" and part is not None:
        there = getattr(part, "num_heads", None)
    if there is not None and n_heads is not None and n_heads != there:
        raise InvalidInput(
            f"n_heads = {shown(n_heads)}, but {place.name or 'the layer'!r} has {there}; leave it "
            "out."
        )
    return n_heads if there is None else there


def _require_plain_multihead(place: Place, part: Any) -> None:
    """Refuse what a module adds that its tensors do not show."""
    if place.layout.name == "multihead" and getattr(part, "add_zero_attn", False):
        raise InvalidInput(
            f"{place.name or 'the module'!r} has add_zero_attn=True, an added token, which "
            "SoftmaxAttention cannot express."
        )


def _frequencies(
    place: Place,
    weights: WeightSource,
    rotary: float | str | ArrayLike | None,
    head_dim: int,
    config: dict[str, Any] | None,
) -> Matrix | None:
    """The frequencies of pairs that are turned; None where nothing is."""
    automatic = isinstance(rotary, str) and rotary == "auto"
    if place.layout.rotary is None and automatic:
        return _by_buffers(place, weights, head_dim, config or {})
    if place.layout.rotary is not False:
        kept = weights.buffers_above(place.name, "inv_freq") if automatic else []
        return frequencies_of(rotary, head_dim, config, *kept[:1])
    if automatic or rotary is None:
        return None
    raise InvalidInput(
        f"rotary was given, but queries and keys of layout {place.layout.name!r} are not "
        "turned; leave it out."
    )


def _by_buffers(
    place: Place, weights: WeightSource, head_dim: int, settings: dict[str, Any]
) -> Matrix | None:
    """Of TransformerLens, which keeps ``rotary_sin`` beside weights whose queries are turned."""
    kept = f"{place.name}.rotary_sin".lstrip(".") in weights.names
    if not kept and settings.get("positional_embedding_type") != "rotary":
        return None
    width = settings.get("rotary_dim") or head_dim
    known = {
        "rope_theta": settings.get("rotary_base"),
        "partial_rotary_factor": width / head_dim,
    }
    return frequencies_of("auto", head_dim, known)
