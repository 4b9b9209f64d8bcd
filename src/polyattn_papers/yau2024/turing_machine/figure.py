"""The picture: tries that are exact and claimed, fresh machines that run, whole histories."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from polyattn.report.figures import OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Whether a program is exact, and whether it was called learned.
KINDS = {
    (True, True): ("learned, exact", OURS),
    (True, False): ("exact, not claimed", THIRD),
    (False, False): ("not exact, not claimed", SOFT),
    (False, True): ("claimed, but wrong", OTHER),
}


def draw(rows: list[Row]) -> Figure:
    """What became of all tries, the fresh machines that each of them runs, and histories."""
    by_rules = where(rows, learner="tied")
    numbers = sorted({row["traces"] for row in by_rules})
    figure = new_figure(9.6, 3.0)
    tries, shares, histories = figure.subplots(1, 3)
    below = [0] * len(numbers)
    for kind, (label, colour) in KINDS.items():
        counts = Counter(r["traces"] for r in by_rules if (r["exact"], r["claimed"]) == kind)
        heights = [counts[number] for number in numbers]
        tries.bar(
            [str(number) for number in numbers], heights, 0.6, below, color=colour, label=label
        )
        below = [low + height for low, height in zip(below, heights, strict=True)]
    tries.set(xlabel="traces", ylabel="tries")
    tries.yaxis.get_major_locator().set_params(integer=True)
    colours = [KINDS[row["exact"], row["claimed"]][1] for row in by_rules]
    right = [100 * row["fresh_right"] / row["fresh_machines"] for row in by_rules]
    shares.scatter(
        [row["rows"] for row in by_rules], right, c=colours, s=24, clip_on=False, zorder=3
    )
    shares.set(xlabel="predicted tokens in the traces", ylabel="fresh machines run exactly, %")
    shares.set(ylim=(0, 100), xlim=(0, None))
    _draw_histories(histories, where(rows, learner="histories"))
    figure.legend(*tries.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


def _draw_histories(axis: Axes, rows: list[Row]) -> None:
    """The share of free runs that differ over the bound on it, for each number of steps."""
    least = 5e-4
    axis.plot([least, 100.0], [least, 100.0], color=SOFT, linewidth=1.0, label="the bound")
    for number, steps in enumerate(sorted({row["steps"] for row in rows})):
        some = [row for row in rows if row["steps"] == steps]
        # Where nothing is wrong, at the border.
        bounds, seen = ([max(least, row[name]) for row in some] for name in ("bound", "differ"))
        colour = (OURS, OTHER, THIRD, SOFT)[number % 4]
        axis.scatter(bounds, seen, s=20, color=colour, label=f"{steps} steps", zorder=3)
    axis.set(xscale="log", yscale="log", xlim=(least / 2, 100.0), ylim=(least / 2, 2.0))
    axis.set(xlabel="tokens × share of wrong tokens", ylabel="histories that differ, share")
    axis.legend(loc="lower right", fontsize="x-small")
