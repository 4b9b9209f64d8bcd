"""The direct solver: orthogonal factorisation of the features, no condition number squared.

Accepts any data; for at least as many rows as features the rows are factored in a stream
(memory O(p^2)), for fewer the features are held in memory (rows x p numbers).
Equals ``numpy.linalg.lstsq`` on features whose off-diagonal columns are multiplied by sqrt(2).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.features.cubic import cubic_features
from polyattn.features.pairs import feature_weights
from polyattn.solve.minimum_norm import solve_root
from polyattn.solve.solution import Solution
from polyattn.stats import TriangularFactor
from polyattn.stats.rows import Rows


def solve_direct(source: Rows | TriangularFactor, ridge: float) -> Solution:
    """The minimiser by QR (tall) or by singular values (wide)."""
    if isinstance(source, TriangularFactor):
        return replace(solve_factor(source, ridge), statistics=source)
    if source.n_rows >= source.n_features:
        return solve_factor(TriangularFactor.of(source), ridge)
    features, targets = feature_matrix(source)
    return solve_root(features, targets, ridge, source.n_rows, exact_rows=True)


def feature_matrix(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (rows, p) in the coordinates of the norm, and targets (rows, e), both weighted."""
    features = np.empty((rows.n_rows, rows.n_features))
    targets = np.empty((rows.n_rows, rows.n_outputs))
    for block in rows.blocks():
        features[block.first : block.stop] = cubic_features(block.pairs, block.queries).T
        targets[block.first : block.stop] = block.targets.T
    features /= feature_weights(rows.width)
    return features, targets


def solve_factor(factor: TriangularFactor, ridge: float) -> Solution:
    """The minimiser from a triangular factor alone."""
    root = factor.scaled_factor() / feature_weights(factor.width)
    inside = solve_root(root, factor.scaled_projection(), ridge, factor.n_rows)
    return replace(inside, residual_power=inside.residual_power + factor.scaled_residual_power())
