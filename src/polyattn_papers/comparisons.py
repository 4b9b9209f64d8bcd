"""Comparisons with the obvious way to do the same, small enough for any machine.

Each runs both ways in one process and compares their answers; the full ones, with their claims,
are scripts under ``benchmarks/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from polyattn.data import planted, random_layer, random_sequences
from polyattn.fitting.fit import fit
from polyattn.stats import Moments

REPEATS = 3


@dataclass(frozen=True)
class Comparison:
    """Both times (the best of a few runs) and the relative difference of the answers."""

    name: str
    sizes: str
    other: str
    seconds: float
    other_seconds: float
    difference: float
    tolerance: float

    @property
    def ratio(self) -> float:
        """How many times faster ours was."""
        return self.other_seconds / self.seconds

    @property
    def agrees(self) -> bool:
        """Whether the answers are the same up to rounding."""
        return self.difference <= self.tolerance


def comparisons(scale: float = 1.0) -> Iterator[Comparison]:
    """All of them, one after the other; ``scale`` multiplies the number of sequences."""
    return (run(scale) for run in ALL)


def compare_fit(scale: float = 1.0) -> Comparison:
    """``fit`` against explicit features and scikit-learn's Ridge (Cholesky), same objective."""
    from sklearn.linear_model import Ridge

    d, ridge = 14, 1e-3
    task = planted(max(16, round(3000 * scale)), 24, d, mode="last", noise=0.1)
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    rows, columns = np.triu_indices(d)

    def by_features() -> NDArray[np.float64]:
        # sqrt(2) on the off-diagonal columns makes Ridge's penalty the norm of T.
        weights = np.repeat(np.where(rows == columns, 1.0, np.sqrt(2.0)), d)
        model = Ridge(alpha=ridge, solver="cholesky", fit_intercept=False)
        return model.fit(_last_features(X) * weights, Y).coef_ * weights

    ours, seconds = _timed(lambda: fit(X, Y, ridge=ridge).coef)
    other, other_seconds = _timed(by_features)
    return Comparison(
        "fit", f"d={d}, N={len(X)}, n=24, last", "numpy features + Ridge(cholesky)",
        seconds, other_seconds, _difference(ours.reshape(other.shape), other), 1e-8,
    )  # fmt: skip


def compare_moments(scale: float = 1.0) -> Comparison:
    """``Moments.update`` against explicit features and one symmetric rank-k update."""
    d = 14
    X = np.asarray(random_sequences(max(16, round(4000 * scale)), 4, d))

    def by_features() -> NDArray[np.float64]:
        lower = np.tril(blas.dsyrk(1.0, _last_features(X).T, lower=1))
        return lower + np.tril(lower, -1).T

    ours, seconds = _timed(lambda: Moments(d, mode="last").update(X))
    other, other_seconds = _timed(by_features)
    return Comparison(
        "Moments.update", f"d={d}, N={len(X)}, n=4, last", "numpy features + dsyrk",
        seconds, other_seconds, _difference(ours.gram, other), 1e-12,
    )  # fmt: skip


def compare_forward(scale: float = 1.0) -> Comparison:
    """A causal layer against its definition with masked n x n scores."""
    d, n_tokens = 16, 1024
    layer = random_layer(d, n_heads=4, mode="causal")
    X = np.asarray(random_sequences(max(1, round(8 * scale)), n_tokens, d))

    def by_scores() -> NDArray[np.float64]:
        mask = np.tril(np.ones((n_tokens, n_tokens)))
        heads = zip(layer.attn, layer.value, strict=True)
        return sum((((X @ A @ X.transpose(0, 2, 1)) * mask) @ X @ V) for A, V in heads)

    ours, seconds = _timed(lambda: layer(X))
    other, other_seconds = _timed(by_scores)
    return Comparison(
        "forward pass", f"d={d}, N={len(X)}, n={n_tokens}, causal, 4 heads",
        "masked n x n scores in numpy",
        seconds, other_seconds, _difference(ours, other), 1e-12,
    )  # fmt: skip


def _last_features(X: NDArray) -> NDArray[np.float64]:
    """psi (N, p) as one would write it down: G[j,k] x[l] for the last token x."""
    rows, columns = np.triu_indices(X.shape[2])
    grams = X.transpose(0, 2, 1) @ X
    return (grams[:, rows, columns][:, :, None] * X[:, -1][:, None, :]).reshape(len(X), -1)


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """The answer and the best time of a few runs."""
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer = run()
        best = min(best, time.perf_counter() - start)
    return answer, best


def _difference(ours: NDArray, other: NDArray) -> float:
    return float(np.linalg.norm(ours - other) / np.linalg.norm(other))


ALL = (compare_fit, compare_moments, compare_forward)
