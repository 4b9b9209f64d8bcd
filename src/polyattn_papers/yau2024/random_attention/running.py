"""One cell: make the data, then fit or train, on one core."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from polyattn.model import coefficient_distance
from polyattn_papers.recovery import RecoverySettings, RecoveryTask, make_task, recover
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.yau2024.random_attention.cells import (
    CLOSED,
    LAYERS,
    MILESTONES,
    TRANSFORMER,
)

if TYPE_CHECKING:
    from polyattn_papers.baselines.descent import Baseline

N_VALIDATION = 128

# A look costs a Transformer as much as several steps, and there are many runs.
LOOK_GROWTH = 1.3

#: Width of the Transformer's tokens; its perceptrons are four times as wide.
WIDTH = 32


def run(settings: Settings) -> list[Row]:
    """The one row of a cell."""
    sizes = {name: settings[name] for name in ("n_dims", "n_sequences", "n_tokens", "seed")}
    task = make_task(RecoverySettings(n_validation=N_VALIDATION, **sizes))
    if settings["method"] == CLOSED:
        return [_closed_form(task)]
    return [_trained(task, settings)]


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
    from polyattn_papers.baselines.descent import DescentSettings, Examples, Limit, descend
    from polyattn_papers.baselines.linear import LinearHeads
    from polyattn_papers.baselines.threads import n_threads

    with n_threads(1):
        made = descend(
            new_model(task, settings),
            Examples(task.X, task.Y),
            Examples(task.X_validation, task.Y_validation),
            Limit(settings["allowed_seconds"]),
            DescentSettings(
                settings["learning_rate"], settings["batch_size"], seed=settings["seed"]
            ),
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
