"""What is run: fits to prompts in proportion to d, and their errors on three kinds of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn_papers.letey2025.layer import fit_paper, gamma_of, paper_units
from polyattn_papers.letey2025.limit import limit_error
from polyattn_papers.letey2025.theory import PromptMoments, expected_error, paper_error_of
from polyattn_papers.reproduction.experiment import Row, Settings

# The noise and the penalty of the paper.
RHO, RIDGE = 0.01, 1e-6

# Diversities at one number of prompts, and numbers of prompts at one diversity.
KAPPAS, TAUS = (0.5, 1.0, 2.0, 4.0), (0.25, 0.5, 1.5, 2.0)
TAU, KAPPA, ALPHA = 4.0, 1.0, 2.0


def cells(profile: str) -> Sequence[Settings]:
    """All points of both curves, at growing d; a cell holds all seeds of a point."""
    full = profile == "full"
    points = [(TAU, kappa) for kappa in (KAPPAS if full else (0.5, 2.0))]
    points += [(tau, KAPPA) for tau in TAUS]
    sizes = ((20, 16), (40, 12), (80, 6)) if full else ((10, 6), (20, 4))
    return [
        {"n_dims": d, "tau": tau, "alpha": ALPHA, "kappa": kappa, "n_seeds": n_seeds,
         "n_fresh": 20_000 if full else 5_000}
        for d, n_seeds in sizes
        for tau, kappa in points
    ]  # fmt: skip


def run(settings: Settings) -> list[Row]:
    """Of each seed one fit, and of each fit three rows: one for each kind of test tasks."""
    return [row for seed in range(settings["n_seeds"]) for row in _rows(settings, seed)]


def task_covariances(d: int) -> dict[str, NDArray[np.float64]]:
    """Of test tasks: as in training (eigenvalues that rise evenly), all equal, and reversed."""
    rising = 2 * np.arange(1.0, d + 1) / (d + 1)
    return {"aligned": np.diag(rising), "isotropic": np.eye(d), "reversed": np.diag(rising[::-1])}


def _rows(settings: Settings, seed: int) -> list[Row]:
    d, tau, alpha, kappa = (settings[name] for name in ("n_dims", "tau", "alpha", "kappa"))
    tests = task_covariances(d)
    train = tests["aligned"]
    # Points are independent of each other, so that means over all of them have known errors.
    training, testing, theory = np.random.default_rng(
        [d, seed, round(100 * tau), round(100 * kappa)]
    ).spawn(3)
    task = pa.data.proportional_regression(
        d, tau, alpha, kappa, RHO, training, task_covariance=train
    )
    n_examples = task.optimum.n_examples
    result = fit_paper(task, RIDGE)
    gamma = gamma_of(result)
    moments = [PromptMoments.gaussian(one, RHO, n_examples) for one in tests.values()]
    expected = expected_error(
        np.asarray(task.tasks), moments, len(task.X), n_examples, RHO, RIDGE, theory
    )
    rows = []
    for (name, covariance), exact, known in zip(tests.items(), moments, expected, strict=True):
        fresh = pa.data.in_context_regression(
            settings["n_fresh"], n_examples, np.eye(d) / d, RHO**0.5,
            testing, task_covariance=covariance, noisy_target=True,
            summarised=True,
        )  # fmt: skip
        losses = (result.predict(paper_units(fresh.X)) - fresh.Y)[:, 0] ** 2
        rows.append({
            "seed": seed,
            "test": name,
            "error": exact.error_of(gamma),
            "paper_error": paper_error_of(gamma, covariance, RHO, alpha),
            "fresh_error": float(np.mean(losses)),
            "fresh_deviation": float(np.std(losses) / np.sqrt(len(losses))),
            "expected": known,
            "limit": limit_error(train, covariance, tau, alpha, kappa, RHO),
            "nothing_learned": float(np.trace(covariance)) / d + RHO,
        })  # fmt: skip
    return rows
