"""The picture: validation error against epochs, for each size of the data.

As in the paper's figures 1 and 3: heads, layers, Transformer, and the closed form as a line below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyattn.report.figures import FOURTH, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.yau2024.random_attention.cells import HEADS, LAYERS, TRANSFORMER
from polyattn_papers.yau2024.random_attention.curves import (
    ModelSummary,
    by_heads,
    closed_form,
    common_point,
    log10,
    summaries,
    trained,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {HEADS: OTHER, LAYERS: THIRD, TRANSFORMER: FOURTH}

#: Models of one kind differ by their marker, and from few to many by their strength.
MARKERS = ("o", "s", "^", "D", "v")


def draw(rows: list[Row]) -> Figure:
    """One panel per size (d, N): figure 1 has the largest N, figure 3 the others."""
    found = [one for one in summaries(trained(rows)) if not one.weight_decay]
    dims = sorted({one.n_dims for one in found})
    counts = sorted({one.n_sequences for one in found}, reverse=True)
    figure = new_figure(9.2, 3.4 * len(counts) + 0.4)
    axes = figure.subplots(len(counts), len(dims), sharex=True, sharey=True, squeeze=False)
    for row, n_sequences in enumerate(counts):
        for column, n_dims in enumerate(dims):
            axis, size = axes[row, column], {"n_dims": n_dims, "n_sequences": n_sequences}
            # Heads are compared after equal steps: all at one point of the grid.
            point = common_point(rows, n_dims, n_sequences)
            heads = by_heads(rows, n_dims, n_sequences)[point]
            others = [one for one in found if one.size == (n_dims, n_sequences)]
            _draw_curves(axis, [*heads, *(one for one in others if one.method != HEADS)])
            _draw_levels(axis, where(rows, **size))
            axis.set_title(f"d = {n_dims}, N = {n_sequences}")
            axis.set(xscale="log", yscale="log")
    for axis in axes[-1]:
        axis.set_xlabel("epochs")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean squared error, validation")
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right center")
    return figure


def _draw_curves(axis: Axes, found: list[ModelSummary]) -> None:
    """A line for each model, shaded by one standard error of the mean of logarithms."""
    styles = _styles(found)
    for one in found:
        epochs = [*one.curve]
        logs, spreads = (np.array(part) for part in zip(*one.curve.values(), strict=True))
        style = styles[one.label]
        axis.plot(epochs, 10**logs, linewidth=1, markersize=3, label=one.label, **style)
        axis.fill_between(
            epochs, 10 ** (logs - spreads), 10 ** (logs + spreads), color=style["color"],
            alpha=0.12 * style["alpha"], linewidth=0,
        )  # fmt: skip


def _draw_levels(axis: Axes, rows: list[Row]) -> None:
    """The mean power of the targets, and the error of the closed form."""
    fits = closed_form(rows)
    power = np.mean([log10(row["target_power"]) for row in fits])
    error = np.mean([log10(row["validation_error"]) for row in fits])
    axis.axhline(float(10**power), color=SOFT, linestyle=":", label="mean target power")
    axis.axhline(float(10**error), color=OURS, label="closed form")


def _styles(found: list[ModelSummary]) -> dict[str, dict[str, Any]]:
    """A colour for each kind of model; from few to many of one kind lines get stronger."""
    styles: dict[str, dict[str, Any]] = {}
    for kind, colour in COLOURS.items():
        labels = [one.label for one in found if one.method == kind]
        for place, label in enumerate(labels):
            strength = (place + 1) / len(labels)
            styles[label] = {
                "color": colour, "marker": MARKERS[place % len(MARKERS)],
                "alpha": 0.35 + 0.65 * strength,
            }  # fmt: skip
    return styles
