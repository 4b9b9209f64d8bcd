"""What is run: one planted layer for each cell, of a hard family or a parity."""

from __future__ import annotations

from itertools import product

from polyattn.data import planted_softmax
from polyattn.data.softmax import FAMILIES
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.parity import N_DIMS, parity_task, same_parity_layer
from polyattn_papers.tasks.softmax_methods import (
    NO_CLAIM,
    Attempt,
    Task,
    by_adam,
    by_learner,
    by_queries,
    by_random_starts,
)
from polyattn_papers.tasks.softmax_truth import PARITY, Truth

N_TOKENS = 4

# Examples of the families and of parities; in the small profile so many of both.
FAMILY_EXAMPLES, PARITY_EXAMPLES, FEW_EXAMPLES = 2000, 3000, 800

# Seconds that the learner may take for a layer of a family, far more than it needs; parities take
# all that they get.
FAMILY_SECONDS = 240.0

# Seeds of this experiment alone: nothing was tuned on them.
FIRST_SEED = 4000

#: The method of other heads that compute the same parity, as stored tables call it.
SAME_PARITY = "twin"


def cells(profile: str) -> list[Settings]:
    """Families (with logits and heads) and parities (with sharpness and bits)."""
    if profile == "smoke":
        plan = [
            *product(("close", "same_value", "identity", "permutation"), (4.0,), (3,), (0,)),
            *product((PARITY,), (1.0, 4.0), (1,), (0,)),
            (PARITY, 2.0, 3, 0),
        ]
        return [
            _cell(*one, most_examples=FEW_EXAMPLES, parity_seconds=1.5, adam_seconds=0.5)
            for one in plan
        ]
    plan = [
        *product(FAMILIES, (4.0,), (3,), range(5)),
        *product(FAMILIES, (10.0,), (3,), range(3)),
        *product(FAMILIES, (4.0,), (4,), range(3)),
        *product((PARITY,), (0.5, 1.0, 2.0, 4.0, 8.0), (1,), range(4)),
        *product((PARITY,), (0.25, 0.5, 1.0, 2.0), (3,), range(4)),
        *product((PARITY,), (0.5,), (5,), range(2)),
    ]
    return [_cell(*one, parity_seconds=25.0, adam_seconds=2.0) for one in plan]


def run(settings: Settings) -> list[Row]:
    """All methods on one planted layer."""
    n_heads, seed = settings["n_heads"], settings["seed"]
    task = _task(settings)
    truth = Truth.of(task, seed)
    auto = by_learner(task, n_heads, max_seconds=settings["max_seconds"])
    attempts = {
        "auto": auto,
        "control": by_random_starts(task, n_heads, auto.seconds, seed, truth.solved),
        "adam": by_adam(task, n_heads, settings["adam_seconds"], seed),
        "queries": by_queries(task, seed),
    }
    if settings["family"] == PARITY and n_heads > 1:
        attempts[SAME_PARITY] = Attempt(same_parity_layer(task.layer), NO_CLAIM, False, 0.0, 0)
    return [truth.row(method, attempt) for method, attempt in attempts.items()]


def _task(settings: Settings) -> Task:
    family, size, n_heads = settings["family"], settings["logits"], settings["n_heads"]
    n_sequences, seed = settings["n_sequences"], settings["seed"]
    if family == PARITY:
        return parity_task(n_heads, size, n_sequences, N_TOKENS, N_DIMS, seed)
    return planted_softmax(
        n_sequences, N_TOKENS, N_DIMS, n_heads=n_heads, logits=size, family=family,
        random_state=seed,
    )  # fmt: skip


def _cell(
    family: str,
    logits: float,
    n_heads: int,
    number: int,
    parity_seconds: float,
    adam_seconds: float,
    most_examples: int = PARITY_EXAMPLES,
) -> Settings:
    """``logits`` is the size of the logits of a family, and the sharpness beta of a parity."""
    examples = PARITY_EXAMPLES if family == PARITY else FAMILY_EXAMPLES
    return {
        "family": family,
        "logits": logits,
        "n_heads": n_heads,
        "n_sequences": min(examples, most_examples),
        "seed": FIRST_SEED + number,
        "max_seconds": parity_seconds if family == PARITY else FAMILY_SECONDS,
        "adam_seconds": adam_seconds,
    }
