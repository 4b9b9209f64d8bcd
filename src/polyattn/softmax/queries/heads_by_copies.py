"""Heads by copies of tokens: for fewer outputs than heads, or values that are not independent.

With r of n tokens moved and v = (2 r - n) / n the effect at one query token is rational:

    sum_i c_i (1 + v) u_i / ((1 + u_i) + v (u_i - 1)),      u_i = exp(z_i),

with poles v_i = (1 + u_i) / (1 - u_i) outside [-1, 1] that all outputs share: one is enough.

Nearby query tokens have the same c_i, so that their logits, which are affine in the token, follow;
then all other differences follow from the first, each by a network of H sigmoids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.least_squares import minimise, spread
from polyattn.softmax.queries.mixing import DISTANCE, N_HALVINGS, other_directions, relative_size
from polyattn.softmax.queries.pairs import Pairs

# Tokens of a sequence of copies, and how many of them are moved: like Chebyshev points, for high
# degrees.
N_COPIES = 48
ANGLES = np.pi * (np.arange(20) + 0.5) / 20
SHARES = np.unique(np.rint(N_COPIES * (1 - np.cos(ANGLES)) / 2).clip(1, N_COPIES - 1).astype(int))

# Random starts that are refined together when the rational one does not do.
N_STARTS = 24

# Logits beyond this are all alike.
FARTHEST = 40.0

# Query tokens at which the rational function is tried, and their norm in calibrated sizes.
N_PLACES, PLACE_SIZE = 4, 3.0

# Residuals up to this multiple of the noise count as a fit.
FIT = 30

# Steps from the place to its neighbours, and the largest norm of query tokens that refine, in
# calibrated sizes.
STEP, LARGEST = 0.5, 3.0

# Neighbours whose effects deviate by this, relative to the values, were followed wrongly.
LOST = 1e-5

# An error, relative to the effects, of values that are not determined.
LARGE = 1e9

# Heads in this much doubt are more than there are.
HOPELESS = 0.1

# Starts of a network, and how far the later ones are from the first, relative to their size.
N_TRIALS, SHAKE = 5, 0.25


@dataclass(frozen=True)
class Places:
    """Effects (P, R, e) of one difference at a few query tokens (P, d), for all shares."""

    delta: NDArray[np.float64]
    tokens: NDArray[np.float64]
    effects: NDArray[np.float64]

    def separated(self, pairs: Pairs, n_heads: int) -> tuple[NDArray[np.float64], HeadsAt] | None:
        """The place where heads are clearest, with logits (H, 1) there for columns; no queries.

        None when ``n_heads`` sigmoids do not explain the effects at half of the places.
        """
        total, enough, fits = self.delta @ pairs.total.value, FIT * pairs.error, []
        for place, effects in zip(self.tokens, self.effects, strict=True):
            logits, values, residual = _poles(effects, total, n_heads, enough, pairs.rng)
            if residual <= enough:
                # Clear is a large smallest gap times a large smallest value.
                gap = float(np.diff(np.sort(logits)).min()) if n_heads > 1 else 1.0
                sizes = np.linalg.norm(values, axis=1)
                clear = min(gap, 3.0) * float(sizes.min() / sizes.max())
                clear /= 1 + float(np.abs(logits).max())
                fits.append((clear, place, HeadsAt(self.delta, logits[:, None], values)))
        if 2 * len(fits) < len(self.tokens):
            return None
        return max(fits, key=lambda fit: fit[0])[1:]


def measure_places(pairs: Pairs) -> Places:
    """Places for a random difference.  Cost: N_PLACES queries for every share."""
    delta = pairs.random_delta()
    tokens = pairs.random_points(N_PLACES, PLACE_SIZE)
    return Places(delta, tokens, _effects_at_shares(pairs, tokens, delta, SHARES))


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
    findings.record(n_heads=n_heads, fits=first is not None)
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
    n_dims, n_heads, logits = len(place), len(heads.values), heads.columns[:, 0]
    some = SHARES[:: max(1, len(SHARES) // (2 * n_heads + 2))]
    steps = np.full(n_dims, STEP * pairs.point_size)
    nearby = np.tile(logits, (n_dims, 1))
    open_ones = np.arange(n_dims)
    for _ in range(1 + N_HALVINGS):
        neighbours = place + steps[open_ones, None] * np.eye(n_dims)[open_ones]
        effects = _effects_at_shares(pairs, neighbours, heads.delta, some)
        found, residuals = _logits_near(logits, effects, _shifts(some), heads.values)
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


def _logits_near(
    start: NDArray, effects: NDArray, tau: NDArray, values: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logits (Q, H) of effects (Q, R, e) with shifts tau (R,), and rms residuals (Q,)."""
    flat = effects.reshape(len(effects), -1)

    def evaluate(theta: NDArray, which: NDArray) -> tuple[NDArray, NDArray]:
        sigmoids = expit(theta[:, None, :] + tau[:, None])
        residual = (sigmoids @ values).reshape(len(theta), -1) - flat[which]
        slope = (sigmoids * (1 - sigmoids))[:, :, None, :] * values.T
        return residual, slope.reshape(len(theta), -1, len(values))

    found, norms = minimise(evaluate, np.tile(start, (len(effects), 1)))
    return np.clip(found, -FARTHEST, FARTHEST), norms / np.sqrt(flat.shape[1])


def _solve(
    pairs: Pairs, tokens: NDArray, moved: NDArray, delta: NDArray, start: HeadsAt
) -> HeadsAt | None:
    """The heads for delta near ``start``, in its order, if they explain all effects up to noise.

    Of N_COPIES copies of the tokens (Q, d) ``moved`` (Q,) are moved.
    """
    effects = np.empty((len(tokens), pairs.oracle.n_outputs))
    for number in np.unique(moved).tolist():
        which = moved == number
        effects[which] = pairs.effect(tokens[which], delta, number, N_COPIES - number)
    rows, tau, total = pairs.rows(tokens), _shifts(moved), delta @ pairs.total.value
    for trial in range(N_TRIALS):
        # Later trials begin near the start, at random: that needs no queries.
        amount = 0.0 if trial == 0 else SHAKE
        near = [
            array + amount * np.sqrt(np.mean(array**2)) * pairs.rng.standard_normal(array.shape)
            for array in (start.columns, start.values)
        ]
        heads = _solve_network(rows, tau, effects, total, HeadsAt(delta, *near))
        if heads.residual <= FIT * pairs.error:
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
    errors = None if heads.errors is None else (heads.errors[0][order], heads.errors[1][order])
    return replace(heads, columns=heads.columns[order], values=heads.values[order], errors=errors)


def _solve_network(
    rows: NDArray, tau: NDArray, effects: NDArray, total: NDArray, start: HeadsAt
) -> HeadsAt:
    """Heads near ``start`` with sum_i sigmoid(rows a_i + tau) c_i = effects.

    rows (Q, D), tau (Q,), effects (Q, e); the sum of the c_i, total (e,), is one more equation.
    Outputs that are combinations of H others are left out.
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

    def parts(numbers: NDArray) -> tuple[NDArray, NDArray]:
        slopes, values = numbers[:n_slopes], numbers[n_slopes:]
        return slopes.reshape(n_heads, n_rows), values.reshape(n_heads, n_outputs)

    def evaluate(theta: NDArray, _which: NDArray) -> tuple[NDArray, NDArray]:
        slopes, values = parts(theta[0])
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
    slopes, values = parts(theta[0])
    deviations = parts(spread(evaluate(theta, np.arange(1))[1], norms)[0])
    doubt = max(map(relative_size, deviations, (slopes, values)))
    residual = float(np.hypot(float(norms[0]) * size, beside) / np.sqrt(data.size))
    squares = np.where(np.isfinite(deviations[1]), deviations[1] * size, LARGE * size) ** 2
    of_values = np.sqrt(squares @ space.T**2) + residual
    return HeadsAt(
        start.delta, slopes / row_size, values * size @ space.T, doubt, residual,
        (deviations[0] / row_size, of_values),
    )  # fmt: skip


def _effects_at_shares(
    pairs: Pairs, tokens: NDArray, delta: NDArray, moved: NDArray
) -> NDArray[np.float64]:
    """Effects (Q, R, e) at all tokens (Q, d) with each of the numbers ``moved`` (R,) of copies."""
    shares = [pairs.effect(tokens, delta, number, N_COPIES - number) for number in moved.tolist()]
    return np.stack(shares, axis=1)


def _shifts(moved: NDArray) -> NDArray[np.float64]:
    """log(r / (n - r)), what copies add to every logit."""
    return np.log(moved / (N_COPIES - moved))


def _poles(
    effects: NDArray, total: NDArray, n_heads: int, enough: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Logits (H,), values (H, e) and the rms residual, from effects (R, e) at SHARES.

    The roots of the common denominator are refined by least squares over the logits, with the
    values eliminated; random starts are tried until a residual is at most ``enough``.
    """
    tau = _shifts(SHARES)
    size = max(float(np.abs(effects).max()), float(np.abs(total).max()), 1e-300)
    data = np.vstack([effects, total]) / size
    places = np.concatenate([[-1.0], 2 * SHARES / N_COPIES - 1, [1.0]])
    powers = chebyshev.chebvander(places, n_heads)
    beyond = np.linalg.qr(powers, mode="complete")[0][:, n_heads + 1 :].T
    known = np.vstack([np.zeros_like(total), data])
    equations = np.concatenate([beyond @ (powers * column[:, None]) for column in known.T])
    roots = chebyshev.chebroots(np.linalg.svd(equations)[2][-1]).real
    # A root within [-1, 1], or a missing one, is no logit: take a large one of its sign.
    roots = np.where(np.abs(roots) > 1.001, roots, np.where(roots < 0, -1.001, 1.001))
    logits = np.zeros((1, n_heads))
    logits[0, : len(roots)] = np.log(np.abs((roots - 1) / (roots + 1)))
    best_norm, best = np.inf, np.zeros(n_heads)
    for starts in (logits, *(2 * rng.standard_normal((4, N_STARTS, n_heads)))):
        found, norms = minimise(
            lambda theta, _which: _eliminated(theta, tau, data)[1:], starts, n_steps=80
        )
        if norms.min() < best_norm:
            best_norm, best = float(norms.min()), found[int(np.argmin(norms))]
        if best_norm * size <= enough * np.sqrt(data.size):
            break
    best = np.clip(best, -FARTHEST, FARTHEST)
    values = _eliminated(best[None], tau, data)[0][0] * size
    return best, values, best_norm * size / float(np.sqrt(data.size))


def _eliminated(logits: NDArray, tau: NDArray, data: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Best values (B, H, e) for logits (B, H), residuals (B, m), Jacobians (B, m, H) [Kaufman].

    The last row of ``data`` (R + 1, e) is the sum of the values: sigmoids that are one.
    """
    n_problems, n_heads = logits.shape
    sigmoids = np.ones((n_problems, len(tau) + 1, n_heads))
    sigmoids[:, :-1] = expit(logits[:, None, :] + tau[:, None])
    # A ridge at rounding level keeps equal logits from dividing by zero.
    ridge = np.broadcast_to(1e-13 * np.eye(n_heads), (n_problems, n_heads, n_heads))
    q, r = np.linalg.qr(np.concatenate([sigmoids, ridge], axis=1))
    q = q[:, : len(tau) + 1]
    values = np.linalg.solve(r, np.swapaxes(q, 1, 2) @ data)
    residual = sigmoids @ values - data
    slope = sigmoids * (1 - sigmoids)
    slope -= q @ (np.swapaxes(q, 1, 2) @ slope)
    # slope[:, :, i] is now the part of the i-th derivative that values cannot make up for.
    jacobian = slope[:, :, None, :] * np.swapaxes(values, 1, 2)[:, None, :, :]
    return values, residual.reshape(n_problems, -1), jacobian.reshape(n_problems, -1, n_heads)
