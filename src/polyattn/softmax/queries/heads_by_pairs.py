"""Heads by pairs of tokens: those of a first difference from nothing, all others from the first.

    d effect / d x' = sum_i w_i(x') a_i c_i^T,      w_i = sigmoid'(z_i(x'))

Two combinations K, L of Jacobians, compressed to their common row and column spaces, have
L^{-1} K = R^{-1} diag(ratios of weights) R with rows of R along the c_i: Jennrich's algorithm.

Differences delta_0 + t q_j, q_j orthonormal, have c_i and A_i delta near those of delta_0, so that
every solve starts near its answer and heads keep their order.  As soon as the columns A_i delta
stop being independent, their spaces are known, and fewer queries suffice for each difference.
"""

from __future__ import annotations

from math import isinf

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.parallel import map_pieces
from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.mixing import (
    DISTANCE,
    N_HALVINGS,
    POINT_SIZE,
    Points,
    other_directions,
)
from polyattn.softmax.queries.pairs import NOISY, Pairs
from polyattn.softmax.queries.precision import ROUGH
from polyattn.softmax.queries.refine import follow, refine, sum_again

# Query tokens by which heads are counted first, also of rough answers; doubled while that is not
# enough.
FIRST_POINTS, ROUGH_POINTS = 16, 96

# Points at which Jacobians are measured.
N_BASE_POINTS = 4

# Of rough answers there are so many times as many points and directions, and a larger step.
MORE, ROUGH_STEP = 3, 0.5

# The largest condition of values that rough answers can tell apart.
MOST_ALIKE = 1e3

# Residuals that a fit of rough answers may leave, in rms errors of an effect.
ROUGH_FIT = 6.0

# How often the size of differences is doubled where rough answers do not show the heads.
N_DOUBLINGS = 2

# Combinations of Jacobians that are tried; they need no queries.
N_COMBINATIONS = 24

# How far differences lie from the first one when heads are known approximately.
WIDE = 1.2

# Logits below this leave no weight that matters.
NEVER = -10.0

# Differences that are queried together.
BLOCK = 8

# A rank is taken for known when this many more differences brought nothing new.
N_CONFIRMATIONS = 4


def heads_by_pairs(pairs: Pairs, findings: QueryFindings) -> bool:
    """Add the heads for d independent differences to ``findings``; False if one was not solved.

    Cost: d (D + H + O(1)) queries, or at most about (r + 12)(D + 2 H + 12) + d (r + H + 6) when A_i
    have rank r; two to three times as many where noise matters.
    """
    rough, turns = pairs.total.noise > ROUGH, findings.structure.turns
    if rough and not turns:
        # An error of b in all effects would look like a head.
        sum_again(pairs, POINT_SIZE * pairs.point_size)
    found = _first_difference(pairs, findings)
    # Tokens that have a largest norm would not fit.
    free = isinf(pairs.oracle.token_limit) and not turns
    calibrated = pairs.delta_size
    for _ in range(N_DOUBLINGS if rough and free else 0):
        if found is None:
            # Larger effects stand out of the noise, as long as they are not all saturated.
            pairs.delta_size *= 2
            found = _first_difference(pairs, findings)
    if found is None:
        pairs.delta_size = calibrated
        return False
    findings.recorder.present = "all differences"
    if rough and not turns:
        solved = follow(pairs, findings, found[0])
    else:
        solved = _all_differences(pairs, findings, *found)
    if not solved or pairs.total.noise <= NOISY:
        return solved
    return _widened(pairs, findings) if turns else _refined(pairs, findings)


def _all_differences(
    pairs: Pairs, findings: QueryFindings, first: HeadsAt, points_of_first: Points
) -> bool:
    """Add ``first`` and the heads for d - 1 differences near it; False if one was not solved."""
    findings.heads.append(first)
    points, rank = points_of_first, None
    directions = other_directions(first.delta, pairs.rng)
    for begin in range(0, len(directions), BLOCK):
        block = directions[begin : begin + BLOCK]
        if rank is None:
            spaces = _column_spaces(findings.heads, pairs)
            if spaces is not None and spaces.shape[2] + len(spaces) < pairs.n_rows:
                n_seen, rank = len(findings.heads) - 1, spaces.shape[2]
                points = Points.for_column_spaces(pairs, spaces, n_seen)
        solved = _solve_block(pairs, first, points, block)
        if solved is None and rank:
            # The columns seen so far did not show all of the column space.
            points, rank = points_of_first, 0
            solved = _solve_block(pairs, first, points, block)
        if solved is None:
            return False
        findings.heads.extend(solved)
    findings.record(n_differences=len(findings.heads), rank=rank or None)
    return True


def _refined(pairs: Pairs, findings: QueryFindings) -> bool:
    """Refine the heads; where that is not possible, they stay as they are."""
    findings.recorder.present = "refinement"
    refined = refine(pairs, findings)
    findings.record(refined=refined, noise=list(pairs.total.by_size or ()))
    return True


def _first_difference(pairs: Pairs, findings: QueryFindings) -> tuple[HeadsAt, Points] | None:
    """The heads for a random difference, and the query tokens that serve for all others, too.

    None when the c_i are not independent, or one of them is the difference itself.
    Cost: D + H + O(1) effects, and 8 (H + 2) more for the Jacobians of more than one head.
    """
    findings.recorder.present = "number of heads"
    delta = pairs.random_delta()
    total, n_outputs = delta @ pairs.total.value, pairs.oracle.n_outputs
    effects = np.empty((0, n_outputs))
    n_first = ROUGH_POINTS if pairs.total.noise > ROUGH else FIRST_POINTS
    # Effects at ever more query tokens, until these are more than the c_i that effects show.
    while True:
        tokens = pairs.random_points(max(n_first, len(effects)), 2)
        effects = np.vstack([effects, pairs.effect(tokens, delta)])
        spectrum = np.linalg.svd(np.vstack([effects, total]), compute_uv=False)
        floor = _floor(pairs, effects, tokens) + 1e-14 * spectrum[0]
        n_heads = int(np.sum(spectrum > floor))
        if n_heads <= len(effects) - 4 or n_heads >= n_outputs:
            break
    findings.n_independent = n_heads = max(n_heads, 1)
    findings.record(independent_heads=n_heads, singular_values=spectrum[: n_heads + 3].tolist())
    if n_heads > pairs.n_dims:
        return None
    findings.recorder.present = "first difference"
    starts = _candidates(pairs, delta, n_heads) if n_heads > 1 else [total[None, :]]
    points = Points.for_all_rows(pairs, n_heads)
    effects = pairs.measured(points.tokens, delta)
    tried = (points.solve(pairs, effects, delta, start) for start in starts)
    solved = (each for each in tried if each is not None)
    if pairs.total.noise > ROUGH:
        # Noise lets heads that nearly cancel fit, too.
        level = ROUGH_FIT * pairs.level(pairs.weighing(effects)[0], points.tokens)
        apart = (
            each
            for each in solved
            if each.residual <= level and np.linalg.cond(each.values) < MOST_ALIKE
        )
        heads = min(apart, key=lambda each: each.residual, default=None)
    else:
        heads = next(solved, None)
    findings.record(n_heads=n_heads, residual=None if heads is None else heads.residual)
    if heads is None or _is_input(pairs, heads, points.tokens):
        return None
    return heads, points


def _is_input(pairs: Pairs, heads: HeadsAt, tokens: NDArray) -> bool:
    """Whether the value of a head is the difference itself, of which it gives nothing away.

    The input is then added to attention: no other difference need be tried.
    """
    if heads.values.shape[1] != len(heads.delta):
        return False
    exponent = pairs.oracle.token_exponent - (pairs.oracle.answer_exponent or 0)
    with np.errstate(over="ignore"):
        apart = np.abs(heads.values - np.ldexp(heads.delta, exponent)).max(axis=1)
    itself = apart < 1e-6 * np.abs(heads.values).max(axis=1)
    return bool(np.any(itself & np.all(pairs.rows(tokens) @ heads.columns.T < NEVER, axis=0)))


def _floor(pairs: Pairs, effects: NDArray, tokens: NDArray) -> float:
    """What noise shows at most of singular values of effects (Q, e).

    Its largest is about the noise times sqrt(Q) + sqrt(e); of exact answers there is room for more.
    """
    if pairs.total.noise <= ROUGH:
        return 10 * pairs.error * float(np.sqrt(max(effects.shape)))
    level = pairs.level(effects[-len(tokens) :], tokens)
    return 2 * level * (float(np.sqrt(len(effects))) + float(np.sqrt(effects.shape[1])))


def _candidates(pairs: Pairs, delta: NDArray, n_heads: int) -> list[NDArray[np.float64]]:
    """Directions (H, e) near the c_i, from several combinations, the most trustworthy first.

    Jacobians are central differences, with the step that balances their error step^2 and noise /
    step.  Cost: 2 N_BASE_POINTS (H + 2) queries.
    """
    n_dims, rng = pairs.n_dims, pairs.rng
    rough = pairs.total.noise > ROUGH
    n_directions = min(n_dims, (MORE if rough else 1) * n_heads + 2)
    directions = np.linalg.qr(rng.standard_normal((n_dims, n_directions)))[0].T
    n_bases = (MORE if rough else 1) * N_BASE_POINTS
    bases = pairs.random_points(n_bases, pairs.base_size)
    norm = float(np.linalg.norm(bases[0]))
    step = pairs.point_size * max(pairs.total.noise, 1e-16) ** (1 / 3)
    step = min(ROUGH_STEP * pairs.point_size, pairs.largest_point - norm) if rough else step
    points = np.stack([bases[:, None] + step * directions, bases[:, None] - step * directions])
    effects = pairs.effect(points.reshape(-1, n_dims), delta)
    forward, backward = effects.reshape(2, n_bases, n_directions, -1)
    derivatives = (forward - backward) / (2 * step) * pairs.point_size
    left = np.linalg.svd(np.concatenate(list(derivatives), axis=1), full_matrices=False)[0]
    right = np.linalg.svd(np.concatenate(list(derivatives), axis=0), full_matrices=False)[2]
    rows, columns = left[:, :n_heads], right[:n_heads]
    cores = rows.T @ derivatives @ columns.T
    found: list[tuple[float, NDArray]] = []
    for _ in range((MORE if rough else 1) * N_COMBINATIONS):
        first, second = np.tensordot(rng.standard_normal((2, n_bases)), cores, axes=1)
        if np.linalg.cond(second) > 1e12:
            continue
        values, vectors = np.linalg.eig(np.linalg.solve(second, first).T)
        if np.any(np.abs(values.imag) > 1e-6 * np.abs(values).max()) and not rough:
            continue
        # Trustworthy: eigenvalues far apart, and a well-conditioned mixing.
        gap = np.diff(np.sort(values.real)).min() / max(np.abs(values.real).max(), 1e-300)
        mixing = vectors.real.T
        found.append((float(gap) / np.linalg.cond(mixing), mixing @ columns))
    found.sort(key=lambda item: -item[0])
    return [mixing for _, mixing in found[: 3 * MORE if rough else 4]]


def _solve_block(
    pairs: Pairs, first: HeadsAt, points: Points, directions: NDArray
) -> list[HeadsAt] | None:
    """Heads for delta_0 + t q_j for every row q_j of ``directions``, or None."""
    found: dict[int, HeadsAt] = {}
    for halvings in range(1 + N_HALVINGS):
        missing = [j for j in range(len(directions)) if j not in found]
        if not missing:
            break
        deltas = first.delta + DISTANCE * pairs.delta_size * 0.5**halvings * directions[missing]
        starts = np.broadcast_to(first.values, (len(missing), *first.values.shape))
        solved = zip(missing, _solve_once(pairs, points, deltas, starts), strict=True)
        found |= {j: heads for j, heads in solved if heads is not None}
    return [found[j] for j in sorted(found)] if len(found) == len(directions) else None


def _solve_once(
    pairs: Pairs, points: Points, deltas: NDArray, starts: NDArray
) -> list[HeadsAt | None]:
    """Heads for each row of ``deltas`` (B, d) near the values ``starts`` (B, H, e), if they fit."""
    tokens = np.tile(points.tokens, (len(deltas), 1))
    effects = pairs.measured(tokens, np.repeat(deltas, len(points.tokens), axis=0))

    def solve(piece: tuple[NDArray, NDArray, NDArray]) -> HeadsAt | None:
        delta, start, seen = piece
        heads = points.solve(pairs, seen, delta, start)
        # Heads keep their order.
        return heads if heads is not None and heads.in_order_of(start) else None

    return map_pieces(solve, list(zip(deltas, starts, np.split(effects, len(deltas)), strict=True)))


def _widened(pairs: Pairs, findings: QueryFindings) -> bool:
    """Replace heads that positions turn by those of differences further apart.

    These magnify noise less.  What is known predicts them well enough to start from; where it does
    not, the old ones stay.
    """
    findings.recorder.present = "wider differences"
    inverse = np.linalg.pinv(np.stack([at.delta for at in findings.heads]))
    value = np.einsum("dj,jhe->hde", inverse, np.stack([at.values for at in findings.heads]))
    centre, points = findings.heads[0].delta, Points.for_all_rows(pairs, len(value))
    for begin in range(1, len(findings.heads), BLOCK):
        apart = np.stack([at.delta - centre for at in findings.heads[begin : begin + BLOCK]])
        wide = WIDE * pairs.delta_size / np.linalg.norm(apart, axis=1, keepdims=True)
        deltas = centre + wide * apart
        starts = np.einsum("bd,hde->bhe", deltas, value)
        for j, heads in enumerate(_solve_once(pairs, points, deltas, starts), start=begin):
            if heads is not None and heads.doubt < 2 * findings.heads[j].doubt:
                findings.heads[j] = heads
    findings.record()
    return True


def _column_spaces(heads: list[HeadsAt], pairs: Pairs) -> NDArray[np.float64] | None:
    """Orthonormal bases (H, D, r) of the column spaces, or None while they may still grow.

    r is the largest rank of a head; heads of smaller rank get some directions they do not need.
    Singular values count as zero below 1e-11 of the largest, or what noise explains.
    """
    if len(heads) <= N_CONFIRMATIONS:
        return None
    columns = np.stack([at.columns for at in heads], axis=2)
    relative = columns[:, :, 1:] - columns[:, :, :1]
    bases, spectra, _ = np.linalg.svd(relative, full_matrices=False)
    floor = max(1e-11, 3e3 * pairs.total.noise) * spectra[:, :1]
    rank = int(np.sum(spectra > floor, axis=1).max())
    return bases[:, :, : max(rank, 1)] if rank < len(heads) - N_CONFIRMATIONS else None
