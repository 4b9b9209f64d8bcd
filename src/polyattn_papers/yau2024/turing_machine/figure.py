"""The picture: how many tries are exact and claimed, and fresh machines that run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from polyattn.report.figures import OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Whether a program is exact, and whether it was called learned.
KINDS = {
    (True, True): ("learned, exact", OURS),
    (True, False): ("exact, not claimed", THIRD),
    (False, False): ("not exact, not claimed", SOFT),
    (False, True): ("claimed, but wrong", OTHER),
}


def draw(rows: list[Row]) -> Figure:
    """What became of all tries, and the share of fresh machines that each of them runs."""
    by_rules = where(rows, learner="tied")
    numbers = sorted({row["traces"] for row in by_rules})
    figure = new_figure(7.2, 3.0)
    tries, shares = figure.subplots(1, 2)
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
    figure.legend(*tries.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure
