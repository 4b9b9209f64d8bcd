"""How well the data determine each head: the covariance of the parameters.

Residuals of standard deviation sigma give the least-squares estimate the covariance

    Cov(attn)  = sigma^2 (J_perp^T J_perp)^-1
    Cov(value) = sigma^2 [ (Z^T Z)^-1 (x) 1  +  B (J_perp^T J_perp)^-1 B^T ],   B = Z^+ J,

to first order: J_perp = (1 - Z Z^+) J is the Jacobian with the values eliminated, whose Gram
matrix is the Hessian of the last step.  With normal noise this is the Cramér–Rao bound.  Where
descent has not come to rest, the step to the linearised minimum is a part of the error as well.

A change of parameters that the examples do not show is *open*, and everything that takes part in it
has an infinite error bar: null vectors of the Hessian with the values that follow them, and those
of Z.  Heads that are distinct and not idle have none on generic real inputs, so an open direction
is a gap in the examples, or else heads are equal or idle up to rounding.  What no input shows
beside the constant of ``bias`` – the last columns of attn, and how the heads share the sum of the
last rows of value – is set by convention and takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, null_space, solve_triangular

from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.polish import Projection, project
from polyattn.softmax.polish.projection import NormalEquations, normal_equations

EPS = float(np.finfo(np.float64).eps)

# Eigenvalues of the Hessian, of columns of length one, are rounding below this times the
# condition of Z: the part that values follow is subtracted in a basis of Z.
ROUNDINGS = 64.0

# A parameter with this part in an open direction is open.
TOUCHED = 1e-3

# Attention smaller than this in scaled units is judged by its absolute error.
SMALL_ATTENTION = 0.1

# Heads that have not come to rest are this many steps away at most: near a double root, where two
# heads are nearly equal, each step goes half of the way.
STEPS_LEFT = 4.0

# No matrix is claimed to be more exact than this: rounding does not average out over examples.
FINEST = 64 * EPS

# Generic inputs: tokens of a sequence, and numbers of output for each unknown.  They must show a
# direction clearly, not just above rounding.
N_TOKENS, EQUATIONS, CLEARLY = 4, 4, 1e4


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of all parameters, and relative errors of whole heads.

    attn, value : arrays like those of the layer; infinite where a parameter is open
    attn_error, value_error : (m,) expected ||error||_F / ||head||_F; infinite for a matrix with
        open parameters
    n_open : independent changes of parameters that the examples do not show
    n_parameters : independent changes that some inputs show
    in_determined : the largest relative error of a matrix, open directions left out
    """

    attn: Matrix
    value: Matrix
    attn_error: Matrix
    value_error: Matrix
    n_open: int
    n_parameters: int
    in_determined: float

    @property
    def worst(self) -> float:
        """The largest expected relative error of an attention or a value matrix."""
        return float(max(self.attn_error.max(), self.value_error.max()))

    def opened(self, attn: NDArray[np.bool_], value: NDArray[np.bool_]) -> Uncertainty:
        """The same, infinite for the parameters marked in ``attn`` and ``value``, like those."""
        return replace(
            self,
            attn=np.where(attn, np.inf, self.attn),
            value=np.where(value, np.inf, self.value),
            attn_error=np.where(attn.any(axis=(1, 2)), np.inf, self.attn_error),
            value_error=np.where(value.any(axis=(1, 2)), np.inf, self.value_error),
        )


def uncertainty(
    examples: Examples,
    projection: Projection,
    sigma: float,
    roundings: float = ROUNDINGS,
    finest: float = FINEST,
) -> Uncertainty:
    """Error bars at a projection for residuals of standard deviation ``sigma``.

    A direction is open where its effect is below so many ``roundings``; no matrix is claimed to be
    more exact than ``finest``.
    Cost: one factorisation of the Hessian, O((m d^2)^3).
    """
    equations = normal_equations(examples, projection)
    whitening, followed = projection.whitening, equations.followed
    # Columns of the whitening have the inverse singular values of Z.
    inverses = np.linalg.norm(whitening, axis=0)
    rounding = roundings * EPS * float(inverses.max() / inverses.min())
    # Lengths (P,) of the columns of J before values are eliminated, none of them zero: columns that
    # are rounding beside others of the same head stay small in these units.
    along = np.sum(followed**2, axis=2)
    squares = np.maximum(np.diag(equations.hessian).reshape(along.shape) + along, 0.0)
    largest = squares.max(axis=1, keepdims=True)
    squares = np.maximum(squares, EPS * np.where(largest > 0, largest, 1.0))
    sizes = np.sqrt(squares).ravel()
    roots, left_open = _inverse_root(equations, sizes, rounding, examples.bias)
    left = STEPS_LEFT * (roots @ (roots.T @ equations.gradient))[:, None]
    attn = np.hypot(sigma * np.linalg.norm(roots, axis=1), left[:, 0])
    attn = attn.reshape(projection.attn.shape)
    own = np.sum(whitening**2, axis=1)[:, None]
    moved = _value_squares(projection, followed, roots)
    squares = sigma**2 * (own + moved) + _value_squares(projection, followed, left)
    value = np.sqrt(squares).reshape(projection.value.shape)
    errors = []
    for error, heads, least in (
        (attn, projection.attn, SMALL_ATTENTION),
        (value, projection.value, np.finfo(float).tiny),
    ):
        norms = np.maximum(np.linalg.norm(heads, axis=(1, 2)), least)
        errors.append(np.hypot(np.linalg.norm(error, axis=(1, 2)) / norms, FINEST))
    # Which entries take part in open directions: of attn, of the values alone, and of values that
    # follow attn, in units of the columns of Z.
    open_attn = np.linalg.norm(left_open, axis=1).reshape(attn.shape) > TOUCHED
    hidden = _hidden_values(projection, examples.bias)
    touched = np.linalg.norm(hidden, axis=1)[:, None] > TOUCHED
    following = np.sqrt(_value_squares(projection, followed, left_open / sizes[:, None]))
    lengths = np.linalg.norm(whitening / np.sum(whitening**2, axis=0), axis=1)
    open_value = (touched | (following * lengths[:, None] > TOUCHED)).reshape(value.shape)
    n_open = left_open.shape[1] + hidden.shape[1] * examples.n_outputs
    n_parameters = examples.n_unknowns(projection.n_heads)
    of_attn, of_value = np.hypot(errors, finest)
    worst = float(np.max(errors))
    bars = Uncertainty(attn, value, of_attn, of_value, n_open, n_parameters, worst)
    return bars.opened(open_attn, open_value)


def open_on_generic_inputs(projection: Projection, bias: bool) -> bool:
    """Whether random tokens, of the size of the scaled examples, leave directions open as well.

    Cost: that of error bars on EQUATIONS times as many numbers as there are parameters.
    """
    _, width, n_outputs = projection.value.shape
    n_parameters = projection.attn.size + projection.value.size
    n_sequences = 1 + EQUATIONS * n_parameters // (N_TOKENS * n_outputs)
    # Always the same tokens: the same heads are judged alike.
    keys = np.random.default_rng(0).standard_normal((n_sequences, N_TOKENS, width))
    if bias:
        keys[:, :, -1] = 1.0
    block = ExampleBlock(keys, np.zeros((n_sequences, N_TOKENS, n_outputs)), None, bias)
    examples = Examples((block,))
    there = replace(project(examples, projection.attn), value=projection.value)
    return uncertainty(examples, there, 1.0, CLEARLY * ROUNDINGS).n_open > 0


def _inverse_root(
    equations: NormalEquations, sizes: Matrix, rounding: float, bias: bool
) -> tuple[Matrix, Matrix]:
    """R (P, rank) with R R^T the inverse of the Hessian, and directions (P, .) left open.

    Open directions are orthonormal in units of the ``sizes`` of the columns of J.  Both are zero
    where no input shows anything: in the last columns of attn beside the constant of ``bias``.
    """
    n_heads, size, _ = equations.followed.shape
    width = round(size**0.5)
    shown = np.tile(np.arange(width) < width - bias, n_heads * width)
    scaled = equations.hessian / sizes / sizes[:, None]
    # Nothing moves there; a one on the diagonal keeps it apart from what is left open.
    scaled[~shown, ~shown] = 1.0
    try:
        lower = cholesky(scaled, lower=True, check_finite=False)
    except LinAlgError:
        lower = None
    # The smallest pivot bounds the smallest eigenvalue from above.
    if lower is not None and np.diag(lower).min() ** 2 > 1e3 * rounding:
        inverse = solve_triangular(lower, np.diag(1 / sizes), lower=True, check_finite=False)
        roots, left_open = inverse.T, np.zeros((len(scaled), 0))
    else:
        values, vectors = eigh(scaled, check_finite=False)
        known = values > rounding
        roots = vectors[:, known] / np.sqrt(values[known]) / sizes[:, None]
        left_open = vectors[:, ~known]
    return roots * shown[:, None], left_open * shown[:, None]


def _hidden_values(projection: Projection, bias: bool) -> Matrix:
    """Directions (m d, .) of the values alone: the null vectors of Z, the same for every output."""
    seen = projection.whitening / np.linalg.norm(projection.whitening, axis=0)
    if bias:
        n_heads, width = projection.value.shape[:2]
        # How the heads share what they do with the constant.
        shares = np.zeros((n_heads, width, n_heads - 1))
        shares[:, -1] = null_space(np.ones((1, n_heads)))
        seen = np.concatenate([seen, shares.reshape(n_heads * width, -1)], axis=1)
    return null_space(seen.T)


def _value_squares(projection: Projection, followed: Matrix, moves: Matrix) -> Matrix:
    """Sums of squares (m d, e) over changes of attn (P, .) of how values follow them, Z^+ J moves.

    Z^+ J = whitening (Q^T J), where Q is the orthonormal basis of Z.
    """
    whitening = projection.whitening
    rank, n_outputs = whitening.shape[1], projection.value.shape[2]
    along = followed.reshape(len(moves), rank * n_outputs).T @ moves
    by_output = along.reshape(rank, n_outputs, moves.shape[1]).transpose(1, 0, 2)
    return np.stack([np.sum((whitening @ part) ** 2, axis=1) for part in by_output], axis=1)
