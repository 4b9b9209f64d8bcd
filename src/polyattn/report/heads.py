"""Heads on a page: how many, how large, and what their matrices look like."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from polyattn.display import figure
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.heads.data_scale import DataScale
from polyattn.heads.target import Target
from polyattn.model import LinearAttention
from polyattn.model.layer import AttentionLayer
from polyattn.quoting import counted
from polyattn.report.figures import OURS, SOFT, PlotAxes, finish_ranked
from polyattn.report.head_maps import (
    MOST_HEADS,
    MapsOfLayer,
    has_rotary,
    head_sizes,
    maps_of_layer,
    ranked,
)
from polyattn.report.map_pictures import map_picture
from polyattn.report.maps import MOST_POINTS
from polyattn.report.names import CONSTANT, SideNames
from polyattn.report.page import Section, fill, plot, statement
from polyattn.report.page_data import spread

# The singular values of a wider unfolding would take longer than a page is waited for.
MOST_UNFOLDED = 1200


def heads_section(
    layer: AttentionLayer,
    sentence: str = "",
    errors: Sequence[str] = (),
    scale: DataScale | None = None,
    names: SideNames | None = None,
) -> Section:
    """The heads of a layer, largest first.

    ``sentence`` says how they were found, ``errors`` (one for each head of the layer) how well
    each is known.  ``scale``: that of the data, without which the rank of the layer is left out.
    """
    sizes = head_sizes(layer)
    pictures: list[Markup] = []
    notes = []
    if isinstance(layer, LinearAttention):
        pictures += _singular_values(layer, sizes[ranked(sizes)], scale)
    maps = maps_of_layer(layer, names or SideNames())
    if maps is not None:
        pictures.append(_maps(maps, errors))
        if layer.n_heads > MOST_HEADS:
            notes.append(f"Shown are the {MOST_HEADS} largest of {layer.n_heads:,} heads.")
        if isinstance(layer, LinearAttention):
            notes.append(
                "A factor can move between the two matrices of a head; here both have the same "
                "norm."
            )
        if has_rotary(layer):
            notes.append(
                "With rotary positions attention depends on how far a query and a key are apart: "
                "attn is shown for a token that attends to itself, layer.attn_at(offset) is that "
                "of another offset."
            )
        if max(*layer.attn.shape[1:], *layer.value.shape[1:]) > MOST_POINTS:
            notes.append(
                f"Of more than {MOST_POINTS} rows or columns neighbours share a point, which shows "
                "the entry of largest size."
            )
        if layer.bias:
            notes.append(f"The coordinate {CONSTANT!r} is the constant 1 of each token.")
    claim = f"The layer has {counted(layer.n_heads, 'head')}. {sentence}".strip()
    return statement("Heads", claim, pictures=pictures, notes=notes)


def _maps(found: MapsOfLayer, errors: Sequence[str]) -> Markup:
    """The maps in groups of one scale, each with its caption; then what their colours mean."""
    groups: dict[str, list[Markup]] = {}
    for each in found.maps:
        label = f"{' and '.join(part.title for part in each.parts)} of {each.name.lower()}"
        caption = each.title
        if errors and each.number >= 0:
            caption += f"; {errors[each.number]}"
        picture = map_picture(each.parts, f"{label} as maps of colours", caption)
        groups.setdefault(each.group.capitalize(), []).append(picture)
    full_colour = {name: figure(size, 3) for name, size in found.full_colour.items()}
    return fill("maps", groups=groups, full_colour=full_colour)


def unfolded_side(layout: Layout, n_outputs: int) -> int:
    """The shorter side of a layer's tensor as a matrix of values and outputs, keys and queries."""
    pairs = layout.pairs
    return min(pairs.n_values * n_outputs, pairs.n_keys * len(layout.query))


def _singular_values(
    layer: LinearAttention, sizes: NDArray, scale: DataScale | None
) -> list[Markup]:
    """What the heads weigh, beside the singular values of the tensor that data determine."""
    layout = layer.layout
    # Before the coefficients are made, which can be too many for memory.
    if unfolded_side(layout, layer.n_outputs) > MOST_UNFOLDED:
        return []
    count, n_queries = len(layout.pairs), len(layout.query)
    coefs = [
        layer.coef[:, first : first + count, :n_queries]
        for first in range(0, layout.n_products, count)
    ]
    # Skip and intercept are no parts of the tensor, and may be all that a layer has.
    if not np.any(coefs):
        return []
    sigma = _unfolded_values([unfold_coef(coef, layout.pairs) for coef in coefs])
    rank, beside = None, ""
    if scale is not None:
        # In the units of the data, so that it is the same in whatever units tokens come.
        tensor = Target.on(layer.coef, scale, layout=layout).tensor
        scaled = _unfolded_values(np.split(tensor, layout.n_scales))
        rank = int(np.count_nonzero(scaled > 1e-10 * scaled[0]))
        beside = f" (rank {rank:,})"
    folds = bool(layout.pairs.folded.any())
    label = "symmetric part" if folds else "tensor"
    part = "symmetric part of the layer's tensor" if folds else "layer's tensor"
    caption = (
        f"Data determine the {part}. By itself it has rank {rank:,}, "
        f"which would take as many heads; the part that data cannot see was chosen so that "
        f"{counted(layer.n_heads, 'head')} compute it."
        if rank is not None and layer.n_heads < rank
        else f"The singular values of the {part}, which is all that data determine{beside}, and "
        "the sizes of the heads."
    )
    if layout.n_scales > 1:
        caption += " Each set of heads has a tensor of its own; all are shown together."
    if rank is not None:
        caption += " The rank is that in units in which coordinates and outputs are of size one."
    draw = partial(_draw_sizes, sigma, sizes, f"singular values of the {label}")
    return [plot(draw, "Singular values and sizes of heads", caption, 2.8)]


def _unfolded_values(tensors: Sequence[NDArray]) -> NDArray[np.float64]:
    """Singular values of tensors (e, c, b, l) as matrices (e c, b l), largest first."""
    values = [
        np.linalg.svd(tensor.reshape(tensor.shape[0] * tensor.shape[1], -1), compute_uv=False)
        for tensor in tensors
    ]
    return np.asarray(np.sort(np.concatenate(values))[::-1], dtype=np.float64)


def _draw_sizes(sigma: NDArray, sizes: NDArray, label: str, axes: PlotAxes) -> None:
    lowest = 1e-17 * float(sigma[0])
    axes.set_yscale("log")
    for values, colour, style, name in (
        (sigma, SOFT, ".", label),
        (sizes, OURS, "o", "heads"),
    ):
        chosen = spread(len(values), 300)
        heights = np.maximum(values[chosen], lowest)
        axes.plot(chosen + 1, heights, style, color=colour, label=name)
    axes.set(xlabel="number, largest first", ylabel="size")
    finish_ranked(axes)
