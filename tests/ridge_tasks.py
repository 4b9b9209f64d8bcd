"""Tasks for rules that choose the ridge, and what the rules say by brute force."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn.reference import erm, features, layer

RIDGES = np.logspace(-4, 3, 8)

SHAPES = {
    # lengths of the sequences, d: p = 6 for d = 2, 18 for d = 3
    "tall": ([3] * 20, 2),
    "wide": ([3] * 5, 3),
    "square": ([3] * 6, 2),
    "ragged tall": ([1, 2, 3, 4, 5] * 4, 2),
    "ragged wide": ([1, 2, 4], 3),
    "one long": ([12, 1, 1, 1], 2),
    "single tokens": ([1] * 12, 2),
    "single tokens wide": ([1] * 4, 2),
}


@dataclass(frozen=True)
class Task:
    """Sequences and their target rows (rows, 2)."""

    X: list[NDArray]
    rows: NDArray
    lengths: list[int]
    mode: str
    weights: NDArray | None
    bias: bool

    @property
    def row_counts(self) -> list[int]:
        return [1] * len(self.X) if self.mode == "last" else self.lengths

    @property
    def Y(self):  # noqa: N802
        """The targets in the form that the mode wants."""
        return (
            self.rows
            if self.mode == "last"
            else np.split(self.rows, np.cumsum(self.row_counts)[:-1])
        )


def make_task(shape, mode, weighted=False, bias=False, seed=0) -> Task:
    """Gaussian sequences with targets that a layer explains in part."""
    lengths, d = SHAPES[shape] if isinstance(shape, str) else shape
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, d)) for length in lengths]
    count = len(lengths) if mode == "last" else sum(lengths)
    truth = pa.data.random_layer(d, 2, 1, mode, random_state=1)
    made = truth(X)
    rows = made if mode == "last" else np.concatenate(made)
    rows = rows + rng.standard_normal((count, 2))
    weights = rng.uniform(0.2, 2.0, len(X)) if weighted else None
    return Task(X, rows, list(lengths), mode, weights, bias)


def fitted(task: Task, ridge, ridge_grid=RIDGES) -> pa.FitResult:
    """``pa.fit`` of the task."""
    return pa.fit(
        task.X, task.Y, task.mode, ridge,
        bias=task.bias, sample_weight=task.weights, ridge_grid=ridge_grid,
    )  # fmt: skip


def generalised(task: Task, ridges: NDArray) -> NDArray:
    """The formula with I - H = U diag(ridge / (sigma^2 + ridge)) U^T: no cancellation."""
    phi = erm.design(task.X, task.mode) / features.norm_weights(task.X[0].shape[1])
    left, sigma, _ = np.linalg.svd(phi)
    squares = np.zeros(len(phi))
    squares[: len(sigma)] = sigma**2
    errors = []
    for ridge in ridges:
        kept = ridge / (squares + ridge)
        residual = np.sum((kept[:, None] * (left.T @ task.rows)) ** 2) / len(phi)
        errors.append(residual / np.mean(kept) ** 2)
    return np.array(errors)


def largest_power(task: Task) -> float:
    """The largest eigenvalue of the weighted moments by the reference."""
    phi = erm.design(task.X, task.mode) / features.norm_weights(task.X[0].shape[1])
    each = np.ones(len(task.X)) if task.weights is None else task.weights
    return float(np.linalg.norm(phi * np.sqrt(np.repeat(each, task.row_counts))[:, None], 2) ** 2)


def left_out(task: Task, ridge: float, groups=None) -> float:
    """The weighted mean squared error of each group under the reference fitted without it."""
    tokens = [layer.with_constant(x) if task.bias else x for x in task.X]
    s = features.norm_weights(tokens[0].shape[1])
    phi = erm.design(tokens, task.mode) / s
    each = np.ones(len(task.X)) if task.weights is None else task.weights
    weights = np.repeat(each, task.row_counts)
    groups = np.repeat(np.arange(len(task.X)), task.row_counts) if groups is None else groups
    total = 0.0
    for group in np.unique(groups):
        inside, own = groups != group, groups == group
        root = np.sqrt(weights[inside])[:, None]
        A = np.concatenate([root * phi[inside], np.sqrt(ridge) * np.eye(len(s))])
        b = np.concatenate([root * task.rows[inside], np.zeros((len(s), 2))])
        theta = np.linalg.lstsq(A, b, rcond=None)[0]
        total += float(np.sum(weights[own, None] * (task.rows[own] - phi[own] @ theta) ** 2))
    return total / weights.sum()
