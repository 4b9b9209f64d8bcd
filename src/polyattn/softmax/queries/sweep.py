"""All other differences, from the first: heads change continuously with delta.

Differences delta_0 + t q_j, q_j orthonormal, have c_i and A_i delta near those of delta_0, so that
every solve starts near its answer and heads keep their order.  A solve that fails is tried again
with a smaller t.  As soon as the columns A_i delta stop being independent, their spaces are known,
and r + H + O(1) queries suffice for each difference instead of D + H + O(1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.parallel import map_pieces
from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.joint_diagonalisation import FirstDifference, accepted
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.points import (
    DISTANCE,
    N_HALVINGS,
    NOISY,
    Points,
    other_directions,
    points_for_column_spaces,
)

# How far differences lie from the first one when heads are known approximately.
WIDE = 1.2

# Differences that are queried together.
BLOCK = 8

# A rank is believed when this many more differences brought nothing new.
N_CONFIRMATIONS = 4


def sweep(pairs: Pairs, first: FirstDifference, findings: QueryFindings) -> bool:
    """Heads for d independent differences, added to ``findings``; False if one was not solved.

    Cost: d (D + H + O(1)) queries, or at most about (r + 12)(D + 2 H + 12) + d (r + H + 6) when A_i
    have rank r; two to three times as many where noise matters: more query tokens, and differences
    that lie further apart.
    """
    findings.heads.append(first.heads)
    points, rank = first.points, None
    directions = other_directions(first.heads.delta, pairs.rng)
    for begin in range(0, len(directions), BLOCK):
        block = directions[begin : begin + BLOCK]
        if rank is None:
            spaces = _column_spaces(findings.heads, pairs)
            if spaces is not None and spaces.shape[2] + len(spaces) < pairs.n_rows:
                points, rank = points_for_column_spaces(pairs, spaces), spaces.shape[2]
        found = _solve_block(pairs, first, points, block)
        if found is None and rank:
            # The columns seen so far did not show all of the column space.
            points, rank = first.points, 0
            found = _solve_block(pairs, first, points, block)
        if found is None:
            return False
        findings.heads.extend(found)
    findings.record(
        "all differences",
        pairs.oracle.n_queries,
        n_differences=len(findings.heads),
        rank=rank or None,
    )
    if pairs.noise > NOISY:
        _widen(pairs, points, directions, findings)
    return True


def _solve_block(
    pairs: Pairs, first: FirstDifference, points: Points, directions: NDArray
) -> list[HeadsAt] | None:
    """Heads for delta_0 + t q_j for every row q_j of ``directions``, or None."""
    found: dict[int, HeadsAt] = {}
    distance = DISTANCE * pairs.delta_size
    for _ in range(1 + N_HALVINGS):
        missing = [j for j in range(len(directions)) if j not in found]
        if not missing:
            break
        deltas = first.heads.delta + distance * directions[missing]
        starts = np.broadcast_to(first.heads.values, (len(missing), *first.heads.values.shape))
        solved = _solve_once(pairs, points, deltas, starts)
        found |= {j: heads for j, heads in zip(missing, solved, strict=True) if heads is not None}
        distance /= 2
    return [found[j] for j in sorted(found)] if len(found) == len(directions) else None


def _solve_once(
    pairs: Pairs, points: Points, deltas: NDArray, starts: NDArray
) -> list[HeadsAt | None]:
    """Heads for each row of ``deltas`` (B, d) near the values ``starts`` (B, H, e), if they fit."""
    n_tokens = len(points.tokens)
    effects = pairs.effect(
        np.tile(points.tokens, (len(deltas), 1)), np.repeat(deltas, n_tokens, axis=0)
    )

    def solve(piece: tuple[NDArray, NDArray, NDArray]) -> HeadsAt | None:
        delta, start, seen = piece
        solved = points.solve(seen, pairs.sum_of(delta), start, delta, pairs.noise)
        if solved is None or not accepted(solved[0], pairs) or not _near(start, solved[1]):
            return None
        return solved[1]

    return map_pieces(solve, list(zip(deltas, starts, np.split(effects, len(deltas)), strict=True)))


def _widen(pairs: Pairs, points: Points, directions: NDArray, findings: QueryFindings) -> None:
    """Replace heads by those of differences further apart, which magnify noise less.

    What is known predicts them well enough to start from; where it does not, the old ones stay.
    """
    inverse = np.linalg.pinv(np.stack([at.delta for at in findings.heads]))
    value = np.einsum("dj,jhe->hde", inverse, np.stack([at.values for at in findings.heads]))
    centre = findings.heads[0].delta
    for begin in range(0, len(directions), BLOCK):
        deltas = centre + WIDE * pairs.delta_size * directions[begin : begin + BLOCK]
        starts = np.einsum("bd,hde->bhe", deltas, value)
        for j, heads in enumerate(_solve_once(pairs, points, deltas, starts), start=begin + 1):
            if heads is not None and heads.doubt < 2 * findings.heads[j].doubt:
                findings.heads[j] = heads
    findings.record("wider differences", pairs.oracle.n_queries)


def _near(start: NDArray, heads: HeadsAt) -> bool:
    """Whether each c_i is nearest to the one it was started from: heads keep their order."""
    apart = np.linalg.norm(heads.values[:, None] - start[None], axis=2)
    return bool(np.all(np.argmin(apart, axis=1) == np.arange(len(apart))))


def _column_spaces(heads: list[HeadsAt], pairs: Pairs) -> NDArray[np.float64] | None:
    """Orthonormal bases (H, D, r) of the column spaces, or None while they may still grow.

    r is the largest rank of a head; heads of smaller rank get some directions they do not need.
    Singular values count as zero below 1e-11 of the largest, or what noise explains.
    """
    n_seen = len(heads)
    if n_seen <= N_CONFIRMATIONS:
        return None
    columns = np.stack([at.columns for at in heads], axis=2)
    relative = columns[:, :, 1:] - columns[:, :, :1]
    bases, spectra, _ = np.linalg.svd(relative, full_matrices=False)
    floor = max(1e-11, 3e3 * pairs.noise) * spectra[:, :1]
    rank = int(np.sum(spectra > floor, axis=1).max())
    if rank > n_seen - 1 - N_CONFIRMATIONS:
        return None
    return bases[:, :, : max(rank, 1)]
