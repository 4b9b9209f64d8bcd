"""Whitened conjugate gradients: against sums of size p x p, and where no such sums fit.

For each shape the same fit by both solvers, which must agree, and what ``auto`` takes.  Then
in-context regression with 200 coordinates, of which the labels are the values (p = 40,200):
p x p sums would take 39 GB.
"""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any

import numpy as np
from common import THREADS, best_times, peak_memory, require, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa

# sequences, tokens, coordinates, outputs
SHAPES = ((10_000, 12, 16, 1), (30_000, 12, 20, 1), (30_000, 12, 20, 8))

N_DIMS, N_PROMPTS, N_TOKENS, N_TASKS = 200, 2 * 200**2, 16, 5 * 200


@cache
def correlated(n_sequences: int, n_tokens: int, n_dims: int, n_outputs: int) -> tuple[Any, Any]:
    """Tokens of sizes 1 to 0.3 along unknown directions, around a mean; noisy targets."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0] * np.geomspace(1, 0.3, n_dims)
    X = rng.standard_normal((n_sequences, n_tokens, n_dims)) @ mixing.T
    X += 0.7 * rng.standard_normal(n_dims)
    truth = pa.data.random_layer(n_dims, n_outputs, n_heads=2, mode="last", random_state=0)
    Y = truth(X)
    return X, Y / Y.std(axis=0) + rng.standard_normal(Y.shape)


@cache
def prompts() -> tuple[Any, Any]:
    """In-context regression: tokens (x, y) with y = <w, x> + noise, and a query without label."""
    rng, d = np.random.default_rng(0), N_DIMS
    X, Y = np.empty((N_PROMPTS, N_TOKENS + 1, d + 1), np.float32), np.empty(N_PROMPTS)
    tasks = rng.standard_normal((N_TASKS, d))
    for first in range(0, N_PROMPTS, 2000):
        some = X[first : first + 2000]
        some[..., :d] = rng.standard_normal(some[..., :d].shape) / np.sqrt(d)
        weights = tasks[rng.integers(0, N_TASKS, len(some)), :, None]
        labels = (some[..., :d] @ weights)[..., 0] + 0.1 * rng.standard_normal(some.shape[:2])
        some[..., d], Y[first : first + 2000] = labels, labels[:, -1]
    X[:, -1, d] = 0.0
    return X, Y


def in_context_fit() -> pa.FitResult:
    form = pa.Form(include_query=False, mean=True, query=range(N_DIMS), value=[N_DIMS])
    return pa.fit(*prompts(), form=form, ridge=1e-6 * N_PROMPTS / N_DIMS)


def prepare() -> Any:
    prompts()
    return in_context_fit


def compare(shape: tuple[int, int, int, int]) -> None:
    n_sequences, _, n_dims, n_outputs = shape
    X, Y = correlated(*shape)
    found = {}

    def fitted(solver: str) -> None:
        found[solver] = pa.fit(X, Y, solver=solver, try_exact=False)

    names = ("primal", "iterative")
    seconds = best_times({name: partial(fitted, name) for name in names}, repeats=1)
    one, other = (found[name] for name in names)
    print(f"d={n_dims}, N={n_sequences}, e={n_outputs}, p={one.n_features}: {other.outcome}")
    ratio = seconds["primal"] / seconds["iterative"]
    times = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    taken = pa.solve.plan(n_sequences, n_dims, n_outputs).solver
    print(f"  {times}: {ratio:.1f}x; auto takes {taken!r}")
    error = np.linalg.norm(one.coef - other.coef) / np.linalg.norm(one.coef)
    require(f"coefficients to {error:.1e}", error < 1e-8)
    require("risks to 1e-12", abs(one.risk - other.risk) <= 1e-12 * one.risk)
    verdict("auto takes the iteration only where it is faster", taken == "primal" or ratio > 1.0)


def main() -> None:
    for shape in SHAPES:
        compare(shape)
        correlated.cache_clear()
    print(f"in-context regression, d={N_DIMS}, N={N_PROMPTS}, n={N_TOKENS}, ridge 1e-6 N/d")
    prompts()
    start = time.perf_counter()
    with threadpool_limits(limits=THREADS):
        result = in_context_fit()
    seconds = time.perf_counter() - start
    print(f"  {seconds:.1f} s by {result.solver!r}, p={result.n_features}: {result.outcome}")
    require("it was reached", result.solver == "iterative" and result.outcome.ok)
    verdict(f"{seconds:.0f} s below 2 minutes", seconds < 120)
    prompts.cache_clear()
    megabytes = peak_memory(prepare)
    verdict(f"peak memory {megabytes:.0f} MB beside the data below 4 GB", megabytes < 4096)


if __name__ == "__main__":
    main()
