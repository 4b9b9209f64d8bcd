"""What is run: which data, which models, which settings, for how many epochs; and one cell.

A cell trains all seeds and rates of its models side by side, and has a row for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from polyattn.model import LinearAttention, coefficient_distance
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.recovery import RecoveryTask, recover
from polyattn_papers.yau2024.random_attention.task import paper_task

if TYPE_CHECKING:
    from polyattn_papers.baselines.train_epochs import ModelGrid

CLOSED, HEADS, LAYERS, TRANSFORMER = "closed form", "heads", "layers", "Transformer"
TIMES = "time of a step"

#: The kinds of trained models.
TRAINED = (HEADS, LAYERS, TRANSFORMER)

#: Epochs after which errors are noted, as far as a model is trained.
MILESTONES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 100, 150, 200, 300, 400, 500)

#: The paper's numbers of heads of a single layer, and its learning rates.
N_HEADS, RATES = (1, 2, 4, 8, 16), (0.01, 0.001)

N_TOKENS = 100
N_VALIDATION = 128
SEEDS = (0, 1, 2)

#: Width and heads of the Transformer; its perceptrons are four times as wide.
WIDTH, TRANSFORMER_HEADS = 16, 2

#: The weight decay that AdamW has in torch unless another one is given.
DECAY = 0.01


@dataclass(frozen=True)
class TrainingGrid:
    """``models`` (method, layers, epochs, sequences, decay) are run for all dims and batches.

    ``closed`` are sizes (d, N) of the closed form.
    """

    closed: tuple[tuple[int, int], ...]
    dims: tuple[int, ...]
    models: tuple[tuple[str, int, int, int, float], ...]
    n_rates: int
    batches: tuple[int, ...]


PLANS = {
    "smoke": TrainingGrid(
        closed=((2, 512), (4, 512)),
        dims=(2, 4),
        models=((HEADS, 1, 60, 512, 0.0), (LAYERS, 2, 10, 512, 0.0), (TRANSFORMER, 1, 3, 512, 0.0)),
        n_rates=1,
        batches=(32,),
    ),
    "full": TrainingGrid(
        closed=(*product((2, 4), (1024, 2048)), (8, 2048), (16, 2048)),
        dims=(2, 4),
        models=(
            (HEADS, 1, 500, 2048, 0.0),
            (HEADS, 1, 500, 1024, 0.0),
            (LAYERS, 2, 500, 2048, 0.0),
            (LAYERS, 4, 40, 2048, 0.0),
            (TRANSFORMER, 1, 10, 2048, 0.0),
            (HEADS, 1, 100, 1024, DECAY),
        ),
        n_rates=2,
        batches=(32, 64),
    ),
}

#: What determines a cell; the first ``n_rates`` of the rates are used.
NAMES = (
    "method", "n_dims", "n_sequences", "n_tokens", "n_layers", "n_epochs", "batch_size", "n_rates",
    "weight_decay",
)  # fmt: skip


def cells(profile: str) -> list[Settings]:
    """One cell for each data size of the closed form, and of each model and batch size."""
    plan = PLANS[profile]
    return [
        *(_cell(CLOSED, d, count) for d, count in plan.closed),
        *(_cell(TIMES, d) for d in plan.dims),
        *_trainings(plan),
    ]


def run(settings: Settings) -> list[Row]:
    """A row for each seed, and for each model and rate that is trained on it."""
    if settings["method"] == TIMES:
        return _times(settings)
    sizes = {name: settings[name] for name in ("n_dims", "n_sequences", "n_tokens")}
    tasks = [paper_task(**sizes, seed=seed, n_validation=N_VALIDATION) for seed in SEEDS]
    if settings["method"] == CLOSED:
        return [_closed_form(seed, task) for seed, task in zip(SEEDS, tasks, strict=True)]
    return _trained(tasks, settings)


def _trainings(plan: TrainingGrid) -> Iterator[Settings]:
    for model, d, batch in product(plan.models, plan.dims, plan.batches):
        method, n_layers, n_epochs, count, decay = model
        yield _cell(method, d, count, n_layers, n_epochs, batch, plan.n_rates, decay)


def _cell(
    method: str, n_dims: int, n_sequences: int | None = None, n_layers: int | None = None,
    n_epochs: int | None = None, batch_size: int | None = None, n_rates: int | None = None,
    weight_decay: float | None = None,
) -> Settings:  # fmt: skip
    training = (n_layers, n_epochs, batch_size, n_rates, weight_decay)
    values = (method, n_dims, n_sequences, N_TOKENS, *training)
    return dict(zip(NAMES, values, strict=True))


def _closed_form(seed: int, task: RecoveryTask) -> Row:
    with threadpool_limits(1):
        found = recover(task)
    return _row(
        seed=seed, validation_error=found.validation_error, target_power=found.target_power,
        seconds=found.fit_seconds + found.heads_seconds, distance=found.distance,
        heads_found=found.n_heads, verdict=found.certificate.verdict,
    )  # fmt: skip


def _trained(tasks: Sequence[RecoveryTask], settings: Settings) -> list[Row]:
    from polyattn_papers.baselines.model_grids import HeadGrid
    from polyattn_papers.baselines.train_epochs import (
        EpochSettings,
        SeededSequences,
        train_epochs,
    )

    rates, n_epochs = RATES[: settings["n_rates"]], settings["n_epochs"]
    looks = (*(one for one in MILESTONES if one < n_epochs), n_epochs)
    grid = new_grid(tasks, settings)
    made = train_epochs(
        grid,
        SeededSequences(np.stack([t.X for t in tasks]), np.stack([t.Y for t in tasks])),
        SeededSequences(
            np.stack([t.X_validation for t in tasks]), np.stack([t.Y_validation for t in tasks])
        ),
        EpochSettings(rates, settings["batch_size"], looks, settings["weight_decay"]),
    )
    sizes = N_HEADS if isinstance(grid, HeadGrid) else (heads_of(settings["method"]),)
    errors = made.errors.reshape(len(looks), len(tasks), len(rates), len(sizes))
    rows = []
    for s, r, m in product(range(len(tasks)), range(len(rates)), range(len(sizes))):
        layer = grid.layer(s, r, m) if isinstance(grid, HeadGrid) else None
        rows.append(_row(
            seed=SEEDS[s], n_heads=sizes[m], learning_rate=rates[r], n_steps=made.n_steps,
            seconds=made.seconds, target_power=float(np.mean(tasks[s].Y_validation ** 2)),
            distance=None if layer is None else _distance(layer, tasks[s].layer),
            **_errors(looks, errors[:, s, r, m]),
        ))  # fmt: skip
    return rows


def heads_of(method: str) -> int:
    """Heads of each layer of a stack or a Transformer."""
    return TRANSFORMER_HEADS if method == TRANSFORMER else 1


def new_grid(tasks: Sequence[RecoveryTask], settings: Settings) -> ModelGrid:
    """The models of a cell as they start: a start for each seed, the same for all rates."""
    from polyattn_papers.baselines.model_grids import HeadGrid, StackGrid, TransformerGrid

    d, n_rates, n_layers = settings["n_dims"], settings["n_rates"], settings["n_layers"]
    if settings["method"] == HEADS:
        return HeadGrid(d, N_HEADS, SEEDS, n_rates)
    if settings["method"] == LAYERS:
        return StackGrid(d, n_layers, SEEDS, n_rates)
    units = [
        (float(np.sqrt(np.mean(t.X**2))), float(np.sqrt(np.mean(t.Y**2)))) for t in tasks
    ]  # fmt: skip
    return TransformerGrid(
        d, settings["n_tokens"], TRANSFORMER_HEADS, n_layers, WIDTH, SEEDS, n_rates, units
    )


def _times(settings: Settings) -> list[Row]:
    """What one step of a single layer takes by itself, by scores and by features of the tokens."""
    from polyattn_papers.baselines.step_times import FEATURES, SCORES, step_time

    sizes = (settings["n_dims"], settings["n_tokens"])
    return [
        _row(
            n_heads=n_heads,
            scores_ms=1e3 * step_time(SCORES, *sizes, n_heads),
            features_ms=1e3 * step_time(FEATURES, *sizes, n_heads),
        )
        for n_heads in N_HEADS
    ]


def _distance(layer: LinearAttention, truth: LinearAttention) -> float | None:
    found = coefficient_distance(layer, truth)
    return found if np.isfinite(found) else None


def _errors(looks: Sequence[int], errors: NDArray) -> dict[str, Any]:
    """The error after each milestone, and the smallest; None where it is not finite."""
    kept = {
        f"epoch_{look}": float(error) if np.isfinite(error) else None
        for look, error in zip(looks, errors, strict=True)
    }
    finite = [error for error in kept.values() if error is not None]
    return {"validation_error": min(finite, default=None)} | kept


def _row(**values: Any) -> Row:
    """All columns, in one order; None where there is no value."""
    return dict.fromkeys(COLUMNS) | values


#: What a row has beside its settings.
COLUMNS = (
    "seed", "n_heads", "learning_rate", "validation_error", "target_power", "seconds", "n_steps",
    "distance", "heads_found", "verdict", "scores_ms", "features_ms",
    *(f"epoch_{epoch}" for epoch in MILESTONES),
)  # fmt: skip
