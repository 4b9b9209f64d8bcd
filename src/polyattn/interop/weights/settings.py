"""What a configuration says of a layer, and what of it no SoftmaxAttention can express."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, require_number
from polyattn.interop.weights.choosing import Place
from polyattn.quoting import shown

HEADS = ("num_attention_heads", "n_head", "n_heads")
KEY_VALUE_HEADS = ("num_key_value_heads", "n_key_value_heads")
WIDTHS = ("head_dim", "d_head")

# Settings that change logits, with the values that change nothing; everything else is refused.
REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "position_embedding_type": (
        lambda value: value in (None, "absolute"), "relative or other position embeddings",
    ),
    "positional_embedding_type": (
        lambda value: value in (None, "standard", "rotary"), "other position embeddings",
    ),
    "alibi": (lambda value: not value, "ALiBi, a bias of logits by distance"),
    "attn_logit_softcapping": (lambda value: not value, "softcapping of logits"),
    "attn_scores_soft_cap": (lambda value: value in (None, 0, -1), "softcapping of logits"),
    "use_qk_norm": (lambda value: not value, "normalised queries and keys"),
    "qk_layernorm": (lambda value: not value, "normalised queries and keys"),
    "clip_qkv": (lambda value: not value, "clipped queries, keys and values"),
    "use_local_attn": (lambda value: not value, "local attention"),
    "use_NTK_by_parts_rope": (lambda value: not value, "rotary positions by parts"),
    "use_mrope": (lambda value: not value, "rotary positions of several axes"),
    "no_rope_layers": (lambda value: not value, "layers without rotary positions"),
    "attention_chunk_size": (lambda value: not value, "attention in chunks"),
}  # fmt: skip

# Settings by which products of queries and keys are multiplied in another way than by head_dim.
SCALES = ("query_pre_attn_scalar", "attention_multiplier")

# Models whose layers all have the window, whatever use_sliding_window and layer_types say.
EVERY_LAYER = ("mistral", "mixtral", "ministral3", "starcoder2", "phi3", "phimoe")

BIDIRECTIONAL = {"is_causal": False, "use_bidirectional_attention": True}


def setting(config: dict[str, Any] | None, names: tuple[str, ...]) -> int | None:
    """The first of these settings that is a number of something."""
    for name in names:
        value = (config or {}).get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
    return None


def require_expressible(
    place: Place, config: dict[str, Any] | None, layout: str, max_length: int | None
) -> None:
    """Refuse what the model has, by its configuration, and the layer could not have."""
    if config is None:
        return
    _require_model(place, config, layout)
    for name, (harmless, what) in REFUSED.items():
        if name in config and not harmless(config[name]):
            raise InvalidInput(
                f"the configuration has {name}={shown(config[name])}: {what}, which "
                "SoftmaxAttention cannot express."
            )
    pruned = config.get("pruned_heads")
    if pruned:
        raise InvalidInput(
            f"the configuration has pruned_heads={shown(pruned)}: heads of layers differ in "
            "number. Give config without it, and n_heads, the heads that this layer has left."
        )
    _require_no_window(place, config, max_length)


def default_mode(place: Place, config: dict[str, Any] | None) -> str:
    """Which positions are attended to, where neither guess nor argument is needed."""
    settings = config or {}
    for name, value in BIDIRECTIONAL.items():
        if settings.get(name) is value:
            raise InvalidInput(
                f"mode must be given: the configuration has {name}={value}, and some releases "
                "attend to all tokens then and others do not; give mode='full' or 'causal'."
            )
    causal = place.layout.causal
    if causal is None:
        direction = settings.get("attention_dir")
        if direction not in ("causal", "bidirectional"):
            raise InvalidInput(
                f"mode must be given: weights of layout {place.layout.name!r} do not say whether "
                "tokens attend to those behind them; give mode='causal', as in language models, "
                "or mode='full'."
            )
        causal = direction == "causal"
    return "causal" if causal or settings.get("is_decoder") is True else "full"


def default_scale(place: Place, config: dict[str, Any] | None, head_dim: int) -> float:
    """What products of queries and keys are divided by, sqrt(head_dim) unless settings differ."""
    settings = config or {}
    for name in SCALES:
        if settings.get(name) is not None:
            raise InvalidInput(
                f"scale must be given: the configuration has {name}={shown(settings[name])}; "
                "scale is what products of queries and keys are divided by."
            )
    scale = float(np.sqrt(head_dim))
    if place.layout.name == "transformer_lens" and settings.get("attn_scale") is not None:
        scale = require_number("attn_scale", settings["attn_scale"])
    if settings.get("scale_attn_weights") is False or settings.get("use_attn_scale") is False:
        scale = 1.0
    if settings.get("scale_attn_by_inverse_layer_idx"):
        if place.number is None:
            raise InvalidInput(
                "scale must be given: by scale_attn_by_inverse_layer_idx of the configuration it "
                "depends on the number of the layer, which its name does not have."
            )
        scale *= place.number + 1
    return scale


def _require_model(place: Place, config: dict[str, Any], layout: str) -> None:
    """Refuse models of which it is not known that their attention is that of the layout."""
    model, known = config.get("model_type"), place.layout.models
    if model is None or layout != "auto" or model in known or not known:
        return
    inner = [
        name for name, each in config.items() if isinstance(each, dict) and setting(each, HEADS)
    ]
    if inner and setting(config, HEADS) is None:
        raise InvalidInput(
            f"the configuration describes several models ({', '.join(inner)}); give config, the "
            "one that this layer belongs to."
        )
    raise InvalidInput(
        f"the configuration has model_type={shown(model)}; its tensors are called as those of "
        f"layout {place.layout.name!r}, which {', '.join(known)} have, but whether its attention "
        f"computes the same is not known. Give layout={place.layout.name!r} if it does."
    )


def _require_no_window(place: Place, config: dict[str, Any], max_length: int | None) -> None:
    """Refuse a sliding window, unless no sequence will be longer."""
    window: Any = config.get("sliding_window")
    off = config.get("use_sliding_window") is False
    kinds, number = config.get("layer_types"), place.number
    if isinstance(kinds, list) and number is not None and number < len(kinds):
        off = off or kinds[number] == "full_attention"
    off = window is None or (off and config.get("model_type") not in EVERY_LAYER)
    seen = max_length is None or not isinstance(window, int) or max_length > window
    if seen and not off:
        raise InvalidInput(
            f"the configuration has sliding_window={shown(window)}, which SoftmaxAttention cannot "
            f"express; sequences of up to so many tokens do not see it: give max_length, the "
            "longest that the layer will get, or config without it."
        )
