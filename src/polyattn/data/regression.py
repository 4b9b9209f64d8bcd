"""Linear regression in context: examples of a fresh linear function, then a question."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, require_integer, require_number
from polyattn.features.pairs import pair_position
from polyattn.model import LinearAttention
from polyattn.numerics.random_state import RandomState, require_generator


@dataclass(frozen=True, eq=False)
class InContextTask:
    """Sequences X (N, n + 1, d + 1), targets Y (N, 1), and the best layer for such data."""

    X: NDArray[np.float64] = field(repr=False)
    Y: NDArray[np.float64] = field(repr=False)
    optimum: OneStep


def in_context_regression(
    n_sequences: int,
    n_examples: int,
    covariance: ArrayLike,
    noise: float = 0.0,
    random_state: RandomState = 0,
) -> InContextTask:
    """Sequences of n examples (x_i, y_i) of a linear function, then a question (x, 0).

        X = [ x_1  y_1 ]
            [   ...    ]        x_i, x ~ N(0, covariance),      w ~ N(0, I) for each sequence,
            [ x_n  y_n ]        y_i = <w, x_i> + noise * N(0, 1)
            [ x    0   ]

    The target is <w, x>, which no layer knows: what it can know of w is in the examples.

    Parameters
    ----------
    n_sequences, n_examples : int
    covariance : array (d, d), symmetric and positive definite
    noise : float
        Standard deviation of the noise on the targets y_i of the examples, in their units; the
        target Y has none.
    random_state : int, Generator or None
        A generator goes on where it was, so that long streams are drawn in parts.

    Returns
    -------
    InContextTask
        X (n_sequences, n_examples + 1, d + 1), Y (n_sequences, 1), and ``optimum``, the layer of
        least expected error over any number of heads.
    """
    n_sequences = require_integer("n_sequences", n_sequences)
    optimum = OneStep.of(covariance, n_examples, noise)
    n, d = optimum.n_examples, optimum.n_dims
    rng = require_generator(random_state)
    X = np.zeros((n_sequences, n + 1, d + 1))
    root = np.linalg.cholesky(optimum.covariance)
    X[..., :d] = rng.standard_normal((n_sequences, n + 1, d)) @ root.T
    weights = rng.standard_normal((n_sequences, d, 1))
    labels = (X[..., :d] @ weights)[..., 0]
    X[:, :n, d] = labels[:, :n] + optimum.noise * rng.standard_normal((n_sequences, n))
    return InContextTask(X, labels[:, n:].copy(), optimum)


@dataclass(frozen=True, eq=False)
class OneStep:
    """The best linear attention layer for regression in context: one preconditioned step.

    Over layers with any number of heads the least expected squared error is reached by

        f(X) = x^T M sum_i y_i x_i,    M = (1/n) Gamma^{-1},
        Gamma = (1 + 1/n) S + ((tr S + noise^2) / n) I,    S the covariance of the inputs,

    the prediction after one step of gradient descent from w = 0, preconditioned by M.  One head
    computes it [derivation: docs/derivations/in_context_regression.md].
    """

    covariance: NDArray[np.float64] = field(repr=False)
    n_examples: int
    noise: float

    @classmethod
    def of(cls, covariance: ArrayLike, n_examples: int, noise: float = 0.0) -> OneStep:
        """From a covariance (d, d), the number of examples and the noise of labels, checked."""
        n = require_integer("n_examples", n_examples)
        try:
            S = np.array(covariance, dtype=np.float64)
        except (TypeError, ValueError):
            S = np.empty(0)
        square = S.ndim == 2 and S.shape[0] == S.shape[1] and S.size > 0
        if not square or not np.all(np.isfinite(S)):
            shape = getattr(covariance, "shape", None)
            came = type(covariance).__name__ if shape is None else f"shape {shape}"
            raise InvalidInput(
                "covariance must be a square array (d, d) of finite numbers; "
                f"got {came}; for independent inputs give numpy.eye(d)."
            )
        least, asymmetry = float(np.linalg.eigvalsh(S)[0]), float(np.max(np.abs(S - S.T)))
        # Rounding alone could not make it symmetric and definite.
        negligible = 1e-12 * float(np.max(np.abs(S)))
        if asymmetry > negligible or least <= negligible:
            raise InvalidInput(
                "covariance must be symmetric and positive definite; its smallest eigenvalue is "
                f"{least:.3g}, its asymmetry {asymmetry:.3g}."
            )
        S = (S + S.T) / 2
        S.setflags(write=False)
        return cls(S, n, require_number("noise", noise))

    @property
    def n_dims(self) -> int:
        """d, the coordinates of an input; tokens have one more."""
        return len(self.covariance)

    @property
    def gamma(self) -> NDArray[np.float64]:
        """Gamma (d, d): n M is its inverse."""
        S, n = self.covariance, self.n_examples
        return (1 + 1 / n) * S + (np.trace(S) + self.noise**2) / n * np.eye(self.n_dims)

    @property
    def preconditioner(self) -> NDArray[np.float64]:
        """M (d, d), symmetric."""
        return np.asarray(np.linalg.inv(self.n_examples * self.gamma), dtype=np.float64)

    @property
    def risk(self) -> float:
        """The expected squared error of the layer: tr S - tr(S^2 Gamma^{-1})."""
        S = self.covariance
        return float(np.trace(S) - np.trace(S @ S @ np.linalg.inv(self.gamma)))

    @property
    def layer(self) -> LinearAttention:
        """One head in mode ``last``: keys and queries meet in M, the value is the label."""
        return step_layer(self.preconditioner)

    @property
    def plain_rate(self) -> float:
        """The best c of f(X) = c x^T sum_i y_i x_i: one step without a preconditioner."""
        squares = self.covariance @ self.covariance
        return float(np.trace(squares) / (self.n_examples * np.trace(squares @ self.gamma)))

    @property
    def plain_risk(self) -> float:
        """The expected squared error of the plain step: tr S - (tr S^2)^2 / tr(S^2 Gamma)."""
        S = self.covariance
        squares = S @ S
        return float(np.trace(S) - np.trace(squares) ** 2 / np.trace(squares @ self.gamma))


def step_layer(preconditioner: NDArray) -> LinearAttention:
    """The one-head layer  x^T M sum_i y_i x_i  for M (d, d)."""
    d = len(preconditioner)
    attn, value = np.zeros((d + 1, d + 1)), np.zeros((d + 1, 1))
    attn[:d, :d] = preconditioner
    value[d] = 1.0
    return LinearAttention(attn, value, mode="last")


def step_of(coef: NDArray) -> NDArray[np.float64]:
    """The M (d, d) in folded coefficients (1, q, d + 1): what multiplies x[l] sum_i y_i x_i[j]."""
    d = coef.shape[2] - 1
    return np.asarray(coef[0, pair_position(d + 1)[:d, d], :d].T, dtype=np.float64)
