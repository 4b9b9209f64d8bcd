"""Wide tokens through the kernel: pa.fit against its own floor, and d = 128.

The floor is what no dual method can avoid: one symmetric product for <G, G'>, and one Cholesky
factorisation, on ready-made summaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from common import best_times, peak_memory, require, verdict
from scipy.linalg import blas, lapack

import polyattn as pa
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.sequences import as_batch


@cache
def data(n_sequences: int, n_tokens: int, n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    task = pa.data.planted(
        n_sequences, n_tokens, n_dims, n_outputs=1, n_heads=2, mode="last", random_state=0
    )
    return task.X, task.Y


def floor(pairs: np.ndarray) -> np.ndarray:
    matrix = blas.dsyrk(1.0, pairs.T, lower=1)
    matrix[np.diag_indices_from(matrix)] += matrix.diagonal().mean()
    return lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)[0]


def fitted(heads: bool, *shape: int) -> pa.FitResult:
    result = pa.fit(*data(*shape), solver="dual")
    if heads:
        print(f"    heads on request: {result.layer.n_heads}")
    return result


def prepare(*shape: int) -> Callable[[], pa.FitResult]:
    data(*shape)
    return partial(fitted, True, *shape)


def main() -> None:
    shape = (8192, 64, 64)
    print("dual fit, d=64, N=8192, n=64, e=1, mode last")
    X, Y = data(*shape)
    pairs = next(SeenSequences(Layout.plain(as_batch(X).n_dims), as_batch(X)).blocks(len(X))).sums
    sides = {
        "floor": lambda: floor(pairs),
        "ours": lambda: fitted(False, *shape),
        "with heads": lambda: fitted(True, *shape),
    }
    seconds = best_times(sides, repeats=2)
    megabytes = peak_memory(partial(prepare, *shape))
    for name, value in seconds.items():
        print(f"  {name:10s} {value:.2f} s   {value / seconds['floor']:.2f}x the floor")
    result = fitted(False, *shape)
    error = np.abs(result.predict(X) - Y).max() / np.abs(Y).max()
    require(f"training targets reproduced to {error:.1e}", error < 1e-8)
    verdict("at most 2x the floor", seconds["ours"] <= 2 * seconds["floor"])
    verdict("at most 2x the floor, heads included", seconds["with heads"] <= 2 * seconds["floor"])
    verdict(f"peak memory {megabytes:.0f} MB below 4 GB", megabytes < 4096)

    print("dual fit, d=128, N=4096, n=16, e=1, mode last")
    X, Y = data(4096, 16, 128)
    start = time.perf_counter()
    result = pa.fit(X, Y)
    print(f"  {time.perf_counter() - start:.2f} s by solver {result.solver!r}: {result.outcome}")
    error = np.abs(result.predict(X) - Y).max() / np.abs(Y).max()
    require(f"training targets reproduced to {error:.1e}", error < 1e-8)


if __name__ == "__main__":
    main()
