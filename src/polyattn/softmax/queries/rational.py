"""Heads separated at one query token by copies: effects are a rational function of their share.

With r of n tokens moved and v = (2 r - n) / n, the effect is

    sum_i c_i (1 + v) u_i / ((1 + u_i) + v (u_i - 1)),      u_i = exp(z_i),

with poles v_i = (1 + u_i) / (1 - u_i) outside [-1, 1].  All outputs share the denominator, so one
output is enough.  At v = -1 the effect is zero, at v = 1 it is delta S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.least_squares import minimise
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


@dataclass(frozen=True)
class Places:
    """Effects (P, R, e) of one difference at a few query tokens (P, d), for all shares."""

    delta: NDArray[np.float64]
    total: NDArray[np.float64]
    tokens: NDArray[np.float64]
    effects: NDArray[np.float64]

    def separated(
        self, n_heads: int, error: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], HeadsAt] | None:
        """The place where heads are clearest, with logits (H, 1) there for columns; no queries.

        None when ``n_heads`` sigmoids do not explain the effects at half of the places.
        """
        enough, fits = FIT * error, []
        for place, effects in zip(self.tokens, self.effects, strict=True):
            logits, values, residual = _poles(effects, self.total, n_heads, enough, rng)
            if residual <= enough:
                # Clear is a large smallest gap times a large smallest value.
                gap = float(np.diff(np.sort(logits)).min()) if n_heads > 1 else 1.0
                sizes = np.linalg.norm(values, axis=1)
                clear = min(gap, 3.0) * float(sizes.min() / sizes.max())
                clear /= 1 + float(np.abs(logits).max())
                fits.append((clear, place, HeadsAt(self.delta, logits[:, None], values)))
        if 2 * len(fits) < len(self.tokens):
            return None
        _, place, heads = max(fits, key=lambda fit: fit[0])
        return place, heads


def measure_places(pairs: Pairs) -> Places:
    """Places for a random difference.  Cost: N_PLACES queries for every share."""
    delta = pairs.random_delta()
    tokens = pairs.random_points(N_PLACES, PLACE_SIZE)
    effects = effects_at_shares(pairs, tokens, delta, SHARES)
    return Places(delta, delta @ pairs.sum_value, tokens, effects)


def effects_at_shares(
    pairs: Pairs, tokens: NDArray, delta: NDArray, moved: NDArray
) -> NDArray[np.float64]:
    """Effects (Q, R, e) at all tokens (Q, d) with each of the numbers ``moved`` (R,) of copies."""
    every = np.tile(tokens, (len(moved), 1))
    effects = effects_of_copies(pairs, every, delta, np.repeat(moved, len(tokens)))
    return effects.reshape(len(moved), len(tokens), -1).swapaxes(0, 1)


def effects_of_copies(
    pairs: Pairs, tokens: NDArray, delta: NDArray, moved: NDArray
) -> NDArray[np.float64]:
    """Effects (Q, e) at tokens (Q, d), of whose N_COPIES copies ``moved`` (Q,) are moved."""
    effects = np.empty((len(tokens), pairs.oracle.n_outputs))
    for number in np.unique(moved).tolist():
        which = moved == number
        effects[which] = pairs.effect(tokens[which], delta, number, N_COPIES - number)
    return effects


def shifts(moved: NDArray) -> NDArray[np.float64]:
    """log(r / (n - r)), what copies add to every logit."""
    return np.log(moved / (N_COPIES - moved))


def _poles(
    effects: NDArray, total: NDArray, n_heads: int, enough: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Logits (H,), values (H, e) and the rms residual, from effects (R, e) at SHARES.

    The roots of the common denominator are refined by least squares over the logits, with the
    values eliminated; random starts are tried until a residual is at most ``enough``.
    """
    tau = shifts(SHARES)
    size = max(float(np.abs(effects).max()), float(np.abs(total).max()), 1e-300)
    data = np.vstack([effects, total]) / size
    best_norm, best = np.inf, np.zeros(n_heads)
    roots = _from_denominator(effects / size, total / size, n_heads)
    for starts in (roots[None], *(2 * rng.standard_normal((4, N_STARTS, n_heads)))):
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


def logits_at_points(
    effects: NDArray, tau: NDArray, values: NDArray, start: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logits (Q, H) near ``start`` (H,) when the values are known, and rms residuals (Q,).

    From effects (Q, R, e) with shifts tau (R,).
    """
    flat = effects.reshape(len(effects), -1)

    def evaluate(theta: NDArray, which: NDArray) -> tuple[NDArray, NDArray]:
        sigmoids = expit(theta[:, None, :] + tau[:, None])
        residual = (sigmoids @ values).reshape(len(theta), -1) - flat[which]
        slope = (sigmoids * (1 - sigmoids))[:, :, None, :] * values.T
        return residual, slope.reshape(len(theta), -1, len(values))

    found, norms = minimise(evaluate, np.tile(start, (len(effects), 1)))
    return np.clip(found, -FARTHEST, FARTHEST), norms / np.sqrt(flat.shape[1])


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


def _from_denominator(effects: NDArray, total: NDArray, n_heads: int) -> NDArray[np.float64]:
    """Logits from the roots of the common denominator, by linear algebra alone."""
    places = np.concatenate([[-1.0], 2 * SHARES / N_COPIES - 1, [1.0]])
    known = np.vstack([np.zeros_like(total), effects, total])
    powers = chebyshev.chebvander(places, n_heads)
    beyond = np.linalg.qr(powers, mode="complete")[0][:, n_heads + 1 :].T
    equations = np.concatenate([beyond @ (powers * column[:, None]) for column in known.T])
    denominator = np.linalg.svd(equations)[2][-1]
    roots = chebyshev.chebroots(denominator).real
    # A root within [-1, 1], or a missing one, is no logit: take a large one of its sign.
    outside = np.where(np.abs(roots) > 1.001, roots, np.where(roots < 0, -1.001, 1.001))
    found = np.log(np.abs((outside - 1) / (outside + 1)))
    return np.concatenate([found, np.zeros(n_heads - len(found))])
