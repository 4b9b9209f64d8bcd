"""Which tensors are meant: the attention layers among names, and the one that is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyattn.errors import InvalidInput, InvalidType, require_choice, require_integer
from polyattn.interop.weights.layouts import LAYOUTS, SAME_NAMES, WeightLayout
from polyattn.quoting import shown

# So many names are listed in a message.
MOST_LISTED = 60
# Of tensors that are no layer.
MOST_TENSORS = 12

# Names of attention to another sequence, which no layer of one sequence computes.
CROSS = ("crossattention", "cross_attn", "cross_attention", "encoder_attn")


@dataclass(frozen=True)
class Place:
    """An attention layer among names.

    name : of the attention module, "encoder.layer.3.attention"; empty where the source is one
    layout : how its tensors are called
    names : from names below the module to whole names, of the tensors that are read
    """

    name: str
    layout: WeightLayout
    names: dict[str, str]

    @property
    def number(self) -> int | None:
        """The number of the block that it belongs to, where its name has one."""
        numbers = [int(part) for part in self.name.split(".") if part.isdigit()]
        if not numbers:
            return None
        # ALBERT: layers of a group share weights, and groups are what differs.
        return numbers[0] if "albert_layer_groups" in self.name else numbers[-1]

    @property
    def is_cross(self) -> bool:
        """Whether it attends to another sequence, by its name."""
        return self.name.rpartition(".")[2].lower() in CROSS


def find_place(
    names: Sequence[str], layer: int | str | None, layout: str, config: dict[str, Any] | None
) -> Place:
    """The one layer that is asked for; what is there instead is named.

    layer : the number of a block, a name or a part of one, or None where there is one layer
    layout : a name of ``LAYOUTS``, or "auto"
    """
    layout = require_choice("layout", layout, ("auto", *LAYOUTS, *SAME_NAMES))
    layout = SAME_NAMES.get(layout, layout)
    looked_for = [each for name, each in LAYOUTS.items() if layout in ("auto", name)]
    every = [place for each in looked_for for place in _places(names, each)]
    if not every:
        raise InvalidInput(_nothing_fits(names, looked_for))
    # Attention to another sequence is found by its name alone, to be refused there.
    own = [place for place in every if not place.is_cross]
    found = _named(every, layer) if isinstance(layer, str) else own
    if layer is not None and not isinstance(layer, str):
        found = _numbered(own, layer, config)
    if len(found) != 1:
        raise InvalidInput(_not_one(found, every, layer))
    (place,) = found
    _require_own(place, every)
    _require_known(place, names)
    return place


def listed(places: Sequence[Place]) -> str:
    """Names of layers, with their layouts where these differ."""
    several = len({place.layout.name for place in places}) > 1
    words = [
        f"{place.name!r}{f' ({place.layout.name})' if several else ''}"
        for place in sorted(places, key=_in_order)
    ]
    more = len(words) - MOST_LISTED
    return ", ".join(words[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _places(names: Sequence[str], layout: WeightLayout) -> list[Place]:
    """Every module below which all tensors of one form of the layout stand."""
    there, found = set(names), []
    for form in layout.forms:
        first = form[0]
        for name in names:
            if name != first and not name.endswith(f".{first}"):
                continue
            above = name[: len(name) - len(first)]
            if all(f"{above}{each}" in there for each in form):
                read = (*form, *(each for each in layout.optional if f"{above}{each}" in there))
                chosen = {each: f"{above}{each}" for each in read}
                found.append(Place(above.rstrip("."), layout, chosen))
    return found


def _named(places: list[Place], layer: str) -> list[Place]:
    """Layers of this name, else those of which it is the beginning, the end or a part."""
    exact = [place for place in places if place.name == layer]
    return exact or [place for place in places if f".{layer}." in f".{place.name}."]


def _numbered(places: list[Place], layer: Any, config: dict[str, Any] | None) -> list[Place]:
    """Layers of the block of this number."""
    if isinstance(layer, bool):
        raise InvalidType(f"layer must be a number of a block or a name; got {shown(layer)}.")
    number = require_integer("layer", layer, least=0)
    if config is not None and all(place.layout.name == "albert" for place in places):
        number = _group(number, config)
    return [place for place in places if place.number == number]


def _group(number: int, config: dict[str, Any]) -> int:
    """The group of ALBERT whose weights the block of this number has."""
    n_layers, n_groups = config.get("num_hidden_layers"), config.get("num_hidden_groups", 1)
    if not (isinstance(n_layers, int) and isinstance(n_groups, int) and n_groups >= 1):
        return number
    if number >= n_layers:
        raise InvalidInput(
            f"layer must be below num_hidden_layers = {n_layers} of the configuration; got "
            f"{number}."
        )
    return int(number / (n_layers / n_groups))


def _nothing_fits(names: Sequence[str], looked_for: Sequence[WeightLayout]) -> str:
    """That there is no layer, what was looked for, and what is there."""
    wanted = "; ".join(
        f"{each.name}: {' or '.join(', '.join(form) for form in each.forms)}" for each in looked_for
    )
    near = [name for name in names if re.search("attn|attention|query|q_proj|W_Q", name)]
    some = (near or list(names))[:MOST_TENSORS]
    more = f" and {len(names) - len(some):,} more" if len(names) > len(some) else ""
    there = f"{', '.join(map(shown, some))}{more}" if names else "no tensors at all"
    return (
        f"source holds no attention layer that is known. Looked for, below one name: {wanted}. "
        f"There are {there}. Arrays of another layout can be given to pa.interop.from_projections."
    )


def _not_one(found: list[Place], every: list[Place], layer: object) -> str:
    """That no layer, or several, are meant, and which there are."""
    if layer is None and not found:
        return f"source holds attention to another sequence alone: {listed(every)}."
    if layer is None:
        return f"source holds {len(found)} attention layers; give layer, one of {listed(found)}."
    if found:
        return f"layer={shown(layer)} fits several layers: {listed(found)}; give one by its name."
    return f"there is no layer {shown(layer)}; the layers that are there: {listed(every)}."


def _require_own(place: Place, every: list[Place]) -> None:
    """Refuse attention of one sequence to another."""
    above, _, last = place.name.rpartition(".")
    beside = {each.name for each in every}
    beside_self = last == "multihead_attn" and f"{above}.self_attn".lstrip(".") in beside
    if place.is_cross or beside_self:
        raise InvalidInput(
            f"layer {place.name!r} attends to another sequence, which SoftmaxAttention does not "
            "express; choose a layer of self-attention."
        )


def _require_known(place: Place, names: Sequence[str]) -> None:
    """Refuse tensors of the layer that are not understood: it would compute something else."""
    above = f"{place.name}." if place.name else ""
    known = {*place.layout.known, *place.layout.ignored}
    strange = [
        name.removeprefix(above)
        for name in names
        if name.startswith(above) and name.removeprefix(above) not in known
    ]
    if strange:
        raise InvalidInput(
            f"{place.name or 'source'!r} holds {', '.join(map(shown, strange[:MOST_TENSORS]))}, "
            f"which layout {place.layout.name!r} does not have: {_meaning(strange[0])}. Give a "
            "dict without it if it has no effect on attention."
        )


def _meaning(name: str) -> str:
    """Why a tensor cannot be left out, as far as its name says."""
    words = {
        "norm": "queries or keys that are normalised are no linear maps of tokens, which "
        "SoftmaxAttention needs",
        "bias_k": "an added token (add_bias_kv), which SoftmaxAttention cannot express",
        "bias_v": "an added token (add_bias_kv), which SoftmaxAttention cannot express",
        "distance": "relative position embeddings, which SoftmaxAttention cannot express",
        "relative": "relative position embeddings, which SoftmaxAttention cannot express",
        "lora": "an adapter, which must be merged into the weights first",
        "sinks": "attention sinks, which SoftmaxAttention cannot express",
    }
    return next((text for part, text in words.items() if part in name.lower()),
                "what the layer computes with it is not known")  # fmt: skip


def _in_order(place: Place) -> list[tuple[int, int | str]]:
    """Names with numbers in the order of the numbers."""
    return [
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", place.name)
    ]
