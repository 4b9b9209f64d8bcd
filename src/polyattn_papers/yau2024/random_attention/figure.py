"""The picture: validation error against the number of sequences and of steps, by width.

Above, one broken axis: trained models over the closed form, which is far below.  Under it the
curves of training on the largest data.
"""

from __future__ import annotations

import math
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from polyattn.report.figures import FOURTH, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.yau2024.random_attention.cells import CLOSED, HEADS, LAYERS, TRANSFORMER
from polyattn_papers.yau2024.random_attention.findings import ModelSummary, summaries

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
    figure = new_figure(max(6.4, 2.3 * len(dims)), 7.0)
    axes = figure.subplots(3, len(dims), sharey="row", squeeze=False, height_ratios=(3, 1, 2.4))
    for column, n_dims in enumerate(dims):
        upper, lower, curves = axes[:, column]
        here = [one for one in found if one.n_dims == n_dims]
        trained = [one for one in here if one.method != CLOSED]
        upper.sharex(lower)
        _draw_models(upper, trained)
        _draw_models(lower, [one for one in here if one.method == CLOSED])
        upper.axhline(_power(rows, n_dims), color=SOFT, linestyle=":", label="mean target power")
        upper.set_title(f"d = {n_dims}")
        # No line at the break of the axis.
        upper.spines["bottom"].set_visible(False)
        upper.tick_params(axis="x", which="both", length=0, labelbottom=False)
        _label_sizes(lower, sorted({one.n_sequences for one in here}))
        lower.set_xlabel("training sequences N")
        _draw_curves(curves, trained)
    _fit_rows(axes[0, 0], axes[1, 0], found)
    axes[0, 0].set_ylabel("validation error")
    axes[2, 0].set_ylabel(f"the same while training, N = {max(o.n_sequences for o in found)}")
    handles: dict[str, Any] = {}
    for axis in (axes[1, 0], axes[0, 0]):
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right center")
    return figure


def _draw_models(axis: Axes, found: list[ModelSummary]) -> None:
    """A line for each model, the models side by side where they share an N."""
    styles = _styles(found)
    for place, (label, style) in enumerate(styles.items()):
        same = sorted((one for one in found if one.label == label), key=lambda one: one.n_sequences)
        shift = APART ** (place - (len(styles) - 1) / 2)
        errors = [one.error for one in same]
        # Bars are of the mean of logarithms, so they reach equally far on this axis.
        low = [one.error * (1 - 10**-one.standard_error) for one in same]
        high = [one.error * (10**one.standard_error - 1) for one in same]
        axis.errorbar(
            [one.n_sequences * shift for one in same], errors, yerr=(low, high), label=label,
            linewidth=0.9, elinewidth=0.9, capsize=2, **style,
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")


def _draw_curves(axis: Axes, found: list[ModelSummary]) -> None:
    """The smallest error within so many steps, on the largest data."""
    most = max(one.n_sequences for one in found)
    styles = _styles(found)
    for one in found:
        if one.n_sequences == most and one.curve:
            axis.plot([*one.curve], [*one.curve.values()], linewidth=0.9, **styles[one.label])
    axis.set(xscale="log", yscale="log", xlabel="steps of Adam")


def _styles(found: list[ModelSummary]) -> dict[str, dict[str, Any]]:
    """A colour for each kind of model; models of one kind differ by their marker."""
    counted: dict[str, int] = {}
    styles = {}
    for one in found:
        if one.label not in styles:
            number = counted[one.method] = counted.get(one.method, -1) + 1
            marker = MARKERS[number % len(MARKERS)]
            styles[one.label] = {"color": COLOURS[one.method], "marker": marker}
    return styles


def _power(rows: list[Row], n_dims: int) -> float:
    """The error of a model that says 0, as a geometric mean like all others."""
    return geometric_mean([row["target_power"] for row in rows if row["n_dims"] == n_dims])


def _label_sizes(axis: Axes, sizes: list[int]) -> None:
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()


def _fit_rows(upper: Axes, lower: Axes, found: list[ModelSummary]) -> None:
    """Whole decades around what each row shows."""
    for axis, closed in ((upper, False), (lower, True)):
        shown = [one for one in found if (one.method == CLOSED) == closed]
        low = min(one.log_error - one.standard_error for one in shown)
        high = max(one.log_error + one.standard_error for one in shown)
        # The line of the target power stands above all that was learned.
        axis.set_ylim(10.0 ** (math.floor(low) - closed), 10.0 ** (math.ceil(high) + 1))
