"""What is run: a growing stream of sequences, fitted again and again beside the theory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyattn.data import OneStep
from polyattn.data.one_step import step_layer, step_of
from polyattn.fitting.fit import fit
from polyattn.stats import Moments
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.in_context import ALLOWED, Fresh, draw_task, optimum_of

# Sequences drawn at a time.
BLOCK = 1 << 13

# The first fit, with some seventy sequences for each feature.
LOG2_FIRST = 12


def cells(profile: str) -> Sequence[Settings]:
    """Each stream of sequences is a cell: it is fitted again and again while it grows."""
    full = profile == "full"
    tasks = [("anisotropic", 0.0), ("anisotropic", 0.5)]
    tasks += [("isotropic", 0.0), ("isotropic", 0.5)] if full else []
    return [
        {"covariance": covariance, "noise": noise, "n_dims": 4, "n_examples": 20,
         "log2_largest": 20 if full else 16, "log2_fresh": 17 if full else 15,
         "seed": 100 * number + repeat}
        for number, (covariance, noise) in enumerate(tasks)
        for repeat in range(5 if full else 2)
    ]  # fmt: skip


def run(settings: Settings) -> list[Row]:
    """Fits at 2^12, 2^14, ... sequences of one stream, each beside the theory."""
    optimum = optimum_of(settings)
    rng = np.random.default_rng([settings["seed"], 0])
    fresh = Fresh.draw(optimum, settings)
    moments, rows = Moments(optimum.n_dims + 1, 1), []
    for exponent in range(LOG2_FIRST, settings["log2_largest"] + 1, 2):
        while moments.n_rows < 2**exponent:
            task = draw_task(min(BLOCK, 2**exponent - moments.n_rows), optimum, rng)
            moments.update(task.X, task.Y)
        rows.append(_row(moments, optimum, fresh))
    return rows


def _row(moments: Moments, optimum: OneStep, fresh: Fresh) -> Row:
    """One fit: its coefficients, its risk and its heads against the theory's."""
    n_sequences, theory = moments.n_rows, optimum.layer.coef
    best, single, chosen = (fit(statistics=moments, n_heads=heads) for heads in (None, 1, "auto"))
    step, size = step_of(best.coef), float(np.linalg.norm(theory))
    others = best.coef - step_layer(step).coef
    along = np.linalg.eigh(optimum.covariance)[1]
    gains = np.diagonal(along.T @ step @ along)[::-1] * optimum.n_examples
    losses = (best.predict(fresh.X) - fresh.Y)[:, 0] ** 2
    expected = fresh.expected
    row: Row = {
        "n_sequences": n_sequences,
        "distance": float(np.linalg.norm(best.coef - theory)) / size,
        "expected_distance": expected.distance(n_sequences),
        "largest_distance": expected.distance(n_sequences, ALLOWED),
        "step_distance": float(np.linalg.norm(step - optimum.preconditioner)) / size,
        "other_coefficients": float(np.linalg.norm(others)) / size,
        "chosen_heads": chosen.layer.n_heads,
        "one_head_distance": float(np.linalg.norm(single.coef - theory)) / size,
        "one_head_gap": single.gap,
        "largest_gap": expected.largest_gap(n_sequences),
        "training_risk": best.risk,
        "theory_risk": optimum.risk,
        "expected_excess": expected.excess / n_sequences,
    }
    measured = {
        "excess": losses - fresh.optimum_losses,
        "theory_fresh": fresh.optimum_losses,
        "plain_fresh": fresh.plain_losses,
        "bayes_fresh": fresh.bayes_losses,
    }
    for name, sample in measured.items():
        row[name] = float(np.mean(sample))
        row[f"{name}_error"] = float(np.std(sample) / np.sqrt(len(sample)))
    return row | {f"gain_{place}": float(gain) for place, gain in enumerate(gains, start=1)}
