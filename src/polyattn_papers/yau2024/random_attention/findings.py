"""What came out, in sentences: means over seeds, and the best point of the grid for each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.yau2024.random_attention.cells import (
    CLOSED,
    HEADS,
    LAYERS,
    MILESTONES,
    TRAINED,
    TRANSFORMER,
    WIDTH,
)

DATA = ("n_dims", "n_sequences")
MODEL = ("method", "n_heads", "n_layers")
GRID = ("learning_rate", "batch_size")

# A fit without any error has no logarithm.
SMALLEST = 1e-40


def findings(rows: list[Row]) -> list[str]:
    """The closed form, all models at the largest data of each width, and how they were trained."""
    found = summaries(trained(rows))
    most = max(one.n_sequences for one in found)
    dims = sorted({one.n_dims for one in found})
    largest = [one for one in found if one.n_sequences == most]
    widths = [_of_width([one for one in largest if one.n_dims == n_dims]) for n_dims in dims]
    return [_closed(rows), *widths, _heads(largest), _training(rows), _unfinished(rows)]


@dataclass(frozen=True)
class ModelSummary:
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


def summaries(rows: Iterable[Row]) -> list[ModelSummary]:
    """For all data and models, the point of the grid with the smallest mean of log10(error)."""
    points: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        points[tuple(row[name] for name in (*DATA, *MODEL, *GRID))].append(row)
    best: dict[tuple, ModelSummary] = {}
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


def _closed(rows: list[Row]) -> str:
    fits = closed_form(rows)
    worst = max(row["validation_error"] for row in fits)
    smallest = min(row["validation_error"] for row in trained(rows))
    slowest: dict[int, Row] = {}
    for row in sorted(fits, key=lambda row: row["seconds"]):
        slowest[row["n_dims"]] = row
    times = ", ".join(
        f"{row['seconds']:.2g} s at d = {n_dims} (N = {row['n_sequences']})"
        for n_dims, row in sorted(slowest.items())
    )
    return (
        f"The closed form has a validation error of at most {worst:.1e} on all {len(fits)} data "
        f"sets. On one core, heads included, it took at most {times}{_longer(rows, slowest)}. The "
        f"smallest error of any trained model is {smallest:.1e}."
    )


def _longer(rows: list[Row], slowest: dict[int, Row]) -> str:
    """A remark where the closed form was allowed more time than a training."""
    allowed = min(row["allowed_seconds"] for row in trained(rows))
    longer = [f"d = {n_dims}" for n_dims, row in slowest.items() if row["seconds"] > allowed]
    return (
        f"; at {_list(longer)} that is more than a training had ({allowed:g} s)" if longer else ""
    )


def _of_width(found: list[ModelSummary]) -> str:
    size = found[0]
    errors = "; ".join(f"{one.label}: {one.error:.1e}" for one in found)
    return (
        f"d = {size.n_dims}, N = {size.n_sequences}, geometric means over {size.n_seeds} seeds. "
        f"{errors}."
    )


def _heads(found: list[ModelSummary]) -> str:
    """Whether more heads help, after the same time and after the same number of steps."""
    best = []
    for n_dims in sorted({one.n_dims for one in found}):
        same = [one for one in found if one.n_dims == n_dims and one.method == HEADS]
        most = min(max(one.curve, default=0) for one in same)
        by_time = min(same, key=lambda one: one.log_error).n_heads
        sentence = f"d = {n_dims}: {by_time} after the whole time"
        if most:
            by_steps = min(same, key=lambda one: one.curve[most]).n_heads
            sentence += f", {by_steps} after {most} steps, which all reached"
        best.append(sentence)
    return (
        "The number of heads with the smallest error, single layers at the largest N. "
        f"{'; '.join(best)}. A step with more heads takes longer."
    )


def _training(rows: list[Row]) -> str:
    runs = trained(rows)
    rates, batches, seconds = (
        sorted({row[name] for row in runs})
        for name in ("learning_rate", "batch_size", "allowed_seconds")
    )
    model = next(row for row in runs if row["method"] == TRANSFORMER)
    return (
        "Training: Adam without weight decay (the paper's table says AdamW), rates "
        f"{_list(rates)}, batches {_list(batches)}, {_list(seconds)} s of steps on one core for "
        "each run, looks at the validation error not counted. Everywhere the smallest validation "
        "error of the whole run is taken, and of the grid the best point is shown, in favour of "
        "the trained models. Linear layers take the fastest known form. Transformers have "
        f"{model['n_heads']} heads, width {WIDTH} and learned positions, and see and give numbers "
        "of order one; the paper does not give the size of its own. Points of the picture are "
        "geometric means over seeds, bars one standard error of the mean of logarithms; curves "
        "show the smallest error so far, and end where the first of the seeds was stopped."
    )


def _unfinished(rows: list[Row]) -> str:
    runs = trained(rows)
    shares = ", ".join(
        f"{sum(map(_still_falling, same)):,} of {len(same):,} ({kind})"
        for kind in TRAINED
        if (same := [row for row in runs if row["method"] == kind])
    )
    return (
        f"Training was stopped, not finished: in {shares} runs the smallest error came in the last "
        "tenth of the time. More time would lower those; the closed form has nothing to wait for."
    )


def _still_falling(row: Row) -> bool:
    return bool(row["best_after"] >= 0.9 * row["seconds"])


def _list(items: list) -> str:
    return " and ".join(item if isinstance(item, str) else f"{item:g}" for item in items)


def _summary(data_and_model: tuple, grid: tuple, rows: list[Row]) -> ModelSummary:
    logs = np.log10([max(row["validation_error"], SMALLEST) for row in rows])
    spread = float(np.std(logs, ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
    n_dims, n_sequences, method, n_heads, n_layers = data_and_model
    return ModelSummary(
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
