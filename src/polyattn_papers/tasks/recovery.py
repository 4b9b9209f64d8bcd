"""The paper's task end to end: plant a layer, fit, compare, and say whether data determine it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate, certify
from polyattn.data import planted
from polyattn.fitting.fit import fit
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, coefficient_distance


@dataclass(frozen=True)
class RecoverySettings:
    """Sizes of the task; the defaults are the paper's [yau2024: section 4.1]."""

    n_dims: int = 4
    n_sequences: int = 2048
    n_tokens: int = 100
    n_heads: int = 1
    n_validation: int = 512
    seed: int = 0


@dataclass(frozen=True, eq=False)
class RecoveryTask:
    """Training and validation sequences of one planted causal layer."""

    X: NDArray[np.float64] = field(repr=False)
    Y: NDArray[np.float64] = field(repr=False)
    X_validation: NDArray[np.float64] = field(repr=False)
    Y_validation: NDArray[np.float64] = field(repr=False)
    layer: LinearAttention


@dataclass(frozen=True)
class Recovery:
    """What the fit found, how long it took, and how far it is from what was planted."""

    result: FitResult = field(repr=False)
    fit_seconds: float
    heads_seconds: float
    validation_error: float
    target_power: float
    n_heads: int
    distance: float
    certificate: Certificate = field(repr=False)


def make_task(settings: RecoverySettings) -> RecoveryTask:
    """Sequences of one planted layer, split into training and validation."""
    total = settings.n_sequences + settings.n_validation
    made = planted(
        total, settings.n_tokens, settings.n_dims, n_heads=settings.n_heads, mode="causal",
        random_state=settings.seed,
    )  # fmt: skip
    X, Y, first = np.asarray(made.X), np.asarray(made.Y), settings.n_sequences
    return RecoveryTask(X[:first], Y[:first], X[first:], Y[first:], made.layer)


def recover(task: RecoveryTask) -> Recovery:
    """Fit, look for few heads, and compare with the planted layer on fresh sequences."""
    start = time.perf_counter()
    result = fit(task.X, task.Y, mode="causal")
    fit_seconds = time.perf_counter() - start
    layer = result.layer
    heads_seconds = time.perf_counter() - start - fit_seconds
    error = layer(task.X_validation) - task.Y_validation
    return Recovery(
        result=result,
        fit_seconds=fit_seconds,
        heads_seconds=heads_seconds,
        validation_error=_mean_power(error),
        target_power=_mean_power(task.Y_validation),
        n_heads=layer.n_heads,
        distance=coefficient_distance(layer, task.layer),
        certificate=certify(task.X, "causal"),
    )


def _mean_power(rows: NDArray) -> float:
    """The mean over predicted positions of the squared norm."""
    return float(np.mean(np.sum(rows**2, axis=-1)))
