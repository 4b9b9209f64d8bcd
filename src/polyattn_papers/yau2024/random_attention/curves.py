"""Curves of training: means over seeds, at each point of the grid, and when they reach a level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.yau2024.random_attention.cells import (
    CLOSED,
    HEADS,
    LAYERS,
    MILESTONES,
    TRAINED,
)

DATA = ("n_dims", "n_sequences")
MODEL = ("method", "n_heads", "n_layers", "weight_decay")
GRID = ("learning_rate", "batch_size")

# A fit without any error has no logarithm; nor has a training that ran away.
SMALLEST, LARGEST = 1e-40, 1e10

# The share of the mean target power to which training is followed: heads differ before the floor of
# float32 and the unsteadiness of a constant rate at the end.
FOLLOWED = 1e-4


@dataclass(frozen=True)
class ModelSummary:
    """A model on data of one size, over seeds, at one point (rate, batch) of the grid.

    ``log_error`` is the mean over seeds of log10 of the smallest error, ``curve`` the mean of
    log10(error) after so many epochs with its standard error.  Errors of one model differ by orders
    of magnitude between seeds; the mean of logarithms is not that of the worst seed alone.
    """

    n_dims: int
    n_sequences: int
    method: str
    n_heads: int | None
    n_layers: int | None
    weight_decay: float | None
    grid: tuple[float, int] | None
    n_seeds: int
    log_error: float
    curve: dict[int, tuple[float, float]] = field(repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """(d, N)."""
        return self.n_dims, self.n_sequences

    @property
    def label(self) -> str:
        """The model in words."""
        if self.method == CLOSED:
            return self.method
        if self.method == HEADS:
            return f"linear, {counted(self.n_heads, 'head')}"
        family = "linear" if self.method == LAYERS else self.method
        return f"{family}, {counted(self.n_layers, 'layer')}"

    @property
    def error(self) -> float:
        """The geometric mean of the errors."""
        return float(10.0**self.log_error)


def summaries(rows: Iterable[Row]) -> list[ModelSummary]:
    """For all data and models, the point of the grid with the smallest mean of log10(error)."""
    best: dict[tuple, ModelSummary] = {}
    for made in grid_points(rows):
        key = (*made.size, made.method, made.n_heads, made.n_layers, made.weight_decay)
        if key not in best or made.log_error < best[key].log_error:
            best[key] = made
    return list(best.values())


def grid_points(rows: Iterable[Row]) -> list[ModelSummary]:
    """For all data, models and points of the grid, the summary over seeds."""
    points: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        points[tuple(row[name] for name in (*DATA, *MODEL, *GRID))].append(row)
    found = []
    for (d, count, method, heads, layers, decay, rate, batch), same in points.items():
        mean = float(np.mean([log10(row["validation_error"]) for row in same]))
        grid = None if rate is None else (rate, batch)
        found.append(
            ModelSummary(
                d, count, method, heads, layers, decay, grid, len(same), mean, _curve(same)
            )
        )
    return found


def closed_form(rows: Iterable[Row]) -> list[Row]:
    """The rows of the closed form."""
    return where(rows, method=CLOSED)


def trained(rows: Iterable[Row]) -> list[Row]:
    """The rows of trained models."""
    return [row for row in rows if row["method"] in TRAINED]


def by_heads(
    rows: Iterable[Row], n_dims: int, n_sequences: int, weight_decay: float = 0.0
) -> dict[tuple, list[ModelSummary]]:
    """Single layers at each point of the grid, in order of their heads."""
    layers = where(
        trained(rows), method=HEADS, n_dims=n_dims, n_sequences=n_sequences,
        weight_decay=weight_decay,
    )  # fmt: skip
    found: dict[tuple, list[ModelSummary]] = defaultdict(list)
    for one in sorted(grid_points(layers), key=lambda one: one.n_heads or 0):
        found[one.grid or ()].append(one)
    return dict(found)


def common_point(rows: Iterable[Row], n_dims: int, n_sequences: int) -> tuple[float, int]:
    """The point of the grid (rate, batch) at which the most heads have the smallest error."""
    points = by_heads(rows, n_dims, n_sequences)
    rate, batch = min(points, key=lambda point: points[point][-1].log_error)
    return rate, batch


def epochs_by_heads(rows: list[Row], n_dims: int, n_sequences: int) -> dict[tuple, dict]:
    """At each point of the grid, epochs until an error of ``FOLLOWED`` by number of heads."""
    same = where(trained(rows), n_dims=n_dims, n_sequences=n_sequences)
    level = float(np.mean([log10(row["target_power"]) for row in same]) + np.log10(FOLLOWED))
    return {
        point: {one.n_heads: epochs_until(one, level) for one in layers}
        for point, layers in by_heads(rows, n_dims, n_sequences).items()
    }


def epochs_until(one: ModelSummary, log_level: float) -> float:
    """When the mean of log10(error) first falls to a level, between looks; infinity if never.

    Between looks the logarithm of the error is taken as linear in that of the epochs.
    """
    before: tuple[float, float] | None = None
    for epoch, (log_error, _) in one.curve.items():
        at = float(np.log(epoch))
        if log_error <= log_level:
            if before is None:
                return float(epoch)
            share = (before[1] - log_level) / (before[1] - log_error)
            return float(np.exp(before[0] + share * (at - before[0])))
        before = at, log_error
    return float("inf")


def log10(error: float | None) -> float:
    """The logarithm of an error, within what can be shown; None is a training that ran away."""
    return float(np.log10(np.clip(LARGEST if error is None else error, SMALLEST, LARGEST)))


def counted(count: int | None, word: str) -> str:
    """A number with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _curve(rows: list[Row]) -> dict[int, tuple[float, float]]:
    """The mean of log10(error) over seeds after each epoch, and its standard error."""
    found = {}
    for epoch in MILESTONES:
        if rows[0]["n_epochs"] is not None and epoch <= rows[0]["n_epochs"]:
            logs = [log10(row[f"epoch_{epoch}"]) for row in rows]
            spread = float(np.std(logs, ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
            found[epoch] = float(np.mean(logs)), spread
    return found
