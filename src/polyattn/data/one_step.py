"""The best layer for regression in context: one step of preconditioned gradient descent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, require_integer, require_number
from polyattn.form.form import Form
from polyattn.form.pairs import pair_position
from polyattn.model import LinearAttention

# Less than this beside one is rounding, in the entries and eigenvalues of correlations.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class OneStep:
    """The best linear attention layer for regression in context: one preconditioned step.

    For inputs of covariance S and tasks w with E[w w^T] = R, the least expected squared error of
    all f(X) = x^T M sum_i y_i x_i is reached by

        M = (1/n) R Gamma^{-1},    Gamma = (1 + 1/n) S R + ((tr S R + noise^2) / n) I,

    the prediction after one step of gradient descent from w = 0, preconditioned by M.  One head
    computes it.  If w and -w are equally likely, as for w ~ N(0, R), no layer with any number of
    heads is better [derivation: docs/derivations/in_context_regression.md].

    Attributes
    ----------
    covariance : array (d, d)
        S, that of the inputs.
    n_examples : int
        n, the examples before the question.
    noise : float
        Standard deviation of the noise on labels.
    task_moment : array (d, d)
        R, the mean of w w^T; the identity by default.
    """

    covariance: NDArray[np.float64] = field(repr=False)
    n_examples: int
    noise: float
    task_moment: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of(
        cls,
        covariance: ArrayLike,
        n_examples: int,
        noise: float = 0.0,
        task_moment: ArrayLike | None = None,
    ) -> OneStep:
        """From covariance and task moment (d, d), the examples and the noise of labels, checked."""
        n = require_integer("n_examples", n_examples)
        S = require_covariance("covariance", covariance)
        if task_moment is None:
            R = np.eye(len(S))
            R.setflags(write=False)
        else:
            R = require_covariance("task_moment", task_moment, definite=False, n_dims=len(S))
        return cls(S, n, require_number("noise", noise), R)

    @property
    def n_dims(self) -> int:
        """d, the coordinates of an input; tokens have one more."""
        return len(self.covariance)

    @property
    def gamma(self) -> NDArray[np.float64]:
        """Gamma (d, d): n M is R times its inverse."""
        S, R, n = self.covariance, self.task_moment, self.n_examples
        spread = (np.trace(S @ R) + self.noise**2) / n
        return (1 + 1 / n) * S @ R + spread * np.eye(self.n_dims)

    @property
    def preconditioner(self) -> NDArray[np.float64]:
        """M (d, d), symmetric."""
        return self.mean_step / self.n_examples

    @property
    def mean_step(self) -> NDArray[np.float64]:
        """n M (d, d): the step for layers that take the mean of y_i x_i and not their sum."""
        # Without tasks and noise Gamma is zero, and so is the best step.
        step = self.task_moment @ np.linalg.pinv(self.gamma)
        return np.asarray((step + step.T) / 2, dtype=np.float64)

    @property
    def risk(self) -> float:
        """The expected squared error of the layer: tr S R - tr(S n M S R)."""
        return self.risk_of(self.mean_step)

    def risk_of(self, mean_step: NDArray) -> float:
        """The expected squared error of f(X) = x^T A (1/n) sum_i y_i x_i for any A (d, d).

        tr S (R - A S R - R S A^T + A B A^T),  B = Gamma S, the second moment of the mean.  The
        target is <w, x>; noise on it adds its variance.
        """
        S, R = self.covariance, self.task_moment
        away = R - 2 * mean_step @ S @ R + mean_step @ self.gamma @ S @ mean_step.T
        return float(np.trace(S @ away))

    @property
    def layer(self) -> LinearAttention:
        """One head in mode ``last``: keys and queries meet in M, the value is the label."""
        return step_layer(self.preconditioner)

    @property
    def form(self) -> Form:
        """What the step needs of attention: means of labels times inputs, without the question."""
        inputs = range(self.n_dims)
        return Form(include_query=False, mean=True, query=inputs, key=inputs, value=[self.n_dims])

    @property
    def mean_layer(self) -> LinearAttention:
        """The same function as ``layer``, of the smaller family ``form``: d^2 coefficients."""
        return LinearAttention(
            self.mean_step, np.ones((1, 1)), form=self.form, n_dims=self.n_dims + 1
        )

    @property
    def plain_rate(self) -> float:
        """The best c of f(X) = c x^T sum_i y_i x_i: one step without a preconditioner."""
        # The size of S cancels, and its square may leave the range of float64.
        S = self.covariance / np.max(self.covariance)
        signal, power = np.trace(S @ S @ self.task_moment), np.trace(S @ self.gamma @ S)
        # Without tasks and noise nothing is to be learned.
        return float(signal / (self.n_examples * power)) if power > 0 else 0.0

    @property
    def plain_risk(self) -> float:
        """The expected squared error of the plain step."""
        return self.risk_of(self.plain_rate * self.n_examples * np.eye(self.n_dims))


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


def require_covariance(
    name: str, given: ArrayLike, definite: bool = True, n_dims: int | None = None
) -> NDArray[np.float64]:
    """A symmetric (d, d) array, read-only; positive definite, or without negative eigenvalues."""
    try:
        matrix = np.empty(0) if np.iscomplexobj(given) else np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    size = "(d, d)" if n_dims is None else str((n_dims, n_dims))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
    square = square and n_dims in (None, len(matrix))
    if not square or not np.all(np.isfinite(matrix)):
        shape = getattr(given, "shape", None)
        came = type(given).__name__ if shape is None else f"shape {shape}"
        raise InvalidInput(
            f"{name} must be a square array {size} of finite real numbers; "
            f"got {came}; for independent coordinates give numpy.eye(d)."
        )
    # Judged as correlations, whatever the units of coordinates.
    units = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    units[units == 0.0] = np.sqrt(np.max(np.abs(matrix))) or 1.0
    scaled = matrix / units[:, None] / units
    least = float(np.linalg.eigvalsh(scaled)[0])
    asymmetry = float(np.max(np.abs(scaled - scaled.T)))
    wrong = least <= ROUNDING if definite else least < -ROUNDING
    if asymmetry > ROUNDING or wrong:
        kind = "definite" if definite else "semidefinite"
        raise InvalidInput(
            f"{name} must be symmetric and positive {kind}; with variances of one, its smallest "
            f"eigenvalue is {least:.3g}, its asymmetry {asymmetry:.3g}."
        )
    matrix = (matrix + matrix.T) / 2
    matrix.setflags(write=False)
    return matrix
