"""What is run: one planted layer for each cell, learned in every way, around one set of sizes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from polyattn.data import planted_softmax
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.softmax_methods import REFUSED, by_adam, by_learner, by_random_starts
from polyattn_papers.tasks.softmax_phases import NO_PHASES, by_phases, columns
from polyattn_papers.tasks.softmax_truth import Truth

#: Where all sweeps meet.
BASE: Settings = {
    "n_sequences": 200, "n_tokens": 4, "n_dims": 8, "n_heads": 2, "logits": 1.0,
    "tokens": "boolean", "noise": 0.0,
}  # fmt: skip

#: The examples of cells with noise.
MANY = 1000

# Sculpting solves programmes over d^2 unknowns for every row; above this it takes minutes.
MOST_SCULPTED_DIMS = 16

# Seconds that a run of the learner may take, far more than any needs on a quiet machine.
MOST_SECONDS = 240.0

# Seeds of this experiment alone: nothing was tuned on them.
FIRST_SEED = 3000


def cells(profile: str) -> list[Settings]:
    """Sweeps of one size at a time around ``BASE``, and of noise for one to three heads."""
    sizes: dict[str, tuple[Any, ...]]
    if profile == "smoke":
        counts: tuple[int, ...] = (6, 24, 200)
        sizes = {"n_heads": (1, 3), "n_dims": (4,), "n_tokens": (2,)}
        seeds, more_seeds, noisy, adam_seconds = 1, 1, product((1e-2,), (2,)), 0.3
    else:
        counts = (6, 10, 16, 20, 24, 32, 50, 100, 200, 600, 2000)
        sizes = {
            "n_heads": (1, 3, 4, 6, 8), "n_dims": (4, 6, 12, 16, 24), "n_tokens": (2, 3, 6, 8, 16),
            "logits": (0.5, 2.0, 4.0), "tokens": ("gaussian",),
        }  # fmt: skip
        seeds, more_seeds, noisy, adam_seconds = 3, 5, product((1e-3, 1e-2, 1e-1), (1, 2, 3)), 2.0
    changes = [{name: value} for name, values in sizes.items() for value in values]
    changes += [{"n_sequences": MANY, "noise": noise, "n_heads": m} for noise, m in noisy]
    planned = [(change, seeds) for change in changes]
    planned += [({"n_sequences": count}, more_seeds) for count in counts]
    return [
        BASE | change | {"seed": seed, "adam_seconds": adam_seconds}
        for change, n_seeds in planned
        for seed in range(FIRST_SEED, FIRST_SEED + n_seeds)
    ]


def run(settings: Settings) -> list[Row]:
    """All methods on one planted layer."""
    n_heads, seed, adam_seconds = (settings[key] for key in ("n_heads", "seed", "adam_seconds"))
    task = planted_softmax(
        settings["n_sequences"], settings["n_tokens"], settings["n_dims"], n_heads=n_heads,
        logits=settings["logits"], distribution=settings["tokens"], noise=settings["noise"],
        random_state=seed,
    )  # fmt: skip
    truth = Truth.of(task, seed, settings["tokens"])
    attempts = {"auto": by_learner(task, n_heads, max_seconds=MOST_SECONDS)}
    if not task.noise:
        attempts["counted"] = by_learner(task, None, max_seconds=MOST_SECONDS)
        attempts["moments"] = by_learner(task, n_heads, "moments", MOST_SECONDS)
    sculpted = settings["n_dims"] <= MOST_SCULPTED_DIMS
    if sculpted:
        attempts["sculpt"] = by_learner(task, n_heads, "sculpt", MOST_SECONDS)
    # As long as the learner took; where it refused to begin, as long as Adam.
    auto = attempts["auto"]
    seconds = adam_seconds if auto.outcome == REFUSED else auto.seconds
    attempts["control"] = by_random_starts(task, n_heads, seconds, seed, truth.solved)
    attempts["adam"] = by_adam(task, n_heads, adam_seconds, seed)
    phases: dict[str, object] = {}
    if sculpted and not task.noise and auto.outcome != REFUSED:
        attempts["phases"], errors = by_phases(task, n_heads, seed)
        phases = columns(errors)
    per_unknown = np.size(task.Y) / (task.layer.attn.size + task.layer.value.size)
    return [
        {"numbers_per_unknown": per_unknown}
        | truth.row(method, attempt)
        | NO_PHASES
        | (phases if method == "phases" else {})
        for method, attempt in attempts.items()
    ]


def along(rows: list[Row], swept: str, **fixed: object) -> list[Row]:
    """The rows that differ from ``BASE`` in ``swept`` and in what is fixed otherwise, alone."""
    wanted = {name: value for name, value in (BASE | fixed).items() if name != swept}
    return where(rows, **wanted)
