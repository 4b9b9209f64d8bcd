"""All other differences, from the first: heads change continuously with delta.

Differences delta_0 + t q_j, q_j orthonormal, have c_i and A_i delta near those of delta_0, so that
every solve starts near its answer and heads keep their order.  A solve that fails is tried again
with a smaller t.  As soon as the columns A_i delta stop being independent, their spaces are known,
and r + H + O(1) queries suffice for each difference instead of D + H + O(1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.calibrate import Sizes
from polyattn.softmax.queries.findings import Findings, HeadsAt
from polyattn.softmax.queries.first_difference import First, accepted
from polyattn.softmax.queries.low_rank import column_spaces
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.points import Points, other_directions, points_for_column_spaces

# How far differences lie apart, in calibrated sizes, and how often that is halved.
DISTANCE = 0.3
N_HALVINGS = 4

# Differences that are asked for together.
BLOCK = 8


def sweep(
    pairs: Pairs, sizes: Sizes, first: First, findings: Findings, rng: np.random.Generator
) -> bool:
    """Heads for d independent differences, added to ``findings``; False if one could not be solved.

    Cost: d (D + H + O(1)) queries, or about (r + 4)(D + H) + d (r + H) when A_i have rank r.
    """
    findings.heads.append(first.heads)
    n_dims = pairs.oracle.n_dims
    points, rank = first.points, None
    directions = other_directions(first.heads.delta, rng)
    for begin in range(0, n_dims - 1, BLOCK):
        block = directions[begin : begin + BLOCK]
        if rank is None:
            spaces = column_spaces(findings.heads, pairs)
            if spaces is not None and spaces.shape[2] + len(spaces) < pairs.n_rows:
                points, rank = points_for_column_spaces(pairs, sizes, spaces, rng), spaces.shape[2]
        found = _solve_block(pairs, sizes, first, points, block)
        if found is None and rank is not None:
            # The columns seen so far did not show all of the column space.
            points, rank = first.points, -1
            found = _solve_block(pairs, sizes, first, points, block)
        if found is None:
            return False
        findings.heads.extend(found)
    findings.record(
        "all differences",
        pairs.oracle.n_queries,
        n_differences=len(findings.heads),
        rank=rank if rank is not None and rank > 0 else None,
    )
    return True


def _solve_block(
    pairs: Pairs, sizes: Sizes, first: First, points: Points, directions: NDArray
) -> list[HeadsAt] | None:
    """Heads for delta_0 + t q_j for every row q_j of ``directions``, or None."""
    n_tokens = len(points.tokens)
    found: dict[int, HeadsAt] = {}
    distance = DISTANCE * sizes.delta
    for _ in range(1 + N_HALVINGS):
        missing = [j for j in range(len(directions)) if j not in found]
        if not missing:
            return [found[j] for j in range(len(directions))]
        deltas = first.heads.delta + distance * directions[missing]
        effects = pairs.effect(
            np.tile(points.tokens, (len(missing), 1)), np.repeat(deltas, n_tokens, axis=0)
        ).reshape(len(missing), n_tokens, -1)
        for j, delta, seen in zip(missing, deltas, effects, strict=True):
            solved = points.solve(seen, pairs.sum_of(delta), first.heads.values, delta, pairs.noise)
            if solved is not None and accepted(solved[0], pairs) and _near(first.heads, solved[1]):
                found[j] = solved[1]
        distance /= 2
    return None


def _near(first: HeadsAt, heads: HeadsAt) -> bool:
    """Whether each c_i is nearest to the one it was started from: heads keep their order."""
    apart = np.linalg.norm(heads.values[:, None] - first.values[None], axis=2)
    return bool(np.all(np.argmin(apart, axis=1) == np.arange(len(apart))))
