"""The paper's task end to end: plant a layer, fit, compare, and say whether data determine it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.data import planted
from polyattn.fitting import fit
from polyattn.model import LinearAttention, coefficient_distance
from polyattn.result import FitResult
from polyattn.stats import Moments

EPS = float(np.finfo(np.float64).eps)


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
class Determined:
    """Whether the data determine the layer: the smallest eigenvalue beside its rounding level."""

    lambda_min: float
    lambda_max: float
    rounding: float
    n_features: int

    @property
    def identifiable(self) -> bool:
        """Whether lambda_min is positive beyond rounding."""
        return self.lambda_min > self.rounding

    @property
    def sentence(self) -> str:
        """The statement in words, with the figures it rests on."""
        figures = (
            f"lambda_min of the second moment of all {self.n_features} features is "
            f"{self.lambda_min:.3g}"
        )
        if self.identifiable:
            return (
                f"The layer is identifiable from these data: {figures}, far enough above its "
                f"worst-case rounding error of {self.rounding:.1e} to be positive in truth. Every "
                "layer that explains the data is the same function on all real inputs."
            )
        return (
            f"Whether the layer is identifiable is undecided at this precision: {figures}, which "
            f"its worst-case rounding error of {self.rounding:.1e} could explain."
        )


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
    determined: Determined


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
        determined=determine(_moments(result, task)),
    )


def determine(moments: Moments) -> Determined:
    """The spectrum of Lambda_D beside a worst-case bound of its rounding error.

    An entry of the moments is a sum over rows: by Cauchy-Schwarz the matrix of its rounding errors
    has a norm of at most rows * eps * trace.  A feature is a sum over tokens, with an error of
    at most (tokens + 2) eps sqrt(G_jj G_kk) |x_l|, and the sum of G_jj G_kk over pairs is at most
    2 d times that of G_jk^2.  The eigenvalues add p eps lambda_max.
    """
    spectrum = moments.spectrum()
    depth = moments.n_rows + 2 * np.sqrt(2 * moments.width) * (moments.max_length + 2) + 4
    rounding = EPS * (depth * float(spectrum.sum()) + len(spectrum) * float(spectrum[-1]))
    return Determined(float(spectrum[0]), float(spectrum[-1]), float(rounding), len(spectrum))


def _moments(result: FitResult, task: RecoveryTask) -> Moments:
    if isinstance(result.statistics, Moments):
        return result.statistics
    made = Moments(result.n_dims, mode="causal")
    return made.update(task.X)


def _mean_power(rows: NDArray) -> float:
    """The mean over predicted positions of the squared norm."""
    return float(np.mean(np.sum(rows**2, axis=-1)))
