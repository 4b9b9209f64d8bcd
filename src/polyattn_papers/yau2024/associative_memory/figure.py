"""The picture: distances against the smallest eigenvalue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, INK, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.yau2024.associative_memory.cells import EXACT, N_KEYS, NOISE, NOISY, PRINTED
from polyattn_papers.yau2024.associative_memory.findings import (
    PAPER_AXIS,
    STUCK,
    by_share,
    determined,
    families,
    of_size,
)
from polyattn_papers.yau2024.associative_memory.gates import bound
from polyattn_papers.yau2024.associative_memory.without_own_token import best_layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (OTHER, THIRD, FOURTH, OURS, SOFT)


def draw(rows: list[Row]) -> Figure:
    """Distance against the smallest eigenvalue: closed form (a, twice), Adam by heads (b)."""
    figure = new_figure(11.2, 3.6)
    printed, closed, trained = figure.subplots(1, 3)
    sized = of_size(where(rows, learner="closed form"))
    _printed(printed, determined(where(sized, target=PRINTED)), where(sized, target=EXACT))
    _closed(closed, sized)
    for colour, (name, group) in zip(COLOURS, families(where(rows, learner="Adam")), strict=False):
        _trained(trained, name, group, colour)
    for axes in (closed, trained):
        axes.set(yscale="log", xlabel="λ_min", ylabel="coefficient distance")
    printed.set_title("(a) closed form, targets of (14)")
    closed.set_title(f"(a) targets of (5), noise {NOISE}")
    trained.set_title("(b) Adam, targets of (5): medians")
    for axes in (printed, closed, trained):
        axes.legend(fontsize=8)
    return figure


def _printed(axes: Axes, rows: list[Row], exact: list[Row]) -> None:
    """As the paper draws it: linear in the distance, over powers of two."""
    shares = sorted({row["unitary"] for row in rows})
    groups = [where(rows, unitary=share) for share in shares]
    places = [median(group, "lambda_min") for group in groups]
    best = [best_layer(N_KEYS, share).distance for share in shares]
    known = determined(exact)
    axes.axvspan(*PAPER_AXIS, color=SOFT, alpha=0.15, label="the paper's axis")
    axes.plot(*_columns(rows, "distance"), "o", color=OURS, markersize=3, label="fits to (14)")
    axes.plot(places, [median(group, "distance") for group in groups], color=OURS, linewidth=0.9)
    axes.plot(places, best, "--", color=INK, linewidth=1, label="best layer, population")
    axes.plot(*_columns(known, "distance"), "_", color=OTHER, label="fits to (5), no noise")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="λ_min", ylabel="coefficient distance")


def _closed(axes: Axes, rows: list[Row]) -> None:
    noisy, other = where(rows, target=NOISY), where(rows, target="another minimiser")
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
