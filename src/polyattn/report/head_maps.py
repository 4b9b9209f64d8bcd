"""The matrices of heads as maps, largest head first; pages and plots show the same ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.display import figure
from polyattn.form.in_words import scale_in_words
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.layer import AttentionLayer
from polyattn.model.softmax import AT_OFFSET_ZERO
from polyattn.report.maps import Map, cell_size
from polyattn.report.names import Side, SideNames, sides_of
from polyattn.report.page_data import norms

MOST_HEADS = 16

# Wider matrices have more cells than a map has pixels.
MOST_CELLS = 512

LINEAR_PARTS = {"skip": "linear map of the query", "intercept": "constant"}


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """The maps of one head, or of what is added to all heads, side by side.

    name : "Head 3", or what is added
    group : the decay or the distances that the head belongs to; empty where all have the same
    size : ||A_h|| ||V_h||; None for what is no head
    parts : one for each matrix
    number : which head of the layer it is; -1 for what is no head
    """

    name: str
    group: str
    size: float | None
    parts: list[Map]
    number: int = -1

    @property
    def title(self) -> str:
        """The name with the size."""
        return self.name if self.size is None else f"{self.name}: size {figure(self.size, 3)}"


@dataclass(frozen=True, eq=False)
class MapsOfLayer:
    """The maps of a layer, and what full colour is in each of its matrices, by their names."""

    maps: list[HeadMaps]
    full_colour: dict[str, float]


def maps_of_layer(
    layer: AttentionLayer, names: SideNames, most: int = MOST_HEADS, titled: bool = False
) -> MapsOfLayer | None:
    """The maps of up to ``most`` heads, largest first; None where cells would not be seen.

    titled : whether panels say which head they show, as where many are in one figure
    """
    # Values first: attn of a wide layer with rotary positions need not be made.
    if max(layer.value.shape[1:]) > MOST_CELLS or max(layer.attn.shape[1:]) > MOST_CELLS:
        return None
    attn, value = _comparable(layer)
    sizes, sides = head_sizes(layer), sides_of(layer, names)
    order = ranked(sizes)[:most]
    # One scale of colours for all heads; attn and value of softmax heads have nothing in common.
    full = {
        name: float(np.abs(each[order]).max()) for name, each in (("attn", attn), ("value", value))
    }
    cell = cell_size(attn.shape[1:], value.shape[1:])
    along = {"attn": (sides["query"], sides["key"]), "value": (sides["value"], sides["output"])}
    titles = {"attn": AT_OFFSET_ZERO if has_rotary(layer) else "attn", "value": "value"}
    maps = []
    for place, h in enumerate(order.tolist(), start=1):
        group = _group(layer, h)
        name = f"head {place}, {group}" if group else f"head {place}"
        before = f"{name}: " if titled else ""
        parts = [
            Map(f"{before}{titles[part]}", matrix, full[part], *along[part], cell)
            for part, matrix in (("attn", attn[h]), ("value", value[h]))
        ]
        maps.append(HeadMaps(f"Head {place}", group, float(sizes[h]), parts, h))
    if isinstance(layer, LinearAttention):
        # Heads of a scale stay together; among them the largest is first.
        scales = layer.head_scales
        maps.sort(key=lambda each: int(scales[each.number]))
        return _with_linear_parts(MapsOfLayer(maps, full), layer, sides)
    return MapsOfLayer(maps, full)


def head_sizes(layer: AttentionLayer) -> NDArray[np.float64]:
    """||A_h|| ||V_h|| of each head; of softmax heads ||V_h||, which bounds what they add."""
    values = norms(layer.value, (1, 2))
    if isinstance(layer, SoftmaxAttention):
        return values
    with np.errstate(over="ignore"):
        return np.asarray(norms(layer.attn, (1, 2)) * values)


def has_rotary(layer: AttentionLayer) -> bool:
    """Whether attn is that of one offset alone."""
    return isinstance(layer, SoftmaxAttention) and layer.frequencies is not None


def ranked(sizes: NDArray) -> NDArray[np.intp]:
    """The numbers of heads, largest first."""
    return np.argsort(-sizes, kind="stable")


def _with_linear_parts(
    found: MapsOfLayer, layer: LinearAttention, sides: dict[str, Side]
) -> MapsOfLayer:
    """The map of the query and the constant that a layer adds, after its heads."""
    parts = {} if layer.skip is None else {"skip": (layer.skip, sides["query"])}
    if layer.intercept is not None:
        parts["intercept"] = (layer.intercept[None], Side("", ("",)))
    if not parts:
        return found
    largest = max(float(np.abs(matrix).max()) for matrix, _ in parts.values())
    cell = cell_size(*(matrix.shape for matrix, _ in parts.values()))
    shown = [
        Map(name, matrix, largest, rows, sides["output"], cell)
        for name, (matrix, rows) in parts.items()
    ]
    name = " and ".join(LINEAR_PARTS[each] for each in parts).capitalize()
    added = HeadMaps(name, "added to the heads", None, shown)
    full = found.full_colour | {" and ".join(parts): largest}
    return MapsOfLayer([*found.maps, added], full)


def _group(layer: AttentionLayer, head: int) -> str:
    """What the heads of a scale attend to; empty where there is one scale."""
    if not isinstance(layer, LinearAttention):
        return ""
    return scale_in_words(layer.form, int(layer.head_scales[head]))


def _comparable(layer: AttentionLayer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """attn and value; of linear heads so scaled that both have the same norm."""
    if not isinstance(layer, LinearAttention):
        return layer.attn, layer.value
    of_attn, of_value = norms(layer.attn, (1, 2)), norms(layer.value, (1, 2))
    both = (of_attn > 0) & (of_value > 0)
    factor = np.ones((layer.n_heads, 1, 1))
    factor[both, 0, 0] = np.sqrt(of_value[both]) / np.sqrt(of_attn[both])
    return layer.attn * factor, layer.value / factor
