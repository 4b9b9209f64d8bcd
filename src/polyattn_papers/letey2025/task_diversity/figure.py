"""The picture: error over tasks and over prompts, and how it nears its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyattn.report.figures import OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.letey2025.limit import limit_error
from polyattn_papers.letey2025.task_diversity.cells import KAPPA, RHO, TAU, task_covariances
from polyattn_papers.letey2025.task_diversity.findings import average, excess, points, tests
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (OURS, OTHER, THIRD)


def draw(rows: list[Row]) -> Figure:
    """Points with their errors; solid: theory for this d; dashed: the limit for d -> infinity."""
    figure = new_figure(7.6, 5.6)
    diversity, prompts, sizes, ratios = figure.subplots(2, 2).flat
    largest = max(row["n_dims"] for row in rows)
    last = where(rows, n_dims=largest)
    kappa = max(row["kappa"] for row in where(rows, tau=TAU))
    for colour, name in zip(COLOURS, tests(last), strict=False):
        _over(diversity, where(last, tau=TAU, test=name), "kappa", colour, name)
        _over(prompts, where(last, kappa=KAPPA, test=name), "tau", colour, name)
        _sizes(sizes, where(rows, tau=TAU, kappa=kappa, test=name), colour)
        _ratios(ratios, where(rows, test=name), colour)
    diversity.set_title(f"(a) diversity of tasks, d = {largest}, τ = {TAU:g}")
    diversity.legend(fontsize=8)
    prompts.set_title(f"(b) number of prompts, d = {largest}, κ = {KAPPA:g}")
    prompts.set_yscale("log")
    sizes.set_title(f"(c) nearing the limit, τ = {TAU:g}, κ = {kappa:g}")
    sizes.set(xlabel="1/d; squares: the limit", ylabel="error on new tasks")
    ratios.set_title("(d) measured error over theory for its d")
    ratios.set(xlabel="theory", ylabel="ratio", xscale="log")
    return figure


def _over(axes: Axes, rows: list[Row], over: str, colour: str, label: str) -> None:
    """One curve over kappa or tau, on a logarithmic axis."""
    if not rows:
        return
    places = sorted({row[over] for row in rows})
    groups = [where(rows, **{over: place}) for place in places]
    found, errors = zip(*(average(group, "error") for group in groups), strict=True)
    axes.errorbar(places, found, errors, fmt="o", color=colour, label=label)
    fine = np.geomspace(places[0], places[-1], 60)
    covariances, at = task_covariances(rows[0]["n_dims"]), rows[0]
    # At tau = 1 there is no limit, and curves end on both sides.
    for low, high in ((0.0, 1.0), (1.0, np.inf)) if over == "tau" else ((0.0, np.inf),):
        within = [group for group in groups if low < group[0][over] < high]
        expected = [mean(group, "expected") for group in within]
        axes.plot([group[0][over] for group in within], expected, color=colour, linewidth=1)
        side = fine[(fine > low) & (fine < high)]
        limits = [
            limit_error(
                covariances["aligned"], covariances[at["test"]],
                **({"tau": at["tau"], "kappa": at["kappa"]} | {over: float(place)}),
                alpha=at["alpha"], rho=RHO,
            )
            for place in side
        ]  # fmt: skip
        axes.plot(side, limits, "--", color=colour, linewidth=1)
    letter = {"kappa": "tasks κ = k/d", "tau": "prompts τ = n/d²"}[over]
    axes.set(xscale="log", xlabel=letter, ylabel="error on new tasks")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def _ratios(axes: Axes, rows: list[Row], colour: str) -> None:
    """Errors of all points and sizes beside the theory for their d."""
    groups = [group for _, group in points(rows)]
    expected = np.array([mean(group, "expected") for group in groups])
    found, errors = np.array([excess(group) for group in groups]).T
    axes.errorbar(expected, 1 + found, errors, fmt=".", color=colour)


def _sizes(axes: Axes, rows: list[Row], colour: str) -> None:
    """Errors over 1/d: they meet the limit at zero."""
    sizes = sorted({row["n_dims"] for row in rows})
    groups = [where(rows, n_dims=d) for d in sizes]
    if not groups:
        return
    found, errors = zip(*(average(group, "error") for group in groups), strict=True)
    inverse = [1 / d for d in sizes]
    axes.errorbar(inverse, found, errors, fmt="o", color=colour)
    axes.plot(inverse, [mean(group, "expected") for group in groups], color=colour, linewidth=1)
    axes.plot([0.0], [groups[-1][0]["limit"]], "s", color=colour, markerfacecolor="none")
    axes.axvline(0.0, color=SOFT, linewidth=0.6)
