"""In-context learning at the sizes of Letey et al.: pa.fit against their fit, and d = 200.

Theirs, transcribed in plain numpy: the features x ⊗ [mean(y_i x_i), mean(y_i^2)] of all prompts
in one array, their Gram matrix, and one solution with a penalty.  Ours is the same layer as a Form,
with the solver that pa.fit takes by default, and with solver="iterative", which one has to ask for.
All are given the same prompts, in the units of the paper.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from common import best_times, peak_memory, require, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn_papers.letey2025.layer import fit_paper, gamma_of, paper_form, paper_units
from polyattn_papers.letey2025.theory import PromptMoments

RIDGE, RHO = 1e-6, 0.01


def transcribed(X: np.ndarray, Y: np.ndarray, penalty: float) -> np.ndarray:
    """Coefficients (d, d + 1) by explicit features, a Gram matrix and a solution."""
    n, d = len(X), X.shape[2] - 1
    inputs, labels, question = X[:, :-1, :d], X[:, :-1, d], X[:, -1, :d]
    length = labels.shape[1]
    sums = np.einsum("nij,ni->nj", inputs, labels) / length
    squares = np.sum(labels**2, axis=1) / length
    features = np.empty((n, d, d + 1))
    features[:, :, :d] = question[:, :, None] * sums[:, None, :]
    features[:, :, d] = question * squares[:, None]
    flat = features.reshape(n, -1)
    gram = flat.T @ flat
    gram[np.diag_indices_from(gram)] += penalty
    return np.linalg.solve(gram, flat.T @ Y[:, 0]).reshape(d, d + 1)


def against_numpy(d: int, tau: float, repeats: int) -> None:
    print(f"whole prompts, d={d}, tau={tau:g}, alpha=1, kappa=1: {d * (d + 1)} coefficients")
    task = pa.data.proportional_regression(d, tau, 1.0, 1.0, RHO, summarised=False)
    X, Y, penalty = paper_units(task.X), task.Y, len(task.X) / d**2 * RIDGE
    form = paper_form(d)

    def ours(**options: str) -> np.ndarray:
        return pa.fit(X, Y, form=form, ridge=penalty, **options).coef[0].T

    sides = {
        "numpy": lambda: transcribed(X, Y, penalty),
        "default": ours,
        "iterative": partial(ours, solver="iterative"),
    }
    theirs = sides["numpy"]()
    for name in list(sides)[1:]:
        away = float(np.max(np.abs(sides[name]() - theirs)) / np.max(np.abs(theirs)))
        require(f"{name}: coefficients differ by {away:.1e} of the largest", away < 1e-8)
    seconds = best_times(sides, repeats)
    for name, side in sides.items():
        before = time.process_time()
        side()
        worked = time.process_time() - before
        print(f"  {name:9} {seconds[name]:8.3f} s, processors {worked:.2f} s")
    by_default, iterative = (seconds["numpy"] / seconds[name] for name in ("default", "iterative"))
    claim = f"faster by default: {by_default:.1f}x; at least 5x with solver='iterative': "
    verdict(f"{claim}{iterative:.1f}x", by_default > 1 and iterative >= 5)


def prepare(d: int, tau: float) -> Callable[[], pa.FitResult]:
    """Everything but the fit; for the measurement of memory."""
    task = pa.data.proportional_regression(d, tau, 1.0, 1.0, RHO)
    return partial(fit_paper, task, RIDGE)


def large(d: int, tau: float) -> None:
    task = pa.data.proportional_regression(d, tau, 1.0, 1.0, RHO)
    print(f"summarised prompts, d={d}, tau={tau:g}: {len(task.X)} rows, {d * (d + 1)} coefficients")
    with threadpool_limits(limits=2):
        start, before = time.perf_counter(), time.process_time()
        result = fit_paper(task, RIDGE)
        seconds, worked = time.perf_counter() - start, time.process_time() - before
    print(f"  {result.outcome.sentence}")
    print(f"  {seconds:.1f} s, in which the processors worked {worked:.1f} s for it")
    error = PromptMoments.gaussian(np.eye(d), RHO, task.optimum.n_examples).error_of(
        gamma_of(result)
    )
    print(f"  error on new tasks {error:.4f}; of predicting nothing {1 + RHO:.4f}")
    gigabytes = (peak_memory(partial(prepare, d, tau)) + task.X.nbytes / 2**20) / 1024
    verdict(f"solved in at most 2 minutes: {seconds:.1f} s", seconds <= 120)
    verdict(f"at most 4 GB with the data: {gigabytes:.2f} GB", gigabytes <= 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, default=60, help="d beside numpy")
    parser.add_argument("--large", type=int, default=200, help="d without numpy; 0: leave it out")
    parser.add_argument("--tau", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    against_numpy(given.dims, given.tau, given.repeats)
    if given.large:
        large(given.large, given.tau)


if __name__ == "__main__":
    main()
