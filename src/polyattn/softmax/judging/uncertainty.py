"""How well the data determine each head: the covariance of the parameters.

Residuals of standard deviation sigma give the least-squares estimate the covariance

    Cov(attn)  = sigma^2 (J_perp^T J_perp)^-1
    Cov(value) = sigma^2 [ (Z^T Z)^-1 (x) 1  +  B (J_perp^T J_perp)^-1 B^T ],   B = Z^+ J,

to first order: J_perp = (1 - Z Z^+) J is the Jacobian with the values eliminated, whose Gram
matrix is the Hessian of the last step.  With normal noise this is the Cramér–Rao bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from polyattn.softmax.examples import Examples
from polyattn.softmax.judging.redundancy import Visible
from polyattn.softmax.polish.normal import normal_equations
from polyattn.softmax.polish.projection import Projection

Matrix = NDArray[np.float64]

# Eigenvalues of the Hessian below this, relative to the largest, are rounding.
RANK_TOLERANCE = 1e-13

# A head with this part in an open direction is open.
TOUCHED = 1e-3

# Attention smaller than this in scaled units is judged by its absolute error.
SMALL_ATTENTION = 0.1


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of all parameters, and relative errors of whole heads.

    attn, value : arrays like those of the layer
    attn_error, value_error : (m,) expected ||error||_F / ||head||_F; infinite for a head that
        the examples leave open in a direction that their tokens show
    """

    sigma: float
    attn: Matrix
    value: Matrix
    attn_error: Matrix
    value_error: Matrix

    @property
    def noticeable(self) -> float:
        """Relative differences between heads that are within three standard deviations."""
        errors = np.concatenate([self.attn_error, self.value_error])
        return min(3 * float(errors.max()), 0.1) if np.all(np.isfinite(errors)) else 0.1

    @property
    def worst(self) -> float:
        """The largest expected relative error of an attention or a value matrix."""
        return float(max(self.attn_error.max(), self.value_error.max()))


def uncertainty(
    examples: Examples, projection: Projection, sigma: float, visible: Visible
) -> Uncertainty:
    """Error bars at a projection for residuals of standard deviation ``sigma``.

    Directions that the tokens do not show are zero by convention and have no error.

    Cost: one factorisation of the Hessian, O((m d^2)^3).
    """
    equations = normal_equations(examples, projection)
    basis = visible.basis()
    roots, left_open = _inverse_root(_restricted(equations.hessian, basis, len(projection.attn)))
    roots, left_open = (_extended(part, basis) for part in (roots, left_open))
    attn = sigma * np.sqrt(np.sum(roots**2, axis=1)).reshape(projection.attn.shape)
    value = sigma * np.sqrt(_value_variances(projection, equations.followed, roots))
    attn_error = _relative(attn, projection.attn, SMALL_ATTENTION)
    attn_error[_touched(left_open, len(attn))] = np.inf
    return Uncertainty(
        sigma, attn, value, attn_error, _relative(value, projection.value, np.finfo(float).tiny)
    )


def _restricted(hessian: Matrix, basis: Matrix | None, n_heads: int) -> Matrix:
    """The Hessian in the visible directions (d^2, rank) of every head; None: all of them."""
    if basis is None:
        return hessian
    size, rank = basis.shape
    blocks = hessian.reshape(n_heads, size, n_heads, size)
    inside = np.einsum("sp,isjt,tq->ipjq", basis, blocks, basis, optimize=True)
    return inside.reshape(n_heads * rank, n_heads * rank)


def _extended(vectors: Matrix, basis: Matrix | None) -> Matrix:
    """Columns over visible directions as columns over attn."""
    if basis is None:
        return vectors
    rank, count = basis.shape[1], vectors.shape[1]
    by_head = vectors.reshape(len(vectors) // rank, rank, count)
    return (basis @ by_head).reshape(len(by_head) * len(basis), count)


def _inverse_root(hessian: Matrix) -> tuple[Matrix, Matrix]:
    """R (P, rank) with R R^T the inverse of the Hessian, and directions that it leaves open."""
    sizes = np.sqrt(np.maximum(np.diag(hessian), np.finfo(np.float64).tiny))
    scaled = hessian / sizes / sizes[:, None]
    try:
        lower = cholesky(scaled, lower=True, check_finite=False)
    except LinAlgError:
        lower = None
    # The smallest pivot bounds the smallest eigenvalue from above.
    if lower is not None and np.diag(lower).min() ** 2 > 1e3 * RANK_TOLERANCE:
        inverse = solve_triangular(lower, np.diag(1 / sizes), lower=True, check_finite=False)
        return inverse.T, np.zeros((len(hessian), 0))
    size, vectors = eigh(hessian, check_finite=False)
    known = size > RANK_TOLERANCE * max(size[-1], np.finfo(np.float64).tiny)
    return vectors[:, known] / np.sqrt(size[known]), vectors[:, ~known]


def _touched(vectors: Matrix, n_heads: int) -> NDArray[np.bool_]:
    """Which heads have a part in the given directions."""
    size, count = vectors.shape
    by_head = vectors.reshape(n_heads, size // n_heads * count)
    return np.linalg.norm(by_head, axis=1) > TOUCHED


def _value_variances(projection: Projection, followed: Matrix, vectors: Matrix) -> Matrix:
    """Diagonals of (Z^T Z)^-1 and of B H^-1 B^T, shape (m, d, e)."""
    whitening = projection.whitening
    n_outputs = projection.value.shape[2]
    own = np.sum(whitening**2, axis=1)[:, None]
    # Z^+ J = whitening (Q^T J): through the directions of attn that are known.
    moved = followed.reshape(-1, followed.shape[2]).T @ vectors
    moved = moved.reshape(whitening.shape[1], n_outputs, -1)
    by_output = [np.sum((whitening @ moved[:, c]) ** 2, axis=1) for c in range(n_outputs)]
    return (own + np.stack(by_output, axis=1)).reshape(projection.value.shape)


def _relative(deviation: Matrix, heads: Matrix, least: float) -> Matrix:
    sizes = np.maximum(np.linalg.norm(heads, axis=(1, 2)), least)
    return np.linalg.norm(deviation, axis=(1, 2)) / sizes
