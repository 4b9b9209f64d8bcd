"""The page of an audit of heads: what each order explains, head by head and layer by layer."""

from __future__ import annotations

from functools import partial

import numpy as np
from markupsafe import Markup

from polyattn.auditing.head_audit import EXPLAINED, ORDERS, HeadAudit, percent
from polyattn.quoting import counted
from polyattn.report.figures import INK, OTHER, OURS, SOFT, THIRD, PlotAxes
from polyattn.report.map_pictures import map_picture
from polyattn.report.maps import Map, cell_size
from polyattn.report.names import Side, numbered
from polyattn.report.page import Section, described, plot, statement

COLOURS = {"token": SOFT, "mean": THIRD, "linear": OURS, "second": OTHER}
LABELS = {
    "token": "own token",
    "mean": "+ mean of values",
    "linear": "+ linear attention",
    "second": "+ second order",
}

NOTES = (
    (
        "Shares are of the variance of outputs about a constant, on sequences held out. A constant "
        "is left out, since only the sum over heads of the constants of values can be seen."
    ),
    (
        "Each order contains those before it: the token itself through any linear map; the mean of "
        "the values; all products of a coordinate of the query, or 1, and one of a key, or 1; and "
        "products of two of their leading coordinates."
    ),
)

# The heads of so many layers have bars of their own; all of them are in the maps.
MOST_LAYERS = 24


def head_audit_page(found: HeadAudit, *_: object) -> list[Section]:
    """The outcome, maps over layers and heads, and for each layer what explains its heads."""
    sections = [described("How linear are the heads?", found, pictures=_maps(found))]
    shown = range(min(found.n_layers, MOST_LAYERS))
    sections += [_layer_section(found, layer) for layer in shown]
    notes = list(NOTES)
    if found.n_layers > MOST_LAYERS:
        notes.append(f"Bars are shown of the first {MOST_LAYERS} of {found.n_layers} layers.")
    return [*sections, statement("What was measured", notes=notes)]


def draw_heads(found: HeadAudit, layer: int, axes: PlotAxes) -> None:
    """Stacked bars of the heads of a layer, and of the whole layer; a line at 90 %.

    A bar grows by what the best of an order and those before it explains, and never shrinks.
    """
    heads = found.heads_of(layer)
    shares = np.vstack([found.shares[heads], found.layer_shares[layer]])
    errors = np.append(found.errors[heads, -1], found.layer_errors[layer, -1])
    reached = np.maximum.accumulate(np.clip(shares, 0.0, 1.0), axis=1)
    places = np.append(np.arange(len(heads)), len(heads) + 0.5)
    before = np.zeros(len(shares))
    for column, order in enumerate(ORDERS):
        added = reached[:, column] - before
        axes.barh(places, added, left=before, color=COLOURS[order], label=LABELS[order], height=0.8)
        before = reached[:, column]
    axes.errorbar(before, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1)
    axes.axvline(EXPLAINED, color=INK, linewidth=0.8, linestyle="--")
    axes.set_yticks(places, [*numbered(len(heads)), "layer"])
    axes.invert_yaxis()
    heads_of = "head" if found.n_layers == 1 else f"head of layer {layer}"
    axes.set(xlim=(0.0, 1.0), xlabel="share of the variance, held out", ylabel=heads_of)
    axes.xaxis.set_major_formatter(lambda share, _: percent(share))
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncol=2)


def bars_height(n_heads: int) -> float:
    """Inches of the bars of a layer with so many heads."""
    return 0.5 + 0.19 * (n_heads + 1)


def _layer_section(found: HeadAudit, layer: int) -> Section:
    heads = found.heads_of(layer)
    draw = partial(draw_heads, found, layer)
    height = bars_height(len(heads)) + 1.2
    picture = plot(draw, f"Shares of the heads of layer {layer}", _caption(found, layer), height)
    title = "Head by head" if found.n_layers == 1 else f"Layer {layer}"
    return statement(title, lines=found.sentences(layer), pictures=[picture])


def _caption(found: HeadAudit, layer: int) -> str:
    whole, training = found.layer_shares[layer], found.layer_training_shares[layer]
    return (
        f"On {counted(int(found.n_held_out[layer]), 'sequence')} held out, beside "
        f"{found.n_training[layer]:,} of the fits; lines at the ends are standard errors. The "
        f"whole layer: {percent(whole[2])} by linear attention and {percent(whole[3])} by second "
        f"order ({percent(training[2])} and {percent(training[3])} in training)."
    )


def _maps(found: HeadAudit) -> list[Markup]:
    """Layers over heads, for two orders; where layers have as many heads as each other."""
    counts = np.bincount(found.head_layers)
    if found.n_layers == 1 or np.any(counts != counts[0]):
        return []
    rows = Side("layer", numbered(found.n_layers))
    columns = Side("head", numbered(int(counts[0])))
    shape = (found.n_layers, int(counts[0]))
    maps = [
        Map(title, np.clip(found.shares[:, column], 0.0, 1.0).reshape(shape), 1.0, rows, columns,
            cell_size(shape))
        for title, column in (("mean of values", 1), ("linear attention", 2), ("second order", 3))
    ]  # fmt: skip
    caption = "Shares that are explained: full colour is all of the variance, no colour nothing."
    return [map_picture(maps, "Shares over layers and heads as maps of colours", caption)]
