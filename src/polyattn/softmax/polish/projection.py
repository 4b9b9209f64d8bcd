"""Values eliminated: the best ones for given attention, and what a step in attn sees of them.

With Z = [p_1 X, ..., p_m X] the outputs are Z V, V = [V_1; ...; V_m] stacked: for fixed attn
the values of least squared error are linear regression.  Columns that nothing distinguishes (equal
heads, a constant coordinate) get the solution of least norm.

The Jacobian of a Gauss–Newton step in attn, values eliminated (Kaufman), is never formed.

    J[(r, c), (i, a, b)] = x_r[a] M_ir[b, c],      M_ir = Cov_p(X) V_i      (d, e)

has a Gram matrix that is a product of two small families,

    (J^T J)[(i,a,b), (j,a',b')] = sum_r (x_a x_a') (M_ir M_jr^T)[b, b'],

of which a <= a' suffices; Z Z^+ J, which the values can follow, is taken off through a basis of Z.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, svd

from polyattn.model.softmax import softmax
from polyattn.softmax.examples import ExampleBlock, Examples, Matrix

# Singular values below this, relative to the largest, cannot be told from rounding.
RANK_TOLERANCE = 1e-13

# Numbers in a block of features, and in the largest array of a block of normal equations.
FEATURE_NUMBERS, BLOCK_NUMBERS = 1 << 20, 1 << 22


@dataclass(frozen=True)
class Projection:
    """Values for given heads, and what they leave unexplained.

    attn : (m, d, d);  value : (m, d, e)
    error : ||Y - Z V|| / ||Y||
    whitening : (m d, rank) with Z @ whitening orthonormal
    errors : of the descent that led here, before it and after each step; empty without one
    """

    attn: Matrix
    value: Matrix
    error: float
    whitening: Matrix
    errors: tuple[float, ...] = ()

    @property
    def n_heads(self) -> int:
        """m."""
        return len(self.attn)

    @property
    def stacked_value(self) -> Matrix:
        """[V_1; ...; V_m], shape (m d, e)."""
        return self.value.reshape(-1, self.value.shape[2])


def project(examples: Examples, attn: Matrix) -> Projection:
    """The values of least squared error for heads ``attn`` (m, d, d).

    With ``bias`` the last columns of attn, which no input shows, are set to zero, and the last
    rows of value are equal: the least norm shares what is seen of them, their sum.

    Cost: O(rows m d (m d + e)) beyond the attention patterns; memory of one block.
    """
    if examples.bias:
        attn = np.concatenate([attn[:, :, :-1], np.zeros((*attn.shape[:2], 1))], axis=2)
    n_features = attn.shape[0] * attn.shape[1]
    n_columns = n_features + examples.n_outputs
    triangle = np.zeros((0, n_columns))
    for block in examples.blocks(max(n_columns, FEATURE_NUMBERS // n_columns)):
        rows = np.concatenate([seen(block, attn), block.targets.reshape(block.n_rows, -1)], axis=1)
        triangle = qr(np.concatenate([triangle, rows]), mode="r", check_finite=False)[0]
        triangle = triangle[:n_columns]
    left, sigma, right = svd(triangle[:n_features, :n_features], check_finite=False)
    rank = int(np.count_nonzero(sigma > RANK_TOLERANCE * sigma[0]))
    whitening = right[:rank].T / sigma[:rank]
    value = whitening @ (left[:, :rank].T @ triangle[:n_features, n_features:])
    value = value.reshape(*attn.shape[:2], -1)
    if examples.bias:
        value[:, -1] = value[:, -1].mean(axis=0)
    dropped = left[:, rank:].T @ triangle[:n_features, n_features:]
    lost = np.linalg.norm(triangle[n_features:, n_features:])
    unexplained = np.hypot(lost, np.linalg.norm(dropped))
    size = np.sqrt(examples.power)
    error = float(unexplained / size) if size > 0 else 0.0
    return Projection(attn, value, error, whitening)


@dataclass(frozen=True)
class NormalEquations:
    """hessian (P, P) = J^T (1 - Z Z^+) J and gradient (P,) = J^T (1 - Z Z^+) residual, P = m d^2.

    followed (m, d^2, rank e): the coordinates of Z Z^+ J in the basis of Z.
    """

    hessian: Matrix
    gradient: Matrix
    followed: Matrix


def normal_equations(examples: Examples, projection: Projection) -> NormalEquations:
    """Gram matrix of the projected Jacobian, and the gradient, at a projection.

    Cost: rows m^2 d^4 + 2 rows m d^2 (rank e) + m^2 d^4 rank e flops; memory of one block.
    """
    n_heads, width, n_outputs = projection.value.shape
    size, rank = n_heads * width, projection.whitening.shape[1]
    upper = np.triu_indices(width)
    squares: Matrix = np.zeros((len(upper[0]), size * size))
    gradient: Matrix = np.zeros((width, size))
    followed: Matrix = np.zeros((rank * width, size * n_outputs))
    seen_left: Matrix = np.zeros((rank, n_outputs))
    widest = max(size * size, size * n_outputs, rank * width)
    for block in examples.blocks(max(16, BLOCK_NUMBERS // widest)):
        queries = block.queries.reshape(block.n_rows, width)
        weights = [patterns(block, A) for A in projection.attn]
        features = np.concatenate([p @ block.keys for p in weights], axis=2)
        features = features.reshape(block.n_rows, -1)
        basis = features @ projection.whitening
        residual = block.targets.reshape(block.n_rows, -1) - features @ projection.stacked_value
        slopes = responses(block, weights, projection.value)
        slopes = slopes.reshape(block.n_rows, size, n_outputs)
        inner = np.matmul(slopes, slopes.transpose(0, 2, 1)).reshape(block.n_rows, -1)
        squares += (queries[:, upper[0]] * queries[:, upper[1]]).T @ inner
        gradient += queries.T @ np.matmul(slopes, residual[:, :, None])[:, :, 0]
        based = (basis[:, :, None] * queries[:, None, :]).reshape(block.n_rows, -1)
        followed += based.T @ slopes.reshape(block.n_rows, -1)
        seen_left += basis.T @ residual
    followed = (
        followed.reshape(rank, width, n_heads, width, n_outputs)
        .transpose(2, 1, 3, 0, 4)
        .reshape(n_heads, width * width, rank * n_outputs)
    )
    gradient = gradient.reshape(width, n_heads, width).transpose(1, 0, 2).reshape(-1)
    # The part of the residual that values could follow is rounding, but it is divided by the
    # squares of small singular values of J: without it, only by these.
    gradient -= followed.reshape(len(gradient), -1) @ seen_left.reshape(-1)
    # squares holds a <= a' only, as rows; its columns are (i, b, j, b').
    pieces = squares.reshape(-1, n_heads, width, n_heads, width)
    hessian = np.empty((n_heads, width, width, n_heads, width, width))
    hessian[:, upper[0], :, :, upper[1]] = pieces
    hessian[:, upper[1], :, :, upper[0]] = pieces
    flat = hessian.reshape(len(gradient), len(gradient))
    along = followed.reshape(len(gradient), -1)
    flat -= along @ along.T
    return NormalEquations((flat + flat.T) / 2, gradient, followed)


def patterns(block: ExampleBlock, A: Matrix) -> Matrix:
    """softmax(x A X^T) of every query, shape (B, r, n); zero where a query does not see."""
    logits = (block.queries @ A) @ block.keys.transpose(0, 2, 1)
    if block.hidden is not None:
        logits[:, block.hidden] = -np.inf
    return softmax(logits)


def seen(block: ExampleBlock, attn: Matrix) -> Matrix:
    """Z = [p_1 X, ..., p_m X], the mean tokens that the heads see, shape (B r, m d)."""
    columns = [patterns(block, A) @ block.keys for A in attn]
    return np.concatenate(columns, axis=2).reshape(block.n_rows, -1)


def responses(block: ExampleBlock, weights: list[Matrix], value: Matrix) -> Matrix:
    """Cov_p(X) V of every query and head, shape (B r, m, d, e), for patterns and values (m, d, e).

    The derivative of a head's output: d y_c / d A[a, b] = x_a (Cov_p(X) V)[b, c].  It is zero for
    the constant of ``bias``, and not only up to rounding: nothing moves there.
    """
    keys = block.keys
    parts = []
    for pattern, V in zip(weights, value, strict=True):
        outputs = keys @ V
        centred = outputs[:, None] - (pattern @ outputs)[:, :, None]
        centred *= pattern[..., None]
        parts.append(centred)
    together = np.matmul(keys.transpose(0, 2, 1)[:, None], np.concatenate(parts, axis=3))
    n_heads, width, n_outputs = value.shape
    together = together.reshape(block.n_rows, width, n_heads, n_outputs)
    if block.bias:
        together[:, -1] = 0.0
    return together.transpose(0, 2, 1, 3)
