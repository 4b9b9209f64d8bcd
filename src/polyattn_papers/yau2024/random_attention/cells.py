"""What is run: which data, which models, which settings, for how long; and one cell."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from polyattn.model import coefficient_distance
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.recovery import RecoverySettings, RecoveryTask, make_task, recover

if TYPE_CHECKING:
    from polyattn_papers.baselines.train_validated import Baseline

CLOSED, HEADS, LAYERS, TRANSFORMER = "closed form", "heads", "layers", "Transformer"

#: The kinds of trained models.
TRAINED = (HEADS, LAYERS, TRANSFORMER)

#: Settings of a training; the closed form has none.
TRAINING = ("n_heads", "n_layers", "learning_rate", "batch_size", "allowed_seconds")

#: Numbers of steps after which the smallest error so far is noted: the curves of training.
MILESTONES = (10, 30, 100, 300, 1000, 3000, 10000)

N_TOKENS = 100
N_VALIDATION = 128
SEEDS = (0, 1, 2)

# A look costs a Transformer as much as several steps, and there are many runs.
LOOK_GROWTH = 1.3

#: Width of the Transformer's tokens; its perceptrons are four times as wide.
WIDTH = 32


@dataclass(frozen=True)
class TrainingGrid:
    """All combinations of these are run; ``models`` are (method, heads, layers)."""

    dims: tuple[int, ...]
    sequences: tuple[int, ...]
    models: tuple[tuple[str, int, int], ...]
    rates: tuple[float, ...]
    batches: tuple[int, ...]
    seconds: float


PLANS = {
    "smoke": TrainingGrid(
        dims=(2, 4),
        sequences=(512, 2048),
        models=((HEADS, 1, 1), (HEADS, 16, 1), (LAYERS, 1, 2), (TRANSFORMER, 4, 1)),
        rates=(0.01,),
        batches=(32,),
        seconds=0.35,
    ),
    # 1296 trainings; with data and looks at the validation error about 50 minutes on two cores.
    "full": TrainingGrid(
        dims=(2, 4, 8, 16),
        sequences=(512, 1024, 2048),
        models=(
            *((HEADS, n_heads, 1) for n_heads in (1, 2, 4, 8, 16)),
            *((LAYERS, 1, n_layers) for n_layers in (2, 4)),
            *((TRANSFORMER, 4, n_layers) for n_layers in (1, 2)),
        ),
        rates=(0.01, 0.001),
        batches=(32, 64),
        seconds=4.0,
    ),
}


def cells(profile: str) -> list[Settings]:
    """One cell per data set for the closed form, and one per training."""
    plan = PLANS[profile]
    data = [
        {"n_dims": n_dims, "n_sequences": n_sequences, "n_tokens": N_TOKENS, "seed": seed}
        for n_dims, n_sequences, seed in product(plan.dims, plan.sequences, SEEDS)
    ]
    closed = {"method": CLOSED} | dict.fromkeys(TRAINING)
    return [one | closed for one in data] + [
        one | training for one in data for training in _trainings(plan)
    ]


def run(settings: Settings) -> list[Row]:
    """The one row of a cell."""
    sizes = {name: settings[name] for name in ("n_dims", "n_sequences", "n_tokens", "seed")}
    task = make_task(RecoverySettings(n_validation=N_VALIDATION, **sizes))
    if settings["method"] == CLOSED:
        return [_closed_form(task)]
    return [_trained(task, settings)]


def _trainings(plan: TrainingGrid) -> Iterator[Settings]:
    for model, rate, batch in product(plan.models, plan.rates, plan.batches):
        method, n_heads, n_layers = model
        values = (n_heads, n_layers, rate, batch, plan.seconds)
        yield {"method": method} | dict(zip(TRAINING, values, strict=True))


def _closed_form(task: RecoveryTask) -> Row:
    with threadpool_limits(1):
        found = recover(task)
    return _row(
        task,
        found.validation_error,
        seconds=found.fit_seconds + found.heads_seconds,
        distance=found.distance,
        heads_found=found.n_heads,
        verdict=found.certificate.verdict,
    )


def _trained(task: RecoveryTask, settings: Settings) -> Row:
    from polyattn_papers.baselines.linear import LinearHeads
    from polyattn_papers.baselines.threads import n_threads
    from polyattn_papers.baselines.train import Limit
    from polyattn_papers.baselines.train_validated import (
        AdamSettings,
        LabelledSequences,
        train_validated,
    )

    with n_threads(1):
        made = train_validated(
            new_model(task, settings),
            LabelledSequences(task.X, task.Y),
            LabelledSequences(task.X_validation, task.Y_validation),
            Limit(settings["allowed_seconds"]),
            AdamSettings(settings["learning_rate"], settings["batch_size"], seed=settings["seed"]),
            clock=time.thread_time,
            look_growth=LOOK_GROWTH,
        )
    best = made.best_model
    # Only a single layer has coefficients to compare.
    layer = best.as_layer() if isinstance(best, LinearHeads) else None
    return _row(
        task,
        made.best_error,
        seconds=made.seconds[-1],
        best_after=made.best_seconds,
        n_steps=made.n_steps,
        curve=[made.best_within(steps) for steps in MILESTONES],
        distance=None if layer is None else coefficient_distance(layer, task.layer),
    )


def new_model(task: RecoveryTask, settings: Settings) -> Baseline:
    """The model of a cell as it starts."""
    from polyattn_papers.baselines.linear import LinearHeads, LinearStack, generator_of
    from polyattn_papers.baselines.transformer import Transformer

    d, e, n_tokens = task.layer.n_dims, task.layer.n_outputs, settings["n_tokens"]
    n_heads, n_layers, seed = settings["n_heads"], settings["n_layers"], settings["seed"]
    if settings["method"] == TRANSFORMER:
        units = (float(np.sqrt(np.mean(np.square(part)))) for part in (task.X, task.Y))
        return Transformer(d, e, n_tokens, n_heads, n_layers, WIDTH, seed, *units)
    if settings["method"] == LAYERS:
        return LinearStack(d, e, n_heads, n_layers, generator_of(seed))
    return LinearHeads(d, e, n_heads, generator_of(seed))


def _row(
    task: RecoveryTask,
    validation_error: float,
    seconds: float,
    best_after: float | None = None,
    n_steps: int | None = None,
    curve: Sequence[float | None] = (None,) * len(MILESTONES),
    distance: float | None = None,
    heads_found: int | None = None,
    verdict: str | None = None,
) -> Row:
    return {
        "validation_error": validation_error,
        "target_power": float(np.square(task.Y_validation).sum(-1).mean()),
        "seconds": seconds,
        "best_after": best_after,
        "n_steps": n_steps,
        "distance": distance,
        "heads_found": heads_found,
        "verdict": verdict,
    } | {f"after_{steps}": error for steps, error in zip(MILESTONES, curve, strict=True)}
