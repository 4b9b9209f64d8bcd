"""Heads on a page: how many, how large, and what their matrices look like."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import partial

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from polyattn.features.pairs import unfold_coef
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
    attn, value = _comparable(layer)
    pictures: list[Markup] = []
    if isinstance(layer, LinearAttention):
        pictures += _singular_values(layer, sizes[order], scale)
    if max(attn.shape[1], value.shape[2]) <= MOST_CELLS:
        # One scale for all heads; attn and value of softmax heads have nothing in common.
        of_attn, of_value = (float(np.abs(each[shown]).max()) for each in (attn, value))
        maps = [
            {
                "name": f"Head {number + 1}",
                "attn": heat_map(attn[h], of_attn), "value": heat_map(value[h], of_value),
                "size": float(sizes[h]), "error": errors[h] if errors else "",
            }
            for number, h in enumerate(shown)
        ]  # fmt: skip
        pictures.append(fill("maps", maps=maps, of_attn=of_attn, of_value=of_value))
    notes = []
    if len(order) > MOST_HEADS:
        notes.append(f"Shown are the {MOST_HEADS} largest of {len(order):,} heads.")
    if isinstance(layer, LinearAttention):
        notes.append(
            "A factor can move between the two matrices of a head; here both have the same norm."
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
    width, n_outputs = layer.attn.shape[1], layer.n_outputs
    if width * min(width, n_outputs) > MOST_UNFOLDED or not np.any(layer.coef):
        return []
    sigma = _unfolded_values(unfold_coef(layer.coef))
    rank, beside = None, ""
    if scale is not None:
        # In the units of the data, so that it is the same in whatever units tokens come.
        scaled = _unfolded_values(Target.on(layer.coef, scale).tensor)
        rank = int(np.count_nonzero(scaled > 1e-10 * scaled[0]))
        beside = f" (rank {rank:,})"
    caption = (
        f"Data determine the symmetric part of the layer's tensor. By itself it has rank {rank:,}, "
        f"which would take as many heads; the part that data cannot see was chosen so that "
        f"{counted(layer.n_heads, 'head')} compute it."
        if rank is not None and layer.n_heads < rank
        else f"The singular values of the symmetric part of the layer's tensor, which is all that "
        f"data determine{beside}, and the sizes of the heads."
    )
    if rank is not None:
        caption += " The rank is that in units in which coordinates and outputs are of size one."
    draw = partial(_draw_sizes, sigma, sizes)
    return [plot(draw, "Singular values and sizes of heads", caption, 2.8)]


def _unfolded_values(tensor: NDArray) -> NDArray[np.float64]:
    """Singular values of a tensor (e, d, d, d) as a matrix (e d, d d), largest first."""
    matrix = tensor.reshape(len(tensor) * tensor.shape[1], -1)
    return np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)


def _draw_sizes(sigma: NDArray, sizes: NDArray, axes: PlotAxes) -> None:
    lowest = 1e-17 * float(sigma[0])
    axes.set_yscale("log")
    for values, colour, style, label in (
        (sigma, SOFT, ".", "singular values of the symmetric part"),
        (sizes, OURS, "o", "heads"),
    ):
        chosen = spread(len(values), 300)
        heights = np.maximum(values[chosen], lowest)
        axes.plot(chosen + 1, heights, style, color=colour, label=label)
    axes.set(xlabel="number, largest first", ylabel="size")
    finish_ranked(axes)
