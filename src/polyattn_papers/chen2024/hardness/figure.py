"""The picture: who succeeds how often, and how long the learner takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, OTHER, OURS, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.tasks.softmax_truth import PARITY, succeeded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour and name of each method, from the top bar down.
METHODS = {
    "auto": (OURS, "polyattn"),
    "control": (OTHER, "random starts, same time"),
    "adam": (FOURTH, "Adam"),
    "queries": (THIRD, "queries"),
}

# The bars of one layer together, in units of the distance between layers; inches for each layer.
THICKNESS, INCHES = 0.8, 0.38


def draw(rows: list[Row]) -> Figure:
    """Above, success by family; below, success by parity, and the times of all."""
    families = [row for row in rows if row["family"] != PARITY]
    parities = where(rows, family=PARITY)
    sizes = sorted({(row["n_heads"], row["logits"]) for row in families})
    heights = [len({row["family"] for row in families}), len({_parity(row) for row in parities})]
    figure = new_figure(7.6, 2.4 + INCHES * sum(heights))
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.5 + one for one in heights])
    above, below = parts[:, 0]
    panels = above.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axes, (n_heads, logits) in zip(panels, sizes, strict=True):
        own = where(families, n_heads=n_heads, logits=logits)
        _successes(axes, own, lambda row: row["family"].replace("_", " "))
        axes.set_title(f"{n_heads} heads, logits {logits:g}")
    panels[0].invert_yaxis()
    left, right = below.subplots(1, 2)
    _successes(left, parities, _parity)
    left.invert_yaxis()
    left.set_title("Parities")
    _times(right, rows)
    handles, labels = left.get_legend_handles_labels()
    above.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _successes(axes: Axes, rows: list[Row], name: Callable[[Row], str]) -> None:
    """For every name and method, the share of layers that it solved."""
    names = sorted({name(row) for row in rows})
    height = THICKNESS / len(METHODS)
    for number, (method, (colour, label)) in enumerate(METHODS.items()):
        own = where(rows, method=method)
        shares = [_share([row for row in own if name(row) == one]) for one in names]
        places = [place + (number + 0.5) * height - THICKNESS / 2 for place in range(len(names))]
        axes.barh(places, shares, 0.85 * height, color=colour, label=label)
        # A bar of no length would look like a method that did not take part.
        for place, share in zip(places, shares, strict=True):
            if share == 0.0:
                axes.text(0.01, place, "0", color=colour, fontsize=7, va="center_baseline")
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 1.02), xlabel="share solved")


def _times(axes: Axes, rows: list[Row]) -> None:
    """Seconds of every run of the learner, by kind of layer; a stroke marks the middle."""
    own = where(rows, method="auto")
    kinds = list(dict.fromkeys(map(_kind, own)))
    colour, _ = METHODS["auto"]
    for place, kind in enumerate(kinds):
        of_kind = [row for row in own if _kind(row) == kind]
        for solved, marker in ((True, "o"), (False, "x")):
            seconds = [row["seconds"] for row in of_kind if succeeded(row) == solved]
            axes.plot(seconds, [place] * len(seconds), marker, color=colour, alpha=0.5)
        axes.plot([median(of_kind, "seconds")], [place], "|", color=colour, markersize=16)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set(xscale="log", xlabel="seconds of polyattn (× not solved)")
    # Where the times span little, matplotlib would label every minor tick.
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.invert_yaxis()
    axes.set_title("Time")


def _share(rows: list[Row]) -> float:
    return sum(map(succeeded, rows)) / len(rows)


def _parity(row: Row) -> str:
    bits = "1 bit" if row["n_heads"] == 1 else f"{row['n_heads']} bits"
    return f"{bits}, beta {row['logits']:g}"


def _kind(row: Row) -> str:
    if row["family"] == PARITY:
        return "parity, 1 bit" if row["n_heads"] == 1 else f"parity, {row['n_heads']} bits"
    return f"m = {row['n_heads']}, c = {row['logits']:g}"
