"""Heads by copies of tokens: for fewer outputs than heads, or values that are not independent.

At one query token the rational function of the share of moved copies separates the heads; nearby
query tokens have the same c_i, so that their logits, which are affine in the token, follow; then
all other differences follow from the first as in ``sweep``, each by a network of H sigmoids.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.least_squares import minimise, spread
from polyattn.softmax.queries.mixing import DISTANCE, N_HALVINGS, other_directions, relative_size
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.rational import (
    FIT,
    SHARES,
    effects_at_shares,
    effects_of_copies,
    logits_at_points,
    shifts,
)

# Steps from the place to its neighbours, and the largest norm of query tokens that refine, in
# calibrated sizes.
STEP, LARGEST = 0.5, 3.0

# Neighbours whose effects deviate by this, relative to the values, were followed wrongly.
LOST = 1e-5

# Heads in this much doubt are more than there are.
HOPELESS = 0.1

# Starts of a network, and how far the later ones are from the first, relative to their size.
N_TRIALS, SHAKE = 5, 0.25


def heads_by_copies(pairs: Pairs, place: NDArray, heads: HeadsAt, findings: QueryFindings) -> bool:
    """Heads for d differences, added to ``findings``; False when sigmoids do not fit.

    ``heads`` has the logits (H, 1) at the query token ``place`` (d,) instead of columns.
    Cost: about 1.3 H (D + e) / e queries of N_COPIES tokens for every difference.
    """
    n_heads, n_outputs = len(heads.values), findings.n_independent
    followed = _follow(pairs, place, heads)
    # Random query tokens, and how many of their copies are moved: 1.3 times what is needed.
    n_tokens = int(1.3 * n_heads * (pairs.n_rows + n_outputs) / n_outputs) + 12
    tokens = pairs.random_points(n_tokens)
    tokens *= pairs.rng.uniform(0.3, LARGEST, size=(n_tokens, 1))
    moved = pairs.rng.choice(SHARES, size=n_tokens)
    first = _solve(pairs, tokens, moved, heads.delta, followed)
    findings.record(pairs.oracle.n_queries, n_heads=n_heads, fits=first is not None)
    if first is None or first.doubt > HOPELESS:
        return False
    findings.heads.append(first)
    for direction in other_directions(first.delta, pairs.rng):
        for halvings in range(1 + N_HALVINGS):
            delta = first.delta + DISTANCE * pairs.delta_size * 0.5**halvings * direction
            other = _solve(pairs, tokens, moved, delta, first)
            if other is not None:
                break
        else:
            return False
        findings.heads.append(other)
    return True


def _follow(pairs: Pairs, place: NDArray, heads: HeadsAt) -> HeadsAt:
    """Columns from the logits (H, 1) at one place, followed to its neighbours in each direction."""
    n_dims, n_heads = len(place), len(heads.values)
    logits = heads.columns[:, 0]
    some = SHARES[:: max(1, len(SHARES) // (2 * n_heads + 2))]
    steps = np.full(n_dims, STEP * pairs.point_size)
    nearby = np.tile(logits, (n_dims, 1))
    open_ones = np.arange(n_dims)
    for _ in range(1 + N_HALVINGS):
        neighbours = place + steps[open_ones, None] * np.eye(n_dims)[open_ones]
        effects = effects_at_shares(pairs, neighbours, heads.delta, some)
        found, residuals = logits_at_points(effects, shifts(some), heads.values, logits)
        nearby[open_ones] = found
        lost = residuals > LOST * float(np.abs(heads.values).max())
        if not np.any(lost):
            break
        open_ones = open_ones[lost]
        steps[open_ones] /= 2
    rows = pairs.rows(np.vstack([place, place + steps[:, None] * np.eye(n_dims)]))
    # Differences from the place weigh as much as the place itself, however small the steps.
    rows[1:] = (rows[1:] - rows[0]) / steps[:, None] * pairs.point_size
    right = np.vstack([logits, (nearby - logits) / steps[:, None] * pairs.point_size])
    return replace(heads, columns=np.linalg.lstsq(rows, right, rcond=None)[0].T)


def _solve(
    pairs: Pairs, tokens: NDArray, moved: NDArray, delta: NDArray, start: HeadsAt
) -> HeadsAt | None:
    """The heads for delta near ``start``, in its order, if they explain all effects up to noise."""
    effects = effects_of_copies(pairs, tokens, delta, moved)
    rows, tau, total = pairs.rows(tokens), shifts(moved), delta @ pairs.sum_value
    for trial in range(N_TRIALS):
        # Later trials begin near the start, at random: that needs no queries.
        amount = 0.0 if trial == 0 else SHAKE
        near = [
            array + amount * np.sqrt(np.mean(array**2)) * pairs.rng.standard_normal(array.shape)
            for array in (start.columns, start.values)
        ]
        heads, residual = _solve_network(rows, tau, effects, total, HeadsAt(delta, *near))
        if residual <= FIT * pairs.error:
            break
    else:
        return None
    apart = sum(
        np.linalg.norm(old[:, None] - new[None], axis=2) / np.linalg.norm(old)
        for old, new in ((start.columns, heads.columns), (start.values, heads.values))
    )
    # Slow to import, and only copies need it.
    from scipy.optimize import linear_sum_assignment

    order = linear_sum_assignment(apart)[1]
    return replace(heads, columns=heads.columns[order], values=heads.values[order])


def _solve_network(
    rows: NDArray[np.float64],
    tau: NDArray[np.float64],
    effects: NDArray[np.float64],
    total: NDArray[np.float64],
    start: HeadsAt,
) -> tuple[HeadsAt, float]:
    """Heads near ``start`` with sum_i sigmoid(rows a_i + tau) c_i = effects, and the rms residual.

    rows (Q, D), tau (Q,), effects (Q, e); the sum of the c_i, total (e,), is one more equation.
    Works for any number of outputs; those that are combinations of H others are left out.
    Cost: H (D + min(e, H)) unknowns n, O(Q min(e, H) n^2) per step.
    """
    n_heads, n_rows = start.columns.shape
    space = np.linalg.svd(np.vstack([effects, total]), full_matrices=False)[2][:n_heads].T
    beside = float(np.linalg.norm(effects - effects @ space @ space.T))
    effects, total, values = effects @ space, total @ space, start.values @ space
    n_outputs, n_slopes = len(total), n_heads * n_rows
    row_size = np.linalg.norm(rows, axis=0)
    row_size = np.where(row_size > 0, row_size, 1.0)
    size = max(float(np.abs(effects).max()), 1e-300)
    scaled, data = rows / row_size, effects / size
    begin = np.concatenate([(start.columns * row_size).ravel(), values.ravel() / size])

    def evaluate(theta: NDArray, _which: NDArray) -> tuple[NDArray, NDArray]:
        slopes = theta[0, :n_slopes].reshape(n_heads, n_rows)
        values = theta[0, n_slopes:].reshape(n_heads, n_outputs)
        sigmoids = expit(scaled @ slopes.T + tau[:, None])
        slope = sigmoids * (1 - sigmoids)
        by_row = np.einsum("qi,ie,qd->qeid", slope, values, scaled)
        by_value = np.einsum("qi,ef->qeif", sigmoids, np.eye(n_outputs))
        jacobian = np.zeros((1, data.size + n_outputs, theta.shape[1]))
        jacobian[0, : data.size, :n_slopes] = by_row.reshape(data.size, -1)
        jacobian[0, : data.size, n_slopes:] = by_value.reshape(data.size, -1)
        jacobian[0, data.size :, n_slopes:] = np.tile(np.eye(n_outputs), n_heads)
        left = sigmoids @ values - data
        residual = np.concatenate([left.ravel(), values.sum(axis=0) - total / size])
        return residual[None], jacobian

    theta, norms = minimise(evaluate, begin[None], n_steps=60)
    deviations = spread(evaluate(theta, np.arange(1))[1], norms)[0]
    columns, values = theta[0, :n_slopes], theta[0, n_slopes:]
    doubt = max(
        relative_size(part.reshape(n_heads, -1), whole.reshape(n_heads, -1))
        for part, whole in ((deviations[:n_slopes], columns), (deviations[n_slopes:], values))
    )
    columns = columns.reshape(n_heads, n_rows) / row_size
    values = values.reshape(n_heads, n_outputs) * size @ space.T
    residual = np.hypot(float(norms[0]) * size, beside) / np.sqrt(data.size)
    return HeadsAt(start.delta, columns, values, doubt), float(residual)
