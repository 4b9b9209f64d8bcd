"""pa.fit against numpy features + scikit-learn's Ridge(solver="cholesky"), time and memory.

d = 16, N = 12,000, n = 24, e = 16, mode last.  Both minimise squared error + ridge ||T||^2:
the off-diagonal features carry sqrt(2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from common import best_times, peak_memory, require, verdict
from sklearn.linear_model import Ridge

import polyattn as pa

N_SEQUENCES, N_TOKENS, N_DIMS, RIDGE = 12_000, 24, 16, 1e-3


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    task = pa.data.planted(
        N_SEQUENCES, N_TOKENS, N_DIMS, n_heads=2, mode="last", noise=0.1, random_state=0
    )
    return task.X, task.Y


def ours() -> np.ndarray:
    X, Y = data()
    return pa.fit(X, Y, ridge=RIDGE).coef


def theirs() -> np.ndarray:
    """The straightforward way: features in one array, then a linear model."""
    X, Y = data()
    rows, columns = np.triu_indices(N_DIMS)
    gram = X.transpose(0, 2, 1) @ X
    weights = np.where(rows == columns, 1.0, np.sqrt(2.0))
    features = ((gram[:, rows, columns] * weights)[:, :, None] * X[:, -1, None, :]).reshape(
        len(X), -1
    )
    model = Ridge(alpha=RIDGE, solver="cholesky", fit_intercept=False).fit(features, Y)
    return model.coef_.reshape(N_DIMS, len(rows), N_DIMS) * weights[:, None]


def prepare_ours() -> Callable[[], np.ndarray]:
    data()
    return ours


def prepare_theirs() -> Callable[[], np.ndarray]:
    data()
    return theirs


def main() -> None:
    seconds = best_times({"ours": ours, "theirs": theirs}, repeats=9)
    megabytes = {"ours": peak_memory(prepare_ours), "theirs": peak_memory(prepare_theirs)}
    print("pa.fit against numpy features + Ridge(cholesky): d=16, N=12000, n=24, e=16")
    for name in seconds:
        print(f"  {name:7s} {seconds[name]:.3f} s   peak memory {megabytes[name]:.0f} MB")
    speed = seconds["theirs"] / seconds["ours"]
    memory = megabytes["theirs"] / megabytes["ours"]
    a, b = ours(), theirs()
    difference = np.linalg.norm(a - b) / np.linalg.norm(b)
    require(f"coefficients differ by {difference:.1e} (relative)", difference < 1e-9)
    verdict(f"{speed:.2f}x faster (claim: 2x)", speed >= 2)
    verdict(f"{memory:.2f}x less peak memory (claim: 2x)", memory >= 2)


if __name__ == "__main__":
    main()
