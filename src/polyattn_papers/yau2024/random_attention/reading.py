"""Rows read together: the mean over seeds, and the best point of the grid for each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.yau2024.random_attention.cells import CLOSED, HEADS, LAYERS, MILESTONES

DATA = ("n_dims", "n_sequences")
MODEL = ("method", "n_heads", "n_layers")
GRID = ("learning_rate", "batch_size")

# A fit without any error has no logarithm.
SMALLEST = 1e-40


@dataclass(frozen=True)
class Summary:
    """A model on data of one size, over seeds: the mean of log10(error) and its standard error.

    Errors of one model differ by orders of magnitude between seeds; the mean of logarithms is
    not that of the worst seed alone.  ``grid`` is (rate, batch), None for the closed form.
    ``curve``: geometric means of the smallest error within so many steps, as far as all seeds got.
    """

    n_dims: int
    n_sequences: int
    method: str
    n_heads: int | None
    n_layers: int | None
    grid: tuple[float, int] | None
    n_seeds: int
    log_error: float
    standard_error: float
    curve: dict[int, float]

    @property
    def label(self) -> str:
        """The model in words."""
        if self.method == CLOSED:
            return self.method
        if self.method == HEADS:
            return f"linear, {_counted(self.n_heads, 'head')}"
        family = "linear" if self.method == LAYERS else self.method
        return f"{family}, {_counted(self.n_layers, 'layer')}"

    @property
    def error(self) -> float:
        """The geometric mean of the errors."""
        return float(10.0**self.log_error)


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """For all data and models, the point of the grid with the smallest mean of log10(error)."""
    points: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        points[tuple(row[name] for name in (*DATA, *MODEL, *GRID))].append(row)
    best: dict[tuple, Summary] = {}
    for key, same in points.items():
        data_and_model = key[: len(DATA) + len(MODEL)]
        made = _summary(data_and_model, key[len(data_and_model) :], same)
        if data_and_model not in best or made.log_error < best[data_and_model].log_error:
            best[data_and_model] = made
    return list(best.values())


def closed_form(rows: Iterable[Row]) -> list[Row]:
    """The rows of the closed form."""
    return [row for row in rows if row["method"] == CLOSED]


def trained(rows: Iterable[Row]) -> list[Row]:
    """The rows of trained models."""
    return [row for row in rows if row["method"] != CLOSED]


def _summary(data_and_model: tuple, grid: tuple, rows: list[Row]) -> Summary:
    logs = np.log10([max(row["validation_error"], SMALLEST) for row in rows])
    spread = float(np.std(logs, ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
    n_dims, n_sequences, method, n_heads, n_layers = data_and_model
    return Summary(
        n_dims, n_sequences, method, n_heads, n_layers, None if grid[0] is None else grid,
        len(logs), float(np.mean(logs)), spread, _curve(rows),
    )  # fmt: skip


def _curve(rows: list[Row]) -> dict[int, float]:
    found = {}
    for steps in MILESTONES:
        errors = [row[f"after_{steps}"] for row in rows]
        if None not in errors:
            found[steps] = geometric_mean([max(error, SMALLEST) for error in errors])
    return found


def _counted(count: int | None, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
