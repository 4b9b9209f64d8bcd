"""Which data, which models, which settings, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from polyattn_papers.reproduction.experiment import Settings

CLOSED, HEADS, LAYERS, TRANSFORMER = "closed form", "heads", "layers", "Transformer"

#: The kinds of trained models.
TRAINED = (HEADS, LAYERS, TRANSFORMER)

#: Settings of a training; the closed form has none.
TRAINING = ("n_heads", "n_layers", "learning_rate", "batch_size", "allowed_seconds")

#: Numbers of steps after which the smallest error so far is noted: the curves of training.
MILESTONES = (10, 30, 100, 300, 1000, 3000, 10000)

N_TOKENS = 100
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Plan:
    """All combinations of these are run; ``models`` are (method, heads, layers)."""

    dims: tuple[int, ...]
    sequences: tuple[int, ...]
    models: tuple[tuple[str, int, int], ...]
    rates: tuple[float, ...]
    batches: tuple[int, ...]
    seconds: float


PLANS = {
    "smoke": Plan(
        dims=(2, 4),
        sequences=(512, 2048),
        models=((HEADS, 1, 1), (HEADS, 16, 1), (LAYERS, 1, 2), (TRANSFORMER, 4, 1)),
        rates=(0.01,),
        batches=(32,),
        seconds=0.35,
    ),
    # 1296 trainings; with data and looks at the validation error about 50 minutes on two cores.
    "full": Plan(
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


def _trainings(plan: Plan) -> Iterator[Settings]:
    for model, rate, batch in product(plan.models, plan.rates, plan.batches):
        method, n_heads, n_layers = model
        values = (n_heads, n_layers, rate, batch, plan.seconds)
        yield {"method": method} | dict(zip(TRAINING, values, strict=True))
