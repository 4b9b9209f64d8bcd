"""The heads of the first difference, from nothing: Jacobians at several points share their factors.

    d effect / d x' = sum_i w_i(x') a_i c_i^T,      w_i = sigmoid'(z_i(x'))

Two combinations K, L of Jacobians, compressed to their common row and column spaces, have
L^{-1} K = R^{-1} diag(ratios of weights) R with rows of R along the c_i: Jennrich's algorithm.  The
rank of effects, which need no differences, is the number of heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.mixing import Mixing
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.points import Points, points_for_all_rows

# Query tokens by which heads are counted first; doubled while that is not enough.
FIRST_POINTS = 16

# Points at which Jacobians are measured; they are this much larger than those of order-one
# logits, so that weights differ.
N_BASE_POINTS, BASE_SIZE = 4, 2.5

# Combinations of Jacobians that are tried; they need no queries.
N_COMBINATIONS = 24


@dataclass(frozen=True)
class FirstDifference:
    """The heads for delta, and the query tokens that serve for all differences after it."""

    heads: HeadsAt
    points: Points


def first_difference(pairs: Pairs, findings: QueryFindings) -> FirstDifference | None:
    """Separate the heads for a random difference; None when their c_i are not independent.

    Cost: D + H + O(1) effects, and 8 (H + 2) more for the Jacobians of more than one head.
    """
    delta = pairs.random_delta()
    n_heads, spectrum = _count(pairs, delta)
    findings.n_independent = n_heads
    findings.record(
        "number of heads",
        pairs.oracle.n_queries,
        independent_heads=n_heads,
        singular_values=[float(value) for value in spectrum[: n_heads + 3]],
    )
    if n_heads > 1 and n_heads > pairs.n_dims:
        return None
    total = pairs.sum_of(delta)
    starts = [total[None, :]]
    if n_heads > 1:
        derivatives = _jacobians(pairs, delta, min(pairs.n_dims, n_heads + 2))
        starts = _candidates(derivatives, n_heads, pairs.rng)
    points = points_for_all_rows(pairs, n_heads)
    effects = pairs.effect(points.tokens, delta)
    tried = (points.solve(effects, total, start, delta, pairs.noise) for start in starts)
    solved = next((each for each in tried if each is not None and accepted(each[0], pairs)), None)
    findings.record(
        "first difference",
        pairs.oracle.n_queries,
        n_heads=n_heads,
        residual=None if solved is None else solved[0].residual,
    )
    return None if solved is None else FirstDifference(solved[1], points)


def accepted(mixing: Mixing, pairs: Pairs) -> bool:
    """Whether every head fits its sigmoid up to what noise explains."""
    size = float(np.linalg.norm(mixing.unmix, axis=0).max())
    return mixing.residual <= min(1e-3, 1e-11 + 30 * pairs.error * size)


def _count(pairs: Pairs, delta: NDArray) -> tuple[int, NDArray[np.float64]]:
    """How many independent c_i the effects show, and all singular values of the effects.

    At ever more query tokens, until there are more of them than needed.
    """
    n_outputs, total = pairs.oracle.n_outputs, pairs.sum_of(delta)
    effects = np.empty((0, n_outputs))
    while True:
        points = pairs.random_points(max(FIRST_POINTS, len(effects)), 2)
        effects = np.vstack([effects, pairs.effect(points, delta)])
        spectrum = np.linalg.svd(np.vstack([effects, total]), compute_uv=False)
        floor = 10 * pairs.error * np.sqrt(max(effects.shape)) + 1e-14 * spectrum[0]
        rank = int(np.sum(spectrum > floor))
        if rank <= len(effects) - 4 or rank >= n_outputs:
            return max(rank, 1), spectrum


def _jacobians(pairs: Pairs, delta: NDArray, n_directions: int) -> NDArray[np.float64]:
    """Derivatives (N_BASE_POINTS, n_directions, e) along random orthonormal directions.

    Central differences with the step that balances their error step^2 and noise / step.
    Cost: 2 N_BASE_POINTS n_directions queries.
    """
    n_dims = pairs.n_dims
    directions = np.linalg.qr(pairs.rng.standard_normal((n_dims, n_directions)))[0].T
    bases = pairs.random_points(N_BASE_POINTS, BASE_SIZE)
    step = pairs.point_size * max(pairs.noise, 1e-16) ** (1 / 3)
    moves = step * directions
    points = np.stack([bases[:, None] + moves, bases[:, None] - moves])
    effects = pairs.effect(points.reshape(-1, n_dims), delta)
    forward, backward = effects.reshape(2, N_BASE_POINTS, n_directions, -1)
    return (forward - backward) / (2 * step) * pairs.point_size


def _candidates(
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
        # Trustworthy: eigenvalues far apart, and a well-conditioned mixing.
        gap = np.diff(np.sort(values.real)).min() / max(np.abs(values.real).max(), 1e-300)
        mixing = vectors.real.T
        found.append((float(gap) / np.linalg.cond(mixing), mixing @ columns))
    found.sort(key=lambda item: -item[0])
    return [mixing for _, mixing in found[:4]]
