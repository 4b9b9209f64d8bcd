"""Problems whose optimum is known in exact rational arithmetic, and every solver to solve them.

Tokens, targets and weights are small integers, so each solver is judged by its distance from the
truth, not from another solver.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from exact_least_squares import ExactProblem, nearest, numbers
from planted import EPS
from polyattn.form.pairs import n_features
from polyattn.reference import features

# Solvers that never square the condition number (primal by its refinement), and those that do.
ACCURATE = ("primal", "direct", "factor")
SQUARING = ("dual", "moments", "iterative")
SOLVERS = ACCURATE + SQUARING


@dataclass(frozen=True)
class ExactTask:
    """Integer data and the exact minimiser of least norm, rounded once at the end."""

    X: list[NDArray]
    Y: NDArray | list[NDArray]
    rows: NDArray  # (rows, e)
    mode: str
    ridge: float
    weights: NDArray | None
    bias: bool
    coef: NDArray  # (e, q, d)
    predicted: NDArray  # (rows, e)
    risk: float
    rank: int
    condition: float  # of the weighted (and penalised, or equilibrated) features
    misfit: float  # ||residual|| / (||phi|| ||theta||)
    dual_condition: float  # how the rounding of a kernel solve reaches the coefficients
    columns: NDArray  # (q, d): norms of the feature columns

    @property
    def n_features(self) -> int:
        return self.columns.size

    @property
    def s(self) -> NDArray:
        """The weights of the norm, (q, d)."""
        return features.norm_weights(self.columns.shape[1]).reshape(self.columns.shape)

    def risk_rounding(self, solver: str) -> float:
        """Below this a risk cannot be told from zero; it is quadratic in the error, but for the
        dual, whose residuals y - K alpha cancel where alpha is large.
        """
        relative = self.tolerance(solver) if solver == "dual" else 1e-13 * self.condition
        return relative * float(np.mean(np.sum(self.rows**2, axis=1)))

    def tolerance(self, solver: str) -> float:
        """The error that perturbations of size eps explain, times a modest constant.

        Least squares: eps (kappa + kappa^2 misfit) [Wedin 1973]; normal equations: eps kappa^2;
        conjugate gradients stop at 1e-12 instead of eps; the dual has a condition of its own.
        """
        linear = self.condition + self.condition**2 * self.misfit
        factor = {"dual": self.dual_condition}.get(
            solver, self.condition**2 if solver in SQUARING else linear
        )
        return factor * (1e-12 if solver == "iterative" else 10 * EPS * self.n_features)


@cache
def exact_task(kind: str, mode: str, ridge: float, variant: str) -> ExactTask:
    """A problem of one of the KINDS whose optimum is computed in rational arithmetic."""
    rng = np.random.default_rng(sum(map(ord, kind + variant)))
    bias = variant == "bias"
    X = integer_sequences(kind, mode, 2, n_features(2 + bias), rng)
    n_outputs = 1 if variant == "one output" else 3
    lengths = [1 if mode == "last" else len(x) for x in X]
    rows = rng.integers(-9, 10, size=(sum(lengths), n_outputs)).astype(float)
    weights = rng.integers(0, 4, size=len(X)).astype(float) if variant == "weights" else None
    if weights is not None:
        weights[0] = 2.0
    row_weights = np.repeat(np.ones(len(X)) if weights is None else weights, lengths)
    exact = ExactProblem.of(X, rows, mode, ridge, bias, weights)
    coef, rank, power = exact.coefficients(), exact.rank, nearest(exact.residual_power)
    s = features.norm_weights(2 + bias)
    root = np.sqrt(row_weights)[:, None] * numbers(exact.psi) / s
    targets = np.sqrt(row_weights)[:, None] * rows
    dual_condition = kernel_condition(root, targets, ridge, rank)
    root = np.concatenate([root, np.sqrt(ridge) * np.eye(len(s))]) if ridge else root
    norms = np.linalg.norm(root, axis=0)
    # A penalty fixes the units; without one, columns may be brought to equal size.
    scale = np.where(norms > 0, norms, 1.0) if not ridge else np.ones_like(norms)
    sigma = np.linalg.svd(root / scale, compute_uv=False)
    sigma = sigma if ridge else sigma[:rank]
    theta_size = float(np.linalg.norm(coef.reshape(n_outputs, -1) * s * scale))
    ends = np.cumsum(lengths)[:-1]
    shape = coef.shape[1:]
    return ExactTask(
        X=X,
        Y=rows if mode == "last" else np.split(rows, ends),
        rows=rows,
        mode=mode,
        ridge=ridge,
        weights=weights,
        bias=bias,
        coef=coef,
        predicted=numbers(exact.predicted),
        risk=nearest(exact.risk),
        rank=rank,
        condition=float(sigma[0] / sigma[-1]) if len(sigma) else 1.0,
        misfit=float(np.sqrt(power)) / (float(sigma[0]) * theta_size) if theta_size else 0.0,
        dual_condition=dual_condition,
        columns=np.where(norms > 0, norms * s, 1.0).reshape(shape),
    )


def kernel_condition(root: NDArray, targets: NDArray, ridge: float, rank: int) -> float:
    """||K|| ||alpha|| / ((sigma + ridge / sigma) ||theta||), with (K + ridge) alpha = y.

    A kernel solve leaves a residual of eps ||K|| ||alpha||, which Phi^T (K + ridge)^-1 turns
    into coefficients.  A tall problem with a small ridge has large alpha = residual / ridge.
    """
    left, sigma, _ = np.linalg.svd(root, full_matrices=False)
    if not ridge:
        left, sigma = left[:, :rank], sigma[:rank]
    sigma = np.maximum(sigma, EPS * sigma[0])
    inside = left.T @ targets
    theta = inside * (sigma / (sigma**2 + ridge))[:, None]
    alpha = np.linalg.norm(inside / (sigma**2 + ridge)[:, None])
    if ridge:
        alpha += np.linalg.norm(targets - left @ inside) / ridge
    reach = 1.0 / np.min(sigma + ridge / sigma)
    return float(sigma[0] ** 2 * alpha * reach / (np.linalg.norm(theta) or 1.0))


def integer_sequences(kind: str, mode: str, d: int, p: int, rng: np.random.Generator) -> list:
    """Integer tokens as floats; lists, since some are ragged."""
    per_sequence = 1 if mode == "last" else 3
    many = 2 * p + 6
    shape = {
        "wide": (max(1, p // (2 * per_sequence)), 3, d),
        "wide units": (4, 3, d),
        "nearly alike": (4, 3, d),
        "square": (p // per_sequence, 3, d),
        "one token": (many, 1, d),
        "duplicates": (p // (2 * per_sequence), 3, d),
    }.get(kind.rstrip(" 0123456789"), (many, 3, d))
    X = rng.integers(-3, 4, size=shape).astype(float)
    if kind == "flat":
        X[..., 1] = -X[..., 0]
    elif kind == "duplicates":
        X = np.repeat(X, 5, axis=0)
    elif kind == "constant":
        X[..., 0] = 2.0
    elif kind == "zero column":
        X[..., 0] = 0.0
    elif kind == "one hot":
        X = np.eye(d)[rng.integers(d, size=shape[:2])]
    elif kind.endswith("units"):
        X[..., 1] *= 1e5
    elif kind.startswith("nearly flat"):
        scale = 2.0 ** int(kind.rsplit(maxsplit=1)[-1])
        X[..., 0] = scale * rng.integers(-3, 4, size=shape[:2])
        X[..., 1] += X[..., 0]
    elif kind.startswith("nearly alike"):
        X *= 2.0 ** int(kind.rsplit(maxsplit=1)[-1])
        X[1] = X[0] + rng.integers(1, 4, size=X[1].shape)
    elif kind == "ragged":
        return [x[: 1 + i % 3] for i, x in enumerate(X)]
    return list(X)


def fit_by(solver: str, task: ExactTask) -> pa.FitResult:
    """The fit by one of the SOLVERS (or ``auto``)."""
    if solver in ("moments", "factor"):
        make = pa.Moments if solver == "moments" else pa.TriangularFactor
        sums = make(task.X[0].shape[1], task.rows.shape[1], task.mode, task.bias)
        sums.update(task.X, task.Y, task.weights)
        return pa.fit(statistics=sums, ridge=task.ridge)
    return pa.fit(
        task.X, task.Y, task.mode, task.ridge,
        solver=solver, bias=task.bias, sample_weight=task.weights,
    )  # fmt: skip
