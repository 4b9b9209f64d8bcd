"""The page of a learning curve: what it says, and the risks over the number of sequences."""

from __future__ import annotations

import numpy as np

from polyattn.fitting.curve_result import LearningCurve
from polyattn.report.figures import OTHER, OURS, SOFT, PlotAxes, log_ticks
from polyattn.report.page import Section, described, plot, statement
from polyattn.report.page_data import PageData


def curve_page(curve: LearningCurve, _: PageData | None) -> list[Section]:
    """The outcome, the picture, and the figures behind it."""
    caption = (
        "Mean squared errors with their standard errors over repeats. The upright line is where "
        "there are as many predicted positions as coefficients."
    )
    picture = plot(lambda axes: draw_curve(axes, curve), "Risk over sequences", caption)
    lines = curve.describe().lines
    return [
        described("What more sequences give", curve, pictures=[picture]),
        statement("All sizes", lines=lines),
    ]


def draw_curve(axes: PlotAxes, curve: LearningCurve) -> None:
    """Test and training risk over the number of sequences, on logarithmic axes."""
    sizes, rows = curve.sizes, curve.n_rows
    axes.set(xscale="log", yscale="log", xlabel="sequences", ylabel="risk")
    for colour, name in ((OURS, "test"), (OTHER, "train")):
        risk, error = (getattr(curve, f"{name}_{what}") for what in ("risk", "error"))
        # A logarithmic axis has no place for an interpolated training risk.
        seen = risk > 1e-12 * curve.target_power
        axes.errorbar(sizes[seen], risk[seen], error[seen], fmt="o-", color=colour, label=name)
    if rows[0] < curve.n_features < rows[-1]:
        peak = float(np.interp(curve.n_features, rows, sizes))
        axes.axvline(peak, color=SOFT, linestyle="--", linewidth=1)
    axes.legend(loc="best")
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
