"""Pages of linearised layers: what is lost, head by head, beside other replacements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.result import Linearised
from polyattn.model.linearised import LinearisedAttention
from polyattn.report.figures import OTHER, OURS, PlotAxes
from polyattn.report.names import SideNames
from polyattn.report.page import Section, described, fill, plot, statement
from polyattn.report.page_data import PageData
from polyattn.report.predictions import predictions_section

# So many heads are drawn.
MOST_HEADS = 32


def linearised_page(
    found: Linearised, data: PageData | None = None, names: SideNames | None = None
) -> list[Section]:
    """The outcome, errors of heads, and figures of the layer."""
    caption = (
        "Squared error relative to the variance of the outputs, of each head by itself and of the "
        "layer; a linear map of single tokens beside it."
    )
    picture = plot(lambda axes: draw_losses(axes, found), "What is lost by head", caption)
    sections = [
        described("What is lost", found, pictures=[picture]),
        _heads(found),
    ]
    return sections + linearised_layer_page(found.layer, data, names)


def linearised_layer_page(
    layer: LinearisedAttention, data: PageData | None = None, _: SideNames | None = None
) -> list[Section]:
    """What the layer is; with targets its predictions."""
    sections = [described("The layer", layer)]
    if data is not None and data.targets is not None:
        return [*sections, predictions_section(layer, data)]
    note = "Predictions beside true outputs: give the page X and Y."
    return [*sections, statement("What is not shown", lines=[note])]


def _heads(found: Linearised) -> Section:
    """One row for the layer, and one for each head."""
    errors = _shown_errors(found)
    names = ["layer", *map(str, range(len(errors) - 1))]
    rows = [{"name": name, "errors": each} for name, each in zip(names, errors, strict=True)]
    return Section("Head by head", fill(
        "linearised_heads", methods=[name.replace("_", "-") for name in found.methods],
        rows=rows[: MOST_HEADS + 1], left_out=max(0, len(rows) - 1 - MOST_HEADS),
        where="on sequences held out" if len(found.held_out) else "in training",
    ))  # fmt: skip


def _shown_errors(found: Linearised) -> NDArray[np.float64]:
    """Errors (1 + H, methods) of the layer and of its heads, held out if any sequence was."""
    errors = found.held_out if len(found.held_out) else found.training
    return np.concatenate([errors[-1:], errors[:-1]])


def draw_losses(axes: PlotAxes, found: Linearised) -> None:
    """Errors of the fit and of token-wise maps, head by head."""
    shown = _shown_errors(found)[: MOST_HEADS + 1]
    place = np.arange(len(shown))
    for shift, colour, name in ((-0.2, OURS, "fit"), (0.2, OTHER, "token_wise")):
        own = np.nan_to_num(shown[:, found.methods.index(name)], posinf=0.0)
        axes.bar(place + shift, own, 0.4, color=colour, label=name.replace("_", "-"))
    axes.set_xticks(place, ["layer", *map(str, place[:-1])])
    axes.set(xlabel="head", ylabel="unexplained share")
    axes.legend(loc="best")
