"""Tests whether residuals are a function of the tokens, or of the outputs themselves.

Noise is neither.  Residuals are regressed on families of functions that a softmax layer of these
heads does not contain, one family after the other:

    linear     the query token and the mean of the tokens that it attends to
    products   products of two coordinates of the query token
    curves     of a row's query and mean: tanh of random combinations
    bends      squares, cubes and signed squares of the fitted output itself

For independent noise of standard deviation sigma the explained squares are at most sigma^2 times
a chi-square number with one degree for each function and output: residuals of training are
orthogonal to all that the heads can follow, which only makes them smaller.  So the scores are
z-scores that noise of any distribution passes, up to the central limit theorem.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.softmax.examples import Block, Examples
from polyattn.softmax.judging.residuals import Residuals, chi_square_score
from polyattn.softmax.polish.patterns import patterns, seen
from polyattn.softmax.polish.projection import Projection

Matrix = NDArray[np.float64]

STRUCTURES = ("linear", "products", "curves", "bends")

# Rows that are looked at, rows for each function at least, and random combinations.
MOST_ROWS, ROWS_FOR_EACH, N_CURVES = 20_000, 8, 24

# Functions of norm one that are nearer to the others than this say nothing new.
NEW = 1e-6


def structure_scores(
    examples: Examples, left: Residuals, projection: Projection, sigma: float
) -> dict[str, float]:
    """z-scores by family; families with too many functions for the rows are left out.

    Cost: O(rows k^2) for k functions of a family.
    """
    tokens, outputs = _rows(examples, projection)
    residual = left.values[: len(tokens)] / sigma
    scores = {}
    for name, functions in _families(tokens, examples.width):
        if functions.shape[1] * ROWS_FOR_EACH <= len(tokens):
            basis = _orthonormal(functions)
            explained = float(np.sum((basis.T @ residual) ** 2))
            scores[name] = chi_square_score(explained, basis.shape[1] * residual.shape[1])
    scores["bends"] = _bends(outputs, residual)
    return scores


def _rows(examples: Examples, projection: Projection) -> tuple[Matrix, Matrix]:
    """Query beside mean token (rows, 2 d), and fitted outputs (rows, e), in the order of left."""
    tokens: list[Matrix] = []
    outputs: list[Matrix] = []
    width, n_rows = examples.width, 0
    for block in examples.blocks(MOST_ROWS):
        tokens.append(np.concatenate([block.queries, _means(block)], axis=2).reshape(-1, 2 * width))
        outputs.append(seen(block, projection.attn) @ projection.stacked_value)
        n_rows += block.n_rows
        if n_rows >= MOST_ROWS:
            break
    return np.concatenate(tokens), np.concatenate(outputs)


def _means(block: Block) -> Matrix:
    """The mean of the tokens that each query attends to: a head of zero attention."""
    width = block.keys.shape[2]
    return np.asarray(patterns(block, np.zeros((width, width))) @ block.keys)


def _families(tokens: Matrix, width: int) -> Iterator[tuple[str, Matrix]]:
    yield "linear", np.concatenate([np.ones((len(tokens), 1)), tokens], axis=1)
    first, second = np.triu_indices(width)
    yield "products", tokens[:, first] * tokens[:, second]
    # Always the same combinations: a judge draws no lots.
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((tokens.shape[1], N_CURVES)) / np.sqrt(width)
    yield "curves", np.tanh(tokens @ directions + rng.standard_normal(N_CURVES))


def _bends(outputs: Matrix, residual: Matrix) -> float:
    """Each output's residuals against curves of that output alone."""
    explained, freedom = 0.0, 0
    for fitted, column in zip(outputs.T, residual.T, strict=True):
        basis = _orthonormal(np.stack([fitted**2, fitted**3, fitted * np.abs(fitted)], axis=1))
        explained += float(np.sum((basis.T @ column) ** 2))
        freedom += basis.shape[1]
    return chi_square_score(explained, freedom)


def _orthonormal(functions: Matrix) -> Matrix:
    """Orthonormal columns with the same span."""
    sizes = np.linalg.norm(functions, axis=0)
    basis, triangle, _ = qr(
        functions / np.where(sizes > 0, sizes, 1.0),
        mode="economic",
        pivoting=True,
        check_finite=False,
    )
    return np.asarray(basis[:, np.abs(np.diag(triangle)) > NEW], dtype=np.float64)
