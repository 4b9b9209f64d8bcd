"""The heads of the first difference: how many there are, and A_i delta, delta V_i of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.calibrate import Sizes, unit_rows
from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.joint_diagonalisation import candidates, jacobians, rank_of_effects
from polyattn.softmax.queries.mixing import Mixing
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.points import Points, points_for_all_rows

# Query tokens of the first look at the number of heads; doubled while that is not enough.
FIRST_LOOK = 16


@dataclass(frozen=True)
class FirstDifference:
    """The heads for delta, and the query tokens that serve for all differences after it."""

    heads: HeadsAt
    points: Points


def first_difference(
    pairs: Pairs, sizes: Sizes, findings: QueryFindings, rng: np.random.Generator
) -> FirstDifference | None:
    """Separate the heads for a random difference; None when their c_i are not independent.

    Cost: D + H + O(1) effects, and 8 (H + 2) more for the Jacobians of more than one head.
    """
    n_dims = pairs.oracle.n_dims
    delta = sizes.delta * unit_rows(rng, 1, n_dims)[0]
    n_heads, spectrum = _count(pairs, delta, sizes, rng)
    findings.n_independent = n_heads
    findings.record(
        "number of heads",
        pairs.oracle.n_queries,
        independent_heads=n_heads,
        singular_values=[float(value) for value in spectrum[: n_heads + 3]],
    )
    if n_heads > 1 and n_heads > n_dims:
        return None
    starts = [pairs.sum_of(delta)[None, :]]
    if n_heads > 1:
        derivatives = jacobians(pairs, delta, sizes, min(n_dims, n_heads + 2), rng)
        starts = candidates(derivatives, n_heads, rng)
    points = points_for_all_rows(pairs, sizes, n_heads, rng)
    solved = _best(pairs, delta, points, starts)
    findings.record(
        "first difference",
        pairs.oracle.n_queries,
        n_heads=n_heads,
        residual=None if solved is None else solved[0].residual,
    )
    return None if solved is None else FirstDifference(solved[1], points)


def accepted(mixing: Mixing | None, pairs: Pairs) -> bool:
    """Whether every head fits its sigmoid up to what noise explains."""
    if mixing is None:
        return False
    size = float(np.linalg.norm(mixing.unmix, axis=0).max())
    return mixing.residual <= min(1e-3, 1e-11 + 30 * pairs.error * size)


def _count(
    pairs: Pairs, delta: NDArray, sizes: Sizes, rng: np.random.Generator
) -> tuple[int, NDArray[np.float64]]:
    """The rank of effects at ever more query tokens, until there are more of them than needed."""
    n_dims, n_outputs = pairs.oracle.n_dims, pairs.oracle.n_outputs
    effects = np.empty((0, n_outputs))
    while True:
        n_new = max(FIRST_LOOK, len(effects))
        points = 2 * sizes.point * unit_rows(rng, n_new, n_dims)
        effects = np.vstack([effects, pairs.effect(points, delta)])
        rank, spectrum = rank_of_effects(effects, pairs.sum_of(delta), pairs.error)
        if rank <= len(effects) - 4 or rank >= n_outputs:
            return max(rank, 1), spectrum


def _best(
    pairs: Pairs, delta: NDArray, points: Points, starts: list[NDArray]
) -> tuple[Mixing, HeadsAt] | None:
    effects = pairs.effect(points.tokens, delta)
    total = pairs.sum_of(delta)
    for start in starts:
        solved = points.solve(effects, total, start, delta, pairs.noise)
        if solved is not None and accepted(solved[0], pairs):
            return solved
    return None
