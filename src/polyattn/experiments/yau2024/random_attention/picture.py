"""The picture: validation error against the number of sequences, a column for each width.

The axis is broken: trained models above, the closed form far below.
"""

from __future__ import annotations

import math
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from polyattn.experiments.reproduction.experiment import Row
from polyattn.experiments.yau2024.random_attention.cells import CLOSED, HEADS, LAYERS, TRANSFORMER
from polyattn.experiments.yau2024.random_attention.reading import Summary, summaries
from polyattn.report.figures import FOURTH, OTHER, OURS, SOFT, THIRD, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {CLOSED: OURS, HEADS: OTHER, LAYERS: THIRD, TRANSFORMER: FOURTH}

#: Models of one kind differ by their marker.
MARKERS = ("o", "s", "^", "D", "v")

# How far, as a factor of N, neighbouring models stand apart.
APART = 1.045


def draw(rows: list[Row]) -> Figure:
    """One column per width d, the best point of the grid, bars of one standard error."""
    found = summaries(rows)
    dims = sorted({one.n_dims for one in found})
    figure = new_figure(max(6.4, 2.3 * len(dims)), 4.4)
    axes = figure.subplots(
        2, len(dims), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 1)
    )
    for column, n_dims in enumerate(dims):
        upper, lower = axes[:, column]
        here = [one for one in found if one.n_dims == n_dims]
        _draw_models(upper, [one for one in here if one.method != CLOSED])
        _draw_models(lower, [one for one in here if one.method == CLOSED])
        upper.axhline(_power(rows, n_dims), color=SOFT, linestyle=":", label="mean target power")
        upper.set_title(f"d = {n_dims}")
        # No line at the break of the axis.
        upper.spines["bottom"].set_visible(False)
        upper.tick_params(axis="x", which="both", length=0)
        _label_sizes(lower, sorted({one.n_sequences for one in here}))
    _fit_rows(axes[0, 0], axes[1, 0], found)
    axes[0, 0].set_ylabel("validation error")
    handles: dict[str, Any] = {}
    for axis in (axes[1, 0], axes[0, 0]):
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right center")
    figure.supxlabel("training sequences N", color=SOFT, fontsize=10)
    return figure


def _draw_models(axis: Axes, found: list[Summary]) -> None:
    """A line for each model, the models side by side where they share an N."""
    labels = list(dict.fromkeys(one.label for one in found))
    counted: dict[str, int] = {}
    for place, label in enumerate(labels):
        same = sorted((one for one in found if one.label == label), key=lambda one: one.n_sequences)
        method = same[0].method
        marker = MARKERS[counted.get(method, 0) % len(MARKERS)]
        counted[method] = counted.get(method, 0) + 1
        shift = APART ** (place - (len(labels) - 1) / 2)
        errors = [one.error for one in same]
        # Bars are of the mean of logarithms, so they reach equally far on this axis.
        low = [one.error * (1 - 10**-one.standard_error) for one in same]
        high = [one.error * (10**one.standard_error - 1) for one in same]
        axis.errorbar(
            [one.n_sequences * shift for one in same], errors, yerr=(low, high), label=label,
            color=COLOURS[method], marker=marker, linewidth=0.9, elinewidth=0.9, capsize=2,
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")


def _power(rows: list[Row], n_dims: int) -> float:
    """The error of a model that says 0, as a geometric mean like all others."""
    return geometric_mean([row["target_power"] for row in rows if row["n_dims"] == n_dims])


def _label_sizes(axis: Axes, sizes: list[int]) -> None:
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()


def _fit_rows(upper: Axes, lower: Axes, found: list[Summary]) -> None:
    """Whole decades around what each row shows."""
    for axis, closed in ((upper, False), (lower, True)):
        shown = [one for one in found if (one.method == CLOSED) == closed]
        low = min(one.log_error - one.standard_error for one in shown)
        high = max(one.log_error + one.standard_error for one in shown)
        # The line of the target power stands above all that was learned.
        axis.set_ylim(10.0 ** (math.floor(low) - closed), 10.0 ** (math.ceil(high) + 1))
