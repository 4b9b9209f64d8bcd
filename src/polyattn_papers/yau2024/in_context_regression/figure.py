"""The picture: distances, steps, risks and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyattn.report.figures import FOURTH, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean
from polyattn_papers.tasks.in_context import optimum_of
from polyattn_papers.yau2024.in_context_regression.findings import by_size, gains, largest, tasks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (OURS, OTHER, THIRD, FOURTH)


def draw(rows: list[Row]) -> Figure:
    """Distance against N with its slope; the step in each direction; errors of four predictors."""
    figure = new_figure(7.6, 5.6)
    distance, step, risks, heads = figure.subplots(2, 2).flat
    for colour, (name, group) in zip(COLOURS, tasks(rows), strict=False):
        _distances(distance, name, group, colour)
        _steps(step, largest(group), colour)
        _heads(heads, group, colour)
    _risks(risks, rows)
    for axes in (distance, heads):
        axes.set(xlabel="sequences N", ylabel="relative distance")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
    distance.set_title("(a) coefficients; lines: expected")
    distance.legend(fontsize=8)
    step.set(xlabel="variance of inputs in the direction", ylabel="n × step")
    step.set_title("(b) preconditioner; curves: theory")
    heads.set_title("(d) all heads (solid), one head (dashed)")
    return figure


def _distances(axes: Axes, name: str, group: list[Row], colour: str) -> None:
    axes.plot(*by_size(group, "distance"), "o", color=colour, label=name)
    axes.plot(*by_size(group, "expected_distance"), color=colour, linewidth=1)


def _steps(axes: Axes, last: list[Row], colour: str) -> None:
    optimum = optimum_of(last[0])
    n = optimum.n_examples
    spread = (np.trace(optimum.covariance) + optimum.noise**2) / n
    variances = np.linspace(0.2, 2.1, 60)
    axes.plot(variances, 1 / ((1 + 1 / n) * variances + spread), color=colour, linewidth=1)
    axes.plot(np.linalg.eigvalsh(optimum.covariance)[::-1], gains(last), "o", color=colour)


def _risks(axes: Axes, rows: list[Row]) -> None:
    """Four bars for each task: the fit, the theory's formula, the plain step, Bayes."""
    groups = [largest(group) for _, group in tasks(rows)]
    bars = {
        "fit": (OURS, [mean(g, "theory_fresh") + mean(g, "excess") for g in groups]),
        "theory": (SOFT, [g[0]["theory_risk"] for g in groups]),
        "plain step": (OTHER, [mean(g, "plain_fresh") for g in groups]),
        "Bayes": (THIRD, [mean(g, "bayes_fresh") for g in groups]),
    }
    for place, (label, (colour, heights)) in enumerate(bars.items()):
        axes.bar(np.arange(len(groups)) + 0.2 * place, heights, 0.19, color=colour, label=label)
    names = [name.replace(", ", "\n") for name, _ in tasks(rows)]
    axes.set_xticks(np.arange(len(groups)) + 0.3, names, fontsize=8)
    axes.set(ylabel="squared error, fresh")
    axes.margins(y=0.35)
    axes.legend(ncols=2, loc="upper left")
    axes.set_title("(c) risks at the largest N")


def _heads(axes: Axes, group: list[Row], colour: str) -> None:
    axes.plot(*by_size(group, "distance"), "o-", color=colour, linewidth=1)
    axes.plot(*by_size(group, "one_head_distance"), "s--", color=colour, linewidth=1)
