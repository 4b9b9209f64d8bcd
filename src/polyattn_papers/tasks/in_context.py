"""The task of a cell: its theory, fresh sequences, and what least squares expects of N of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.data import InContextTask, OneStep, in_context_regression
from polyattn.data.one_step import step_layer
from polyattn.stats import Moments
from polyattn_papers.reproduction import Settings

# Standard deviations by which a figure may be off.
ALLOWED = 4.0


def optimum_of(settings: Settings) -> OneStep:
    """The theory of a cell: eigenvalues 2 .. 1/4 in fixed random directions, or the identity."""
    d = settings["n_dims"]
    covariance = np.eye(d)
    if settings["covariance"] == "anisotropic":
        basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))
        covariance = (basis * np.geomspace(2.0, 0.25, d)) @ basis.T
    return OneStep.of((covariance + covariance.T) / 2, settings["n_examples"], settings["noise"])


@dataclass(frozen=True)
class Expected:
    """What the theory of least squares says of N sequences, as factors of 1/N.

    Means and standard deviations of the squared relative distance to the optimum, and of the
    excess risk (P - P*) Lambda (P - P*), on the data as on fresh ones; all from
    Lambda^-1 B Lambda^-1 with B = E r^2 psi psi^T.
    """

    square: float
    square_spread: float
    excess: float
    excess_spread: float

    @classmethod
    def of(cls, gram: NDArray, weighted: NDArray, size: float) -> Expected:
        """From Lambda and B over the features that occur; ``size``: norm of the optimum."""
        shape = np.linalg.solve(gram, weighted)
        covariance = np.linalg.solve(gram, shape.T) / size**2
        return cls(
            float(np.trace(covariance)), _spread(covariance), float(np.trace(shape)), _spread(shape)
        )

    def distance(self, n_sequences: int, deviations: float = 0.0) -> float:
        """The root mean square distance, or so many standard deviations above."""
        return float(np.sqrt((self.square + deviations * self.square_spread) / n_sequences))

    def largest_gap(self, n_sequences: int) -> float:
        """The excess risk that ``ALLOWED`` standard deviations allow."""
        return (self.excess + ALLOWED * self.excess_spread) / n_sequences


@dataclass(frozen=True, eq=False)
class Fresh:
    """Sequences that no fit sees, and what is measured on them once."""

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    optimum_losses: NDArray[np.float64]
    plain_losses: NDArray[np.float64]
    bayes_losses: NDArray[np.float64]
    expected: Expected

    @classmethod
    def draw(cls, optimum: OneStep, settings: Settings) -> Fresh:
        """Squared errors of theory, plain step and Bayes, and the moments behind ``Expected``."""
        rng = np.random.default_rng([settings["seed"], 1])
        task = draw_task(2 ** settings["log2_fresh"], optimum, rng)
        d, layer = optimum.n_dims, optimum.layer
        losses = (layer(task.X) - task.Y)[:, 0] ** 2
        plain = (step_layer(optimum.plain_rate * np.eye(d))(task.X) - task.Y)[:, 0] ** 2
        bayes = (bayes_prediction(task.X, optimum.noise) - task.Y[:, 0]) ** 2
        gram, weighted = (Moments(d + 1) for _ in range(2))
        gram.update(task.X)
        weighted.update(task.X, sample_weight=losses)
        # The question has no label, so features with it as query are zero.
        seen = np.arange(gram.n_features) % (d + 1) < d
        second, fourth = (one.gram[np.ix_(seen, seen)] / len(losses) for one in (gram, weighted))
        expected = Expected.of(second, fourth, float(np.linalg.norm(layer.coef)))
        return cls(task.X, task.Y, losses, plain, bayes, expected)


def bayes_prediction(X: NDArray, noise: float) -> NDArray[np.float64]:
    """The mean of <w, x> given a sequence: ridge regression, without noise of least norm."""
    inputs, labels, question = X[:, :-1, :-1], X[:, :-1, -1:], X[:, -1, :-1]
    gram = inputs.transpose(0, 2, 1) @ inputs + noise**2 * np.eye(inputs.shape[2])
    weights = np.linalg.pinv(gram, hermitian=True) @ (inputs.transpose(0, 2, 1) @ labels)
    return np.asarray(np.sum(weights[..., 0] * question, axis=1), dtype=np.float64)


def draw_task(n_sequences: int, optimum: OneStep, rng: np.random.Generator) -> InContextTask:
    """Sequences of the task whose theory is ``optimum``."""
    return in_context_regression(
        n_sequences, optimum.n_examples, optimum.covariance, optimum.noise, rng
    )


def _spread(matrix: NDArray) -> float:
    """The standard deviation of a Gaussian quadratic form: sqrt(2 tr M^2)."""
    return float(np.sqrt(2 * np.sum(matrix * matrix.T)))
