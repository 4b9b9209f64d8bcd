"""Whitened conjugate gradients where sums of size p x p do not fit, on one thread.

Correlated tokens, one output: d = 20 against the moments way in one run, d = 32 (p = 16,896), and
d = 64 (p = 133,120) with fewer sequences than features, with a ridge of 1e-4 of the mean square of
the features and without one.  Peak memory is that of a fresh process, tokens excluded.

    python benchmarks/large_iteration.py [20 | 32 | 64 | 64-ridge]
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import common
import numpy as np
from common import best_times, peak_memory, require, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa

common.THREADS = 1

N_TOKENS = 8

# sequences, coordinates, ridge beside the mean of ||phi||^2, seconds, megabytes
CASES = {
    "32": (100_000, 32, 0.0, 30.0, 1500.0),
    "64-ridge": (100_000, 64, 1e-4, 300.0, 3000.0),
    "64": (100_000, 64, 0.0, 300.0, 3000.0),
}


def tokens(n_sequences: int, n_dims: int) -> tuple[Any, Any]:
    """Tokens of sizes 1 to 0.1 along unknown directions, around a mean; noisy targets."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0] * np.geomspace(1, 0.1, n_dims)
    mixing, mean = mixing.T.astype(np.float32), 0.7 * rng.standard_normal(n_dims, np.float32)
    X = np.empty((n_sequences, N_TOKENS, n_dims), np.float32)
    for first in range(0, n_sequences, 4096):
        some = X[first : first + 4096]
        some[:] = rng.standard_normal(some.shape, np.float32) @ mixing + mean
    truth = pa.data.random_layer(n_dims, 1, n_heads=2, mode="last", random_state=0)
    Y = truth(X)
    return X, Y / Y.std(axis=0) + rng.standard_normal(Y.shape)


def mean_square(X: Any) -> float:
    """The mean of ||phi||^2 = ||G||^2 ||x||^2, from some sequences."""
    some = X[:1000].astype(np.float64)
    grams = np.einsum("ntj,ntk->njk", some, some)
    return float(np.mean(np.sum(grams**2, axis=(1, 2)) * np.sum(some[:, -1] ** 2, axis=1)))


def prepared(name: str) -> Any:
    n_sequences, n_dims, relative, *_ = CASES[name]
    X, Y = tokens(n_sequences, n_dims)
    return partial(fitted, X, Y, relative * mean_square(X))


def fitted(X: Any, Y: Any, ridge: float) -> None:
    start = time.perf_counter()
    result = pa.fit(X, Y, ridge=ridge, try_exact=False)
    seconds = time.perf_counter() - start
    print(f"  p={result.n_features}, ridge {ridge:.3g}: {seconds:.1f} s by {result.solver!r}")
    print(f"  risk {result.risk:.9g}, bound {result.objective_bound:.1e}: {result.outcome}")
    power = float(np.sum(Y**2))
    sys.stdout.flush()
    verdict("within 1e-8 of the power of the targets", result.objective_bound < 1e-8 * power)
    sys.stdout.flush()


def compared() -> None:
    """d = 20, N = 30,000: the same risk as the moments way, and how much sooner."""
    X, Y = tokens(30_000, 20)
    found: dict[str, pa.FitResult] = {}

    def fit(solver: str) -> None:
        found[solver] = pa.fit(X, Y, solver=solver, try_exact=False)

    names = ("primal", "iterative")
    with threadpool_limits(limits=1):
        seconds = best_times({name: partial(fit, name) for name in names}, repeats=2)
    one, other = (found[name] for name in names)
    print(f"d=20, N=30000, p={one.n_features}: {other.outcome}")
    print(", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))
    require("risks to 1e-9", abs(one.risk - other.risk) <= 1e-9 * one.risk)
    ratio = seconds["primal"] / seconds["iterative"]
    verdict(f"{ratio:.1f}x, at least 5x", ratio >= 5)


def main() -> None:
    chosen = sys.argv[1:] or ["20", *CASES]
    for name in chosen:
        if name == "20":
            compared()
            continue
        n_sequences, n_dims, _, most_seconds, most_megabytes = CASES[name]
        print(f"d={n_dims}, N={n_sequences}, one thread; wanted: {most_seconds:.0f} s", flush=True)
        megabytes = peak_memory(partial(prepared, name))
        claim = f"peak memory {megabytes:.0f} MB beside the data, at most {most_megabytes:.0f} MB"
        verdict(claim, megabytes <= most_megabytes)


if __name__ == "__main__":
    main()
