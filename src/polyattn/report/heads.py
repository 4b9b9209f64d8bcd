"""Heads on a page: how many, how large, and what their matrices look like."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from polyattn.display import figure
from polyattn.form.in_words import scale_in_words
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.heads.data_scale import DataScale
from polyattn.heads.target import Target
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.layer import AttentionLayer
from polyattn.quoting import counted
from polyattn.report.figures import NEGATIVE, OURS, POSITIVE, SOFT, PlotAxes, finish_ranked
from polyattn.report.page import Section, fill, plot, statement
from polyattn.report.page_data import norms, spread

MOST_HEADS = 16

# Wider matrices have more cells than a map on a page has pixels.
MOST_CELLS = 512

# The singular values of a wider unfolding would take longer than a page is waited for.
MOST_UNFOLDED = 1200


def heads_section(
    layer: AttentionLayer,
    sentence: str = "",
    errors: Sequence[str] = (),
    scale: DataScale | None = None,
) -> Section:
    """The heads of a layer, largest first.

    ``sentence`` says how they were found, ``errors`` (one for each head of the layer) how well
    each is known.  ``scale``: that of the data, without which the rank of the layer is left out.
    """
    sizes = head_sizes(layer)
    order = np.argsort(-sizes, kind="stable")
    shown = order[:MOST_HEADS]
    pictures: list[Markup] = []
    notes = []
    if isinstance(layer, LinearAttention):
        pictures += _singular_values(layer, sizes[order], scale)
    if max(*layer.attn.shape[1:], *layer.value.shape[1:]) <= MOST_CELLS:
        pictures.append(_maps(layer, shown, sizes, errors))
    if len(order) > MOST_HEADS:
        notes.append(f"Shown are the {MOST_HEADS} largest of {len(order):,} heads.")
    if isinstance(layer, LinearAttention):
        notes.append(
            "A factor can move between the two matrices of a head; here both have the same norm."
        )
        if not layer.layout.is_plain:
            notes.append(
                "Rows of attn are numbers of a query, its columns those of a key; rows of value "
                "are numbers of a value, its columns outputs."
            )
    if layer.bias:
        notes.append("The last row and column belong to the constant 1 of each token.")
    claim = f"The layer has {counted(layer.n_heads, 'head')}. {sentence}".strip()
    return statement("Heads", claim, pictures=pictures, notes=notes)


def head_sizes(layer: AttentionLayer) -> NDArray[np.float64]:
    """||A_h|| ||V_h|| of each head; of softmax heads ||V_h||, which bounds what they add."""
    values = norms(layer.value, (1, 2))
    if isinstance(layer, SoftmaxAttention):
        return values
    with np.errstate(over="ignore"):
        return np.asarray(norms(layer.attn, (1, 2)) * values)


def heat_map(matrix: NDArray[np.float64], largest: float) -> str:
    """A matrix as a PNG in a data address, one pixel per entry; zero is transparent.

    ``largest`` is the magnitude of full colour.
    """
    from matplotlib.image import imsave

    strength = np.clip(np.abs(matrix) / largest if largest > 0 else np.zeros(matrix.shape), 0, 1)
    pixels = np.empty((*matrix.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where(matrix[..., None] >= 0, POSITIVE, NEGATIVE)
    pixels[..., 3] = np.round(255 * strength)
    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def unfolded_side(layout: Layout, n_outputs: int) -> int:
    """The shorter side of a layer's tensor as a matrix of values and outputs, keys and queries."""
    pairs = layout.pairs
    return min(pairs.n_values * n_outputs, pairs.n_keys * len(layout.query))


def _maps(
    layer: AttentionLayer, shown: NDArray[np.intp], sizes: NDArray, errors: Sequence[str]
) -> Markup:
    """The matrices of heads as maps of colours, in groups of one scale; then what is added."""
    attn, value = _comparable(layer)
    # One scale of colours for all heads; attn and value of softmax heads have nothing in common.
    of_attn, of_value = (float(np.abs(each[shown]).max()) for each in (attn, value))
    scales = [0] * layer.n_heads
    if isinstance(layer, LinearAttention):
        scales = layer.head_scales.tolist()
    heads: dict[int, list[dict[str, Any]]] = {scale: [] for scale in sorted(set(scales))}
    for number, h in enumerate(shown):
        parts = _parts(attn=(attn[h], of_attn), value=(value[h], of_value))
        size, error = float(sizes[h]), errors[h] if errors else ""
        head = {"name": f"Head {number + 1}", "parts": parts, "size": size, "error": error}
        heads[scales[h]].append(head)
    groups = [(_scale_name(layer, scale), maps) for scale, maps in heads.items() if maps]
    key = (
        f"The same colours for all heads: full colour is {figure(of_attn, 3)} in attn and "
        f"{figure(of_value, 3)} in value."
    )
    linear = _linear_parts(layer)
    if linear:
        of_linear = max(float(np.abs(each).max()) for each in linear.values())
        parts = _parts(**{name: (each, of_linear) for name, each in linear.items()})
        names = {"skip": "linear map of the query", "intercept": "constant"}
        name = " and ".join(names[each] for each in linear).capitalize()
        added = {"name": name, "parts": parts, "size": None, "error": ""}
        groups.append(("Added to the heads", [added]))
        key += f" Of what is added to them it is {figure(of_linear, 3)}."
    return fill("maps", groups=groups, key=key)


def _scale_name(layer: AttentionLayer, scale: int) -> str:
    """The heading of the heads of a scale; empty where there is one scale."""
    words = scale_in_words(layer.form, scale) if isinstance(layer, LinearAttention) else ""
    return words.capitalize()


def _parts(**matrices: tuple[NDArray, float]) -> list[dict[str, str]]:
    """Matrices with the size of full colour, as maps with their names."""
    return [
        {"name": name, "picture": heat_map(matrix, largest)}
        for name, (matrix, largest) in matrices.items()
    ]


def _linear_parts(layer: AttentionLayer) -> dict[str, NDArray[np.float64]]:
    """The map of the query and the constant that a layer adds, as matrices."""
    if not isinstance(layer, LinearAttention):
        return {}
    parts = {} if layer.skip is None else {"skip": layer.skip}
    return parts if layer.intercept is None else parts | {"intercept": layer.intercept[None]}


def _comparable(layer: AttentionLayer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """attn and value; of linear heads so scaled that both have the same norm."""
    if not isinstance(layer, LinearAttention):
        return layer.attn, layer.value
    of_attn, of_value = norms(layer.attn, (1, 2)), norms(layer.value, (1, 2))
    both = (of_attn > 0) & (of_value > 0)
    factor = np.ones((layer.n_heads, 1, 1))
    factor[both, 0, 0] = np.sqrt(of_value[both]) / np.sqrt(of_attn[both])
    return layer.attn * factor, layer.value / factor


def _singular_values(
    layer: LinearAttention, sizes: NDArray, scale: DataScale | None
) -> list[Markup]:
    """What the heads weigh, beside the singular values of the tensor that data determine."""
    layout = layer.layout
    count, n_queries = len(layout.pairs), len(layout.query)
    coefs = [
        layer.coef[:, first : first + count, :n_queries]
        for first in range(0, layout.n_products, count)
    ]
    # Skip and intercept are no parts of the tensor, and may be all that a layer has.
    if unfolded_side(layout, layer.n_outputs) > MOST_UNFOLDED or not np.any(coefs):
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
