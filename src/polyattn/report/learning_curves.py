"""The page of a learning curve: what it says, and the risks over the number of sequences."""

from __future__ import annotations

import numpy as np

from polyattn.fitting.curve_result import LearningCurve
from polyattn.quoting import counted
from polyattn.report.figures import OTHER, OURS, SOFT, PlotAxes, log_ticks
from polyattn.report.page import Section, described, plot, statement


def curve_page(curve: LearningCurve, *_: object) -> list[Section]:
    """The outcome, the picture, and the figures behind it."""
    caption = (
        "Mean squared errors with their standard errors: over repeats, and of test risks over the "
        "sequences held out, too."
    )
    if _has_peak(curve):
        caption += " Upright: there are as many predicted positions as coefficients."
    picture = plot(lambda axes: draw_curve(axes, curve), "Risk over sequences", caption)
    risks = {
        counted(int(row["sizes"]), "sequence"): (
            f"test {row['test_risk']:.4g} ± {row['test_error']:.2g}, "
            f"train {row['train_risk']:.4g} ± {row['train_error']:.2g}"
        )
        for row in curve.table()
    }
    return [
        described("What more sequences give", curve, pictures=[picture]),
        statement("All sizes", facts=risks),
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
    if _has_peak(curve):
        peak = float(np.interp(curve.n_features, rows, sizes))
        axes.axvline(peak, color=SOFT, linestyle="--", linewidth=1)
    axes.legend(loc="best")
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)


def _has_peak(curve: LearningCurve) -> bool:
    """Whether as many predicted positions as coefficients are among the sizes."""
    return bool(curve.n_rows[0] < curve.n_features < curve.n_rows[-1])
