"""The picture: the bound over d, soft layers, and the work of attacks over heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, OTHER, OURS, THIRD, new_figure
from polyattn_papers.chen2024.lower_bounds.cells import ATTACK, BOUND, NOISE, TOLERANCE
from polyattn_papers.chen2024.lower_bounds.findings import ATTACKS
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (OURS, OTHER, THIRD, FOURTH)
OF_ATTACKS = dict(zip(("halves", "all_sets", "elimination", "transform"), COLOURS, strict=True))


def draw(rows: list[Row]) -> Figure:
    """Queries that are needed, over d and over beta; work over s."""
    figure = new_figure(9.6, 3.4)
    sizes, softness, attacks = figure.subplots(1, 3)
    _bounds(sizes, where(rows, part=BOUND, beta=None, method="row_sign"))
    _soft(softness, [row for row in where(rows, part=BOUND) if row["beta"] is not None])
    _attacks(attacks, where(rows, part=ATTACK))
    return figure


def _bounds(axes: Axes, rows: list[Row]) -> None:
    heads = sorted({row["n_heads"] for row in rows})
    for colour, s in zip(COLOURS, heads, strict=False):
        own = where(rows, n_heads=s)
        d = [row["n_dims"] for row in own]
        # On a logarithmic axis a bound that says nothing stands at one.
        axes.plot(
            d, [max(row["n_queries"], 1) for row in own], "o-", color=colour, label=f"s = {s}"
        )
    axes.set(xscale="log", yscale="log", xlabel="coordinates d", ylabel="queries, at least")
    axes.set_xticks(sorted({row["n_dims"] for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_title(f"Statistical queries, tolerance {TOLERANCE:g}")
    axes.legend(fontsize=8)


def _soft(axes: Axes, rows: list[Row]) -> None:
    for colour, s in zip(COLOURS, sorted({row["n_heads"] for row in rows}), strict=False):
        own = where(rows, n_heads=s)
        needed = [max(row["n_queries"], 1) for row in own]
        axes.plot([row["beta"] for row in own], needed, "o-", color=colour, label=f"s = {s}")
    axes.set(xscale="log", yscale="log", xlabel="sharpness beta", ylabel="queries, at least")
    axes.set_xticks(sorted({row["beta"] for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_title("Correlations, d = 64")
    axes.legend(fontsize=8)


def _attacks(axes: Axes, rows: list[Row]) -> None:
    """At the largest d with most heads; elimination on clean samples, others on noisy ones."""
    most = max(row["n_heads"] for row in rows)
    d = max(row["n_dims"] for row in where(rows, n_heads=most))
    for method, colour in OF_ATTACKS.items():
        noise = 0.0 if method == "elimination" else NOISE
        own = where(rows, n_dims=d, method=method, noise=noise)
        heads = sorted({row["n_heads"] for row in own})
        if heads:
            work = [mean(where(own, n_heads=s), "work") for s in heads]
            axes.plot(heads, work, "o-", color=colour, label=ATTACKS[method])
    axes.set(yscale="log", xlabel="heads s", ylabel="work")
    axes.set_xticks(sorted({row["n_heads"] for row in where(rows, n_dims=d)}))
    axes.set_title(f"Attacks, d = {d}, {NOISE:.0%} noise")
    axes.legend(fontsize=7)
