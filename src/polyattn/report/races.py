"""Races: an error that falls over time, beside an answer that is there at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyattn.report.figures import OTHER, OURS, drawing, log_ticks, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Errors below this are drawn at it: a perfect fit has no logarithm.
SMALLEST = 1e-40


def draw_race(
    name: str, seconds: Sequence[float], errors: Sequence[float], done: tuple[float, float]
) -> Figure:
    """The error of a run over time beside ``done``, the seconds and error of a closed form."""
    figure = new_figure(4.7, 3.0)
    with drawing():
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="validation error")
        axes.plot(seconds, [max(error, SMALLEST) for error in errors], color=OTHER, label=name)
        end = max(done[1], SMALLEST)
        axes.plot(done[0], end, "o", color=OURS, markersize=8, label="closed form, done")
        axes.legend(loc="best")
        log_ticks(axes.xaxis)
        log_ticks(axes.yaxis)
    return figure
