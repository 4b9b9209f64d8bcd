"""The figure of ``capacity.py``: what was measured over each letter, with the promised slopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyattn.report.figures import (
    FOURTH,
    INK,
    OTHER,
    OURS,
    SOFT,
    THIRD,
    drawing,
    log_ticks,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = dict[str, Any]

COLOURS = {
    "summaries": SOFT,
    "moments": OURS,
    "solution": THIRD,
    "20 passes": FOURTH,
    "kernel": OTHER,
    "certificate": INK,
    "layer": "#b08a12",
}
# Steps of a plan that workers share, and the one that they do not.
OUTLOOK = {"reading": THIRD, "summaries": SOFT, "sums": OURS, "solution": OTHER}
MARKERS = {"summaries": "v", "solution": "s", "kernel": "D", "certificate": "^", "layer": "P"}
LETTERS = {"N": "sequences", "n": "tokens of a sequence", "d": "coordinates", "e": "outputs"}
PANELS = [("seconds", letter) for letter in "Nnde"] + [("megabytes", "N"), ("megabytes", "d")]


def draw(found: dict[str, Any]) -> Figure:
    """Points are measured; lines have the slopes that are promised, through their middle.

    Those of memory go through the largest size, as fixed parts outweigh what grows before it.
    """
    figure = new_figure(7.6, 10.2)
    with drawing():
        axes = list(figure.subplots(4, 2).flat)
        for number, (quantity, letter) in enumerate(PANELS):
            _growth(axes[number], found, quantity, letter)
            title = f"({'abcdefgh'[number]}) {quantity} over {letter}, {LETTERS[letter]}"
            axes[number].set(title=title, xlabel=letter, ylabel=quantity)
        _workers(axes[6], found["workers"], found["outlook"])
        _fits(axes[7], found["fits"])
        handles = {}
        for each in axes[: len(PANELS)]:
            lines, names = each.get_legend_handles_labels()
            handles |= dict(zip(names, lines, strict=True))
        order = [name for name in COLOURS if name in handles]
        shown = [handles[name] for name in order]
        figure.legend(shown, order, loc="outside upper center", ncols=4)
    return figure


def _growth(axes: Axes, found: dict[str, Any], quantity: str, letter: str) -> None:
    axes.set(xscale="log", yscale="log")
    for growth in found["growth"]:
        name = growth["step"]
        if (growth["quantity"], growth["over"]) != (quantity, letter):
            continue
        own = [p for p in found["points"] if (p["step"], p["over"]) == (name, letter)]
        sizes, values = (np.array([p[key] for p in own], float) for key in (letter, quantity))
        at = [-1] if quantity == "megabytes" else slice(None)
        height, place = (np.exp(np.log(each[at]).mean()) for each in (values, sizes))
        promised = height * (sizes / place) ** growth["promised"]
        axes.plot(sizes, promised, color=COLOURS[name], linewidth=1.0, alpha=0.7)
        marker = MARKERS.get(name, "o")
        axes.plot(sizes, values, marker, color=COLOURS[name], label=name)
    _ticks(axes)


def _workers(axes: Axes, measured: list[Point], outlook: list[Point]) -> None:
    """Seconds of the wall clock for the same data, and what is planned for many more."""
    axes.set(xscale="log", yscale="log", title="(g) seconds over workers", ylabel="seconds")
    axes.set(xlabel="workers; lines: planned for 10⁹ sequences")
    workers = [each["workers"] for each in outlook]
    for step, colour in OUTLOOK.items():
        seconds = [each["steps"][step] for each in outlook]
        axes.plot(workers, seconds, color=colour, label=step)
    axes.plot(*_pairs(measured, "workers", "seconds"), "o", color=INK, label="measured")
    axes.legend(loc=(0.08, 0.08), ncols=3, fontsize=8, columnspacing=1.0, handlelength=1.4)
    _ticks(axes)


def _fits(axes: Axes, fits: list[Point]) -> None:
    """What was expected of whole fits over what they took."""
    axes.set(xscale="log", yscale="log", title="(h) whole fits, expected over measured")
    axes.set(xlabel="seconds, measured", ylabel="seconds, expected")
    colours = {"primal": OURS, "direct": THIRD, "dual": OTHER, "iterative": FOURTH}
    ends = np.array([min(f["seconds"] for f in fits) / 1.5, max(f["seconds"] for f in fits) * 1.5])
    axes.fill_between(ends, ends / 3, ends * 3, color=SOFT, alpha=0.12, linewidth=0)
    axes.plot(ends, ends, color=SOFT, linewidth=1.0)
    for solver, colour in colours.items():
        own = [fit for fit in fits if fit["solver"] == solver]
        if own:
            pairs = _pairs(own, "seconds", "expected_seconds")
            axes.plot(*pairs, "o", color=colour, label=solver)
    axes.legend(loc="lower right")
    _ticks(axes)


def _pairs(points: list[Point], over: str, value: str) -> tuple[list[float], list[float]]:
    return [each[over] for each in points], [each[value] for each in points]


def _ticks(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        log_ticks(axis)
        axis.set_major_formatter(lambda number, _: f"{number:,g}")
