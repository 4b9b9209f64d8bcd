"""The normal equations of a Gauss–Newton step in attn, values eliminated (Kaufman).

    J[(r, c), (i, a, b)] = x_r[a] M_ir[b, c],      M_ir = Cov_p(X) V_i      (d, e)

is never formed.  Its Gram matrix is a product of two small families,

    (J^T J)[(i,a,b), (j,a',b')] = sum_r (x_a x_a') (M_ir M_jr^T)[b, b'],

which costs 2e times less than multiplying J with itself; the part that the values can follow,
Z Z^+ J, is taken off through an orthonormal basis of Z.  Memory: one block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Block, Examples
from polyattn.softmax.polish.patterns import patterns, responses
from polyattn.softmax.polish.projection import Projection

Matrix = NDArray[np.float64]

# Numbers in the largest array of a block.
BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class NormalEquations:
    """hessian (P, P) = J^T (1 - Z Z^+) J and gradient (P,) = J^T residual, P = m d^2.

    followed (m, d^2, rank e): the coordinates of Z Z^+ J in the basis of Z.
    """

    hessian: Matrix
    gradient: Matrix
    followed: Matrix


def normal_equations(examples: Examples, projection: Projection) -> NormalEquations:
    """Gram matrix of the projected Jacobian, and the gradient, at a projection.

    Cost: rows m^2 d^4 + rows m d^2 (rank e) + m^2 d^4 rank e flops.
    """
    n_heads, n_dims, n_outputs = projection.value.shape
    rank = projection.whitening.shape[1]
    pairs = [(i, j) for i in range(n_heads) for j in range(i, n_heads)]
    squares = np.zeros((len(pairs), n_dims * n_dims, n_dims * n_dims))
    gradient = np.zeros((n_heads, n_dims, n_dims))
    followed = np.zeros((n_heads, rank * n_dims, n_dims * n_outputs))
    widest = n_dims * max(n_heads * n_outputs, n_dims, rank)
    for block in examples.blocks(max(16, BLOCK_NUMBERS // widest)):
        queries = block.queries.reshape(block.n_rows, n_dims)
        basis, residual, slopes = _rows(block, projection)
        outer = _outer(queries, queries)
        based = _outer(basis, queries)
        for i, slope in enumerate(slopes):
            felt = np.matmul(slope, residual[:, :, None])[:, :, 0]
            gradient[i] += queries.T @ felt
            followed[i] += based.T @ slope.reshape(block.n_rows, -1)
        for index, (i, j) in enumerate(pairs):
            inner = np.matmul(slopes[i], slopes[j].transpose(0, 2, 1))
            squares[index] += outer.T @ inner.reshape(block.n_rows, -1)
    followed = (
        followed.reshape(n_heads, rank, n_dims, n_dims, n_outputs)
        .transpose(0, 2, 3, 1, 4)
        .reshape(n_heads, n_dims * n_dims, rank * n_outputs)
    )
    return NormalEquations(_assembled(squares, followed, pairs), gradient.reshape(-1), followed)


def _rows(block: Block, projection: Projection) -> tuple[Matrix, Matrix, list[Matrix]]:
    """Orthonormal features (rows, rank), residuals (rows, e), slopes M_i (rows, d, e)."""
    weights = [patterns(block, A) for A in projection.attn]
    features = np.concatenate([p @ block.keys for p in weights], axis=2)
    features = features.reshape(block.n_rows, -1)
    residual = block.targets.reshape(block.n_rows, -1) - features @ projection.stacked_value
    slopes = [responses(block, p, V) for p, V in zip(weights, projection.value, strict=True)]
    return features @ projection.whitening, residual, slopes


def _outer(left: Matrix, right: Matrix) -> Matrix:
    """Row by row the products left[a] right[b], shape (rows, a b)."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _assembled(squares: Matrix, followed: Matrix, pairs: list[tuple[int, int]]) -> Matrix:
    """Blocks (i, j) of sum (x_a x_a') (..)[b, b'] as one symmetric matrix over (i, a, b)."""
    n_heads, size, _ = followed.shape
    n_dims = round(size**0.5)
    hessian = np.empty((n_heads, size, n_heads, size))
    for (i, j), square in zip(pairs, squares, strict=True):
        block = square.reshape(n_dims, n_dims, n_dims, n_dims)
        block = block.transpose(0, 2, 1, 3).reshape(size, size)
        block = block - followed[i] @ followed[j].T
        hessian[i, :, j] = block
        hessian[j, :, i] = block.T
    flat = hessian.reshape(n_heads * size, n_heads * size)
    return (flat + flat.T) / 2
