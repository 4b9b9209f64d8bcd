"""The page of a forecast: what it says, how errors grow, and the tokens that follow."""

from __future__ import annotations

import numpy as np

from polyattn.fitting.forecasting.result import Forecast
from polyattn.report.figures import OTHER, OURS, SOFT, PlotAxes, log_ticks
from polyattn.report.page import Section, described, plot, statement

# So many coordinates of one sequence are drawn, and so many sequences in the picture of errors.
MOST_COORDINATES, MOST_SEQUENCES = 6, 20


def forecast_page(ahead: Forecast, *_: object) -> list[Section]:
    """The outcome, how errors grow, the first sequence, and figures of some sequences."""
    pictures = []
    made = int(ahead.n_done.max())
    if made:
        caption = (
            "By which factor an error of the newest token has grown, and what the errors of the "
            "layer add up to, in standard deviations; dashed: the tolerance."
        )
        pictures = [
            plot(lambda axes: draw_errors(axes, ahead), "Errors over steps", caption),
            plot(lambda axes: draw_values(axes, ahead), "The first sequence that went on", ""),
        ]
    lines = list(ahead.describe().lines)
    return [
        described("What follows", ahead, pictures=pictures),
        statement("Sequence by sequence", lines=lines),
    ]


def draw_errors(axes: PlotAxes, ahead: Forecast) -> None:
    """Growth and expected errors of some sequences, on a logarithmic axis."""
    axes.set(yscale="log", xlabel="step", ylabel="factor, standard deviations")
    curves = [("growth", SOFT, ahead.growth)]
    if ahead.one_step_error:
        curves.append(("expected error", OURS, ahead.expected_error))
        axes.axhline(ahead.tolerance, color=OTHER, linestyle="--", linewidth=1)
    for name, colour, numbers in curves:
        for i in range(min(ahead.n_sequences, MOST_SEQUENCES)):
            own = numbers[i, : ahead.n_done[i]]
            label = name if i == 0 else None
            axes.plot(np.arange(1, len(own) + 1), own, color=colour, linewidth=1, label=label)
    log_ticks(axes.yaxis)
    axes.legend(loc="best")


def draw_values(axes: PlotAxes, ahead: Forecast) -> None:
    """The coordinates of the first sequence that made a step."""
    which = int(np.argmax(ahead.n_done > 0))
    first = int(ahead.n_done[:which].sum())
    values = ahead.flat_values[first : first + ahead.n_done[which]]
    axes.set(xlabel="step", ylabel="token")
    for j in range(min(values.shape[1], MOST_COORDINATES)):
        axes.plot(np.arange(1, len(values) + 1), values[:, j], label=f"coordinate {j}")
    axes.legend(loc="best")
