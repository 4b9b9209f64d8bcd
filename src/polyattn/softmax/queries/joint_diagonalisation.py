"""The heads of one difference, from nothing: Jacobians at several points share their factors.

    d effect / d x' = sum_i w_i(x') a_i c_i^T,      w_i = sigmoid'(z_i(x'))

Two combinations K, L of Jacobians, compressed to their common row and column spaces, have
L^{-1} K = R^{-1} diag(ratios of weights) R with rows of R along the c_i: Jennrich's algorithm.  The
rank of effects, which need no differences, is the number of heads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.calibrate import Sizes, unit_rows
from polyattn.softmax.queries.pairs import Pairs

N_BASE_POINTS = 4

# Base points are this much larger than those of order-one logits, so that weights differ.
BASE_SIZE = 2.5

# Combinations of Jacobians that are tried; they need no queries.
N_COMBINATIONS = 24


def rank_of_effects(effects: NDArray, total: NDArray, error: float) -> tuple[int, NDArray]:
    """How many independent c_i the effects (Q, e) show, and all singular values."""
    spectrum = np.linalg.svd(np.vstack([effects, total]), compute_uv=False)
    floor = 10 * error * np.sqrt(max(effects.shape)) + 1e-14 * spectrum[0]
    return int(np.sum(spectrum > floor)), spectrum


def jacobians(
    pairs: Pairs,
    delta: NDArray,
    sizes: Sizes,
    n_directions: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Derivatives (N_BASE_POINTS, n_directions, e) along random orthonormal directions.

    Central differences with the step that balances their error step^2 and noise / step.
    Cost: 2 N_BASE_POINTS n_directions queries.
    """
    n_dims = pairs.oracle.n_dims
    directions = np.linalg.qr(rng.standard_normal((n_dims, n_directions)))[0].T
    bases = BASE_SIZE * sizes.point * unit_rows(rng, N_BASE_POINTS, n_dims)
    step = sizes.point * max(pairs.noise, 1e-16) ** (1 / 3)
    moves = step * directions
    points = np.stack([bases[:, None] + moves, bases[:, None] - moves])
    effects = pairs.effect(points.reshape(-1, n_dims), delta)
    forward, backward = effects.reshape(2, N_BASE_POINTS, n_directions, -1)
    return (forward - backward) / (2 * step) * sizes.point


def candidates(
    derivatives: NDArray[np.float64], n_heads: int, rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Directions (H, e) near the c_i, from several combinations, the most trustworthy first."""
    n_bases = len(derivatives)
    left = np.linalg.svd(np.concatenate(list(derivatives), axis=1), full_matrices=False)[0]
    right = np.linalg.svd(np.concatenate(list(derivatives), axis=0), full_matrices=False)[2]
    rows, columns = left[:, :n_heads], right[:n_heads]
    cores = rows.T @ derivatives @ columns.T
    found: list[tuple[float, NDArray]] = []
    for _ in range(N_COMBINATIONS):
        weights = rng.standard_normal((2, n_bases))
        first, second = np.tensordot(weights, cores, axes=1)
        if np.linalg.cond(second) > 1e12:
            continue
        values, vectors = np.linalg.eig(np.linalg.solve(second, first).T)
        if np.any(np.abs(values.imag) > 1e-6 * np.abs(values).max()):
            continue
        mixing = vectors.real.T
        found.append((_gap(values.real) / np.linalg.cond(mixing), mixing @ columns))
    found.sort(key=lambda item: -item[0])
    return [mixing for _, mixing in found[:4]]


def _gap(values: NDArray) -> float:
    """Smallest distance of eigenvalues, relative to the largest."""
    if len(values) < 2:
        return 1.0
    return float(np.diff(np.sort(values)).min() / max(np.abs(values).max(), 1e-300))
