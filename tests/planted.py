"""Regression problems whose answer is known before anything is solved.

Sequences are drawn, their features Phi (in the norm of T) are decomposed once, and the targets
are built backwards from the wanted coefficients theta:

    Y = Phi theta + ridge U S^-1 V^T theta + residual,      Phi = U S V^T,  U^T residual = 0.

Then theta solves (Phi^T Phi + ridge) theta = Phi^T Y exactly, and since it lies in the row space
of Phi it is the solution of least norm: tall, wide and singular problems alike.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.reference import erm, features

EPS = float(np.finfo(np.float64).eps)

#: Kinds of sequences: enough of them, fewer than features, tokens that never fill the space.
KINDS = ("tall", "wide", "flat", "single", "boolean", "one_hot")


@dataclass(frozen=True)
class Problem:
    """Sequences, targets, and all that a solver should find out about them."""

    X: NDArray  # (N, n, d)
    Y: NDArray  # (N, e), or (N, n, e) for causal and full
    mode: str
    ridge: float
    coef: NDArray  # (e, q, d): the minimiser of least norm
    residual_power: float  # sum of the squared residuals of that minimiser
    n_rows: int
    n_features: int
    rank: int
    condition: float  # of the features, within their rank

    @property
    def risk(self) -> float:
        """The mean over predicted positions of the squared residual."""
        return self.residual_power / self.n_rows

    def tolerance(self, squared: bool = False) -> float:
        """A bound for relative errors; ``squared`` for methods that solve normal equations."""
        power = 2 if squared else 1
        return 100 * EPS * self.n_features * self.condition**power


def problem(
    kind: str = "tall",
    mode: str = "last",
    n_dims: int = 3,
    n_outputs: int = 2,
    ridge: float = 0.0,
    noise: float = 0.1,
    seed: int = 0,
) -> Problem:
    """A planted problem of one of the KINDS; ``noise`` is the size of the residual."""
    rng = np.random.default_rng(seed)
    X = sequences(kind, n_dims, rng)
    s = features.norm_weights(n_dims)
    phi = erm.design(list(X), mode) / s
    left, sigma, right = np.linalg.svd(phi, full_matrices=False)
    rank = int(np.count_nonzero(sigma > 1e-10 * sigma[0]))
    left, sigma, right = left[:, :rank], sigma[:rank], right[:rank]
    theta = right.T @ rng.standard_normal((rank, n_outputs))
    unexplained = noise * rng.standard_normal((len(phi), n_outputs))
    unexplained -= left @ (left.T @ unexplained)
    shrunk = ridge * left @ ((right @ theta) / sigma[:, None])
    rows = phi @ theta + shrunk + unexplained
    return Problem(
        X=X,
        Y=rows if mode == "last" else rows.reshape(*X.shape[:2], n_outputs),
        mode=mode,
        ridge=ridge,
        coef=(theta.T / s).reshape(n_outputs, -1, n_dims),
        residual_power=float(np.sum((shrunk + unexplained) ** 2)),
        n_rows=len(rows),
        n_features=len(s),
        rank=rank,
        condition=float(sigma[0] / sigma[-1]) if rank else 1.0,
    )


def sequences(kind: str, n_dims: int, rng: np.random.Generator) -> NDArray:
    """Sequences (N, n, d) of the given kind; all but ``tall`` leave the answer undetermined."""
    n_features = n_dims * n_dims * (n_dims + 1) // 2
    many = 2 * n_features + 20
    if kind == "tall":
        return rng.standard_normal((many, 4, n_dims))
    if kind == "wide":
        return rng.standard_normal((max(1, n_features // 8), 3, n_dims))
    if kind == "flat":
        # The last coordinate is a combination of the others (or zero when there is no other).
        X = rng.standard_normal((many, 4, n_dims))
        X[..., -1] = X[..., :-1].sum(axis=-1)
        return X
    if kind == "single":
        return rng.standard_normal((many, 1, n_dims))
    if kind == "boolean":
        return rng.choice([-1.0, 1.0], size=(many, 4, n_dims))
    if kind == "one_hot":
        return np.eye(n_dims)[rng.integers(n_dims, size=(many, 4))]
    raise ValueError(kind)


def relative_error(found: NDArray, expected: NDArray) -> float:
    """||found - expected|| / ||expected|| (absolute where the answer is zero)."""
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(np.asarray(found) - expected)) / (size or 1.0)
