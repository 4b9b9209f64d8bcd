"""The picture: distances against the smallest eigenvalue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, INK, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.yau2024.associative_memory.cells import NOISE
from polyattn_papers.yau2024.associative_memory.findings import (
    STUCK,
    by_share,
    determined,
    families,
)
from polyattn_papers.yau2024.associative_memory.gates import bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (OTHER, THIRD, FOURTH, OURS, SOFT)


def draw(rows: list[Row]) -> Figure:
    """Distance against the smallest eigenvalue: the closed form (a), Adam by heads (b)."""
    figure = new_figure(7.6, 3.6)
    closed, trained = figure.subplots(1, 2)
    _closed(closed, where(rows, learner="closed form"))
    for colour, (name, group) in zip(COLOURS, families(where(rows, learner="Adam")), strict=False):
        _trained(trained, name, group, colour)
    for axes in (closed, trained):
        axes.set(yscale="log", xlabel="λ_min", ylabel="coefficient distance")
    closed.set_title(f"(a) closed form, noise {NOISE} on targets")
    trained.set_title("(b) Adam, exact targets: medians")
    closed.legend()
    trained.legend(fontsize=8)
    return figure


def _closed(axes: Axes, rows: list[Row]) -> None:
    noisy, other = where(rows, target="noisy"), where(rows, target="another minimiser")
    axes.plot(*_columns(noisy, "distance"), "o", color=OURS, markersize=3, label="fits")
    known = sorted(determined(noisy), key=lambda row: float(row["lambda_min"]))
    axes.plot(*_columns(known, "expected_distance"), color=INK, linewidth=1, label="expected")
    bounds = [bound(row) for row in known]
    axes.plot([row["lambda_min"] for row in known], bounds, ":", color=SOFT, label="√(risk/λ_min)")
    if other:
        axes.plot(
            *_columns(other, "distance"), "o", color=OTHER, fillstyle="none",
            label="another minimiser",
        )  # fmt: skip


def _trained(axes: Axes, name: str, rows: list[Row], colour: str) -> None:
    arrived = [row for row in rows if row["risk"] <= STUCK]
    axes.plot(*_columns(arrived, "distance"), ".", color=colour, alpha=0.35, markersize=4)
    groups = [group for _, group in by_share(arrived)]
    places = [median(group, "lambda_min") for group in groups]
    axes.plot(places, [median(g, "distance") for g in groups], "o-", color=colour, label=name)


def _columns(rows: list[Row], column: str) -> tuple[list[float], list[float]]:
    return [row["lambda_min"] for row in rows], [row[column] for row in rows]
