"""Rows of examples, and one pattern for all heads: the p with y_r = p X S, and what follows for A.

If all heads attend alike on a row, y_r = p X S with p on the simplex.  In an orthonormal basis E of
the vectors of sum zero p = 1/n + E a, and a is a least-squares problem of n - 1 unknowns and e
equations.  An error of size one in every output moves p by the covariance

    C = E (E^T X S S^T X^T E)^-1 E^T,

and log(p_j / p_l) by deviation^2 = C_jj / p_j^2 + C_ll / p_l^2 - 2 C_jl / (p_j p_l).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.softmax.examples import ExampleBlock, Examples, Matrix

# Rows that the phases before the search look at; more of them sharpen nothing that counts.
MOST_ROWS = 1 << 19

# Patterns with a smaller weight than this have no usable logarithm.
LEAST_WEIGHT = 0.02

# Rows of X S closer together than this (condition number squared) do not determine p.
LEAST_SPREAD = 1e-8


def views(training: Examples) -> tuple[ExampleBlock, ...]:
    """Blocks without hidden keys: position r of a causal sequence is the last of r + 1 tokens.

    Lengths in which no query sees a second token stay: they show the sum of the values.
    """
    if training.n_rows > MOST_ROWS:
        training = training.first(max(1, len(training) * MOST_ROWS // training.n_rows))
    blocks: list[ExampleBlock] = []
    for group in training.groups:
        keys, targets, hidden = group.keys, group.targets, group.hidden
        if hidden is None or not hidden.any():
            blocks.append(ExampleBlock(keys, targets, None))
            continue
        length = keys.shape[1]
        if not np.array_equal(hidden, ~np.tri(length, dtype=bool)):
            raise InvalidInput(
                "sculpting takes the modes 'full', 'causal' and 'last'; here keys are hidden in "
                "another pattern."
            )
        blocks += [
            ExampleBlock(keys[:, : r + 1], targets[:, r : r + 1], None) for r in range(length)
        ]
    if all(block.keys.shape[1] == 1 for block in blocks):
        raise InvalidInput(
            "sculpting needs sequences in which a query sees at least two tokens; all of these "
            "have one, and with one token attention has no choice."
        )
    return tuple(blocks)


class RowFit(NamedTuple):
    """Patterns (B, r, n) of all rows of a block; covariance (B, n, n) of their error.

    residual (B, r) : the error per output that no pattern explains, relative to how far apart
        the rows of X S are; inf where there is no usable pattern, or no equation to spare
    """

    block: ExampleBlock
    pattern: Matrix
    covariance: Matrix
    residual: Matrix


def fit_rows(block: ExampleBlock, S: Matrix) -> RowFit:
    """The pattern of least squared error for every row, with its residual.

    Cost: O(B n^3 + rows n e).
    """
    keys = block.keys
    length, n_outputs = keys.shape[1], S.shape[1]
    outputs = keys @ S
    mean = outputs.mean(axis=1, keepdims=True)
    basis = sum_zero_basis(length)
    features = basis.T @ outputs
    spread, axes = np.linalg.eigh(features @ features.transpose(0, 2, 1))
    determined = spread[:, 0] > np.maximum(LEAST_SPREAD * spread[:, -1], np.finfo(float).tiny)
    safe = np.where(determined[:, None], spread, 1.0)
    inverse = (axes / safe[:, None, :]) @ axes.transpose(0, 2, 1)
    apart = block.targets - mean
    weights = apart @ features.transpose(0, 2, 1) @ inverse
    left = np.linalg.norm(apart - weights @ features, axis=2)
    pattern = 1 / length + weights @ basis.T
    spare = n_outputs - (length - 1)
    size = np.sqrt(np.sum(safe, axis=1) / length)
    residual = left / (np.sqrt(max(spare, 1)) * size[:, None])
    usable = (pattern.min(axis=2) >= LEAST_WEIGHT) & determined[:, None] & (spare > 0)
    return RowFit(block, pattern, basis @ inverse @ basis.T, np.where(usable, residual, np.inf))


def sum_zero_basis(length: int) -> Matrix:
    """Orthonormal columns (n, n - 1) that span the vectors of sum zero."""
    columns = np.concatenate([np.ones((length, 1)), np.eye(length)[:, : length - 1]], axis=1)
    return np.linalg.qr(columns)[0][:, 1:]


class Constraints(NamedTuple):
    """What holds for every A_i by some rows: <normals, A> = rhs, up to a multiple of ``deviation``.

    normals (Q, d, d) = x_r (x_j - x_l)^T;  rhs (Q,) = log(p_j / p_l);  deviation (Q,)
    row (Q,) : which row a constraint belongs to
    """

    normals: Matrix
    rhs: Matrix
    deviation: Matrix
    row: NDArray[np.intp]


def constraints(fit: RowFit, chosen: NDArray[np.intp], first_row: int = 0) -> Constraints:
    """n - 1 constraints for each of the ``chosen`` rows (flat indices): all keys against the top.

    The top key has the weight with the best logarithm; the other differences follow from these.
    Rows are numbered from ``first_row`` on.
    """
    keys = fit.block.keys
    _, n_queries, length = fit.pattern.shape
    example, query = np.divmod(chosen, n_queries)
    p = fit.pattern[example, query]
    top = p.argmax(axis=1)[:, None]
    other = (top + np.arange(1, length)) % length
    p_top, p_other = np.take_along_axis(p, top, 1), np.take_along_axis(p, other, 1)
    C = fit.covariance[example]
    each = np.arange(len(chosen))[:, None]
    variance = (
        C[each, other, other] / p_other**2
        + C[each, top, top] / p_top**2
        - 2 * C[each, other, top] / (p_other * p_top)
    )
    differences = keys[example[:, None], other] - keys[example[:, None], top]
    normals = fit.block.queries[example, query][:, None, :, None] * differences[:, :, None, :]
    return Constraints(
        normals.reshape(-1, *normals.shape[2:]),
        np.log(p_other / p_top).reshape(-1),
        np.sqrt(variance).reshape(-1),
        np.repeat(first_row + np.arange(len(chosen)), length - 1),
    )
