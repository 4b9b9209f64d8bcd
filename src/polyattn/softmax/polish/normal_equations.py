"""The normal equations of a Gauss–Newton step in attn, values eliminated (Kaufman).

    J[(r, c), (i, a, b)] = x_r[a] M_ir[b, c],      M_ir = Cov_p(X) V_i      (d, e)

is never formed.  Its Gram matrix is a product of two small families,

    (J^T J)[(i,a,b), (j,a',b')] = sum_r (x_a x_a') (M_ir M_jr^T)[b, b'],

of which a <= a' suffices: 4e times cheaper than multiplying J with itself.  The part that the
values can follow, Z Z^+ J, is taken off through an orthonormal basis of Z.  Memory: one block
of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish.projection import Projection, patterns, responses

Matrix = NDArray[np.float64]

# Numbers in the largest array of a block.
BLOCK_NUMBERS = 1 << 22


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

    Cost: rows m^2 d^4 + 2 rows m d^2 (rank e) + m^2 d^4 rank e flops.
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
        basis, residual, slopes = _rows(block, projection)
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
    return NormalEquations(_assembled(squares, followed), gradient, followed)


def _rows(block: ExampleBlock, projection: Projection) -> tuple[Matrix, Matrix, Matrix]:
    """Orthonormal features (rows, rank), residuals (rows, e), slopes M (rows, m d, e)."""
    n_heads, width, n_outputs = projection.value.shape
    weights = [patterns(block, A) for A in projection.attn]
    features = np.concatenate([p @ block.keys for p in weights], axis=2)
    features = features.reshape(block.n_rows, -1)
    residual = block.targets.reshape(block.n_rows, -1) - features @ projection.stacked_value
    slopes = responses(block, weights, projection.value)
    slopes = slopes.reshape(block.n_rows, n_heads * width, n_outputs)
    return features @ projection.whitening, residual, slopes


def _assembled(squares: Matrix, followed: Matrix) -> Matrix:
    """sum (x_a x_a') (M_i M_j^T)[b, b'] over rows (i, a, b) and columns, less what is followed.

    squares holds a <= a' only, as rows; its columns are (i, b, j, b').
    """
    n_heads, size, _ = followed.shape
    width = round(size**0.5)
    upper = np.triu_indices(width)
    pieces = squares.reshape(-1, n_heads, width, n_heads, width)
    hessian = np.empty((n_heads, width, width, n_heads, width, width))
    hessian[:, upper[0], :, :, upper[1]] = pieces
    hessian[:, upper[1], :, :, upper[0]] = pieces
    flat = hessian.reshape(n_heads * size, n_heads * size)
    along = followed.reshape(n_heads * size, -1)
    flat -= along @ along.T
    return (flat + flat.T) / 2
