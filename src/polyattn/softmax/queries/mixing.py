"""Heads separated for one difference: effects are mixtures of sigmoids of linear functions.

With delta fixed, effects at query tokens x_1..x_Q are Y = Sigma C, Sigma[q, i] =
sigmoid(row_q a_i), row_q = [x_q, 1], a_i = A_i delta (D,), C (H, e) the rows c_i.  When these are
independent, Y has rank H, and head i is the one m_i with

    Y m_i = sigmoid(rows a_i),      (delta S) m_i = 1.

No other head is in these equations: each is solved for alone, from a start near it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.softmax.queries.error_bars import HeadEquations, beside_basis, spread_over_rows
from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.least_squares import minimise, spread
from polyattn.softmax.queries.pairs import NOISY, Pairs, unit_rows
from polyattn.softmax.queries.precision import ROUGH

# Norm of query tokens, in calibrated sizes.
POINT_SIZE = 1.5

# How far differences lie from the first one, in calibrated sizes, and how often that is halved.
DISTANCE, N_HALVINGS = 0.3, 4

# Effects beyond the unknowns of a head: they distinguish a solution from an accident.  Where noise
# matters there are half as many again as unknowns, to average it.
SPARE = 6

# Up to this many rows of attn all of them are unknowns while heads are unmixed.
WHOLE_ROWS = 100

# The largest residuals, of sigmoids, that a head may leave, of rough answers and of others.
LARGEST_ROUGH, LARGEST_RESIDUAL = 0.1, 1e-3


def _unmix(
    parts: list[NDArray], delta: NDArray, total: NDArray, design: NDArray, start: NDArray
) -> tuple[HeadsAt, NDArray[np.float64]] | None:
    """Heads whose c_i are near the rows ``start`` (H, e), whose lengths do not matter.

    parts : effects (Q, e) at the query tokens, or the two that ``_weights`` combines
    total : (e,), the sum delta S of the c_i
    design : (H, Q, k) or (Q, k), rows of the query tokens in a basis of k columns, which may be
        one per head; columns of the heads are in that basis

    Beside them ``unmix`` (e, H), by which ``_weights`` are the sigmoids.  None when two heads run
    into one solution or the start has fewer directions than heads.
    """
    n_heads, n_slopes, n_free = len(start), design.shape[-1], len(start) - 1
    space = np.linalg.svd(np.concatenate(parts), full_matrices=False)[2][:n_heads].T
    size = float(np.linalg.norm(total)) or 1.0
    mixed, whole = [part @ space / size for part in parts], total @ space / size
    rows = start @ space
    if np.linalg.cond(rows) > 1e10:
        return None
    lengths = np.linalg.solve(rows.T, whole)
    if not np.all(lengths):
        return None
    begin = np.linalg.inv(lengths[:, None] * rows).T
    if not np.all(np.isfinite(begin)):
        return None
    # m = begin + free @ null keeps m . whole = 1.
    null = np.linalg.svd(whole[None, :])[2][1:]
    n_effects = len(mixed[0])
    design = np.broadcast_to(design, (n_heads, n_effects, n_slopes))
    column_size = np.linalg.norm(design, axis=1)
    column_size = np.where(column_size > 0, column_size, 1.0)
    scaled = design / column_size[:, None, :]

    def evaluate(theta: NDArray, which: NDArray) -> tuple[NDArray, NDArray]:
        mixture, along = _weights(mixed, (begin[which] + theta[:, :n_free] @ null).T)
        sigmoids = expit(np.einsum("hqk,hk->hq", scaled[which], theta[:, n_free:]))
        jacobian = np.empty((len(theta), n_effects, n_free + n_slopes))
        jacobian[:, :, :n_free] = along @ null.T
        jacobian[:, :, n_free:] = -(sigmoids * (1 - sigmoids))[:, :, None] * scaled[which]
        return mixture.T - sigmoids, jacobian

    first = [np.zeros((n_heads, n_free)), _slopes_of(_weights(mixed, begin.T)[0], scaled)]
    theta, norms = minimise(evaluate, np.concatenate(first, axis=1))
    deviations = spread(evaluate(theta, np.arange(n_heads))[1], norms)
    unmix = (begin + theta[:, :n_free] @ null).T
    if np.linalg.cond(unmix) > 1e12:
        return None
    heads = HeadsAt(
        delta,
        columns=theta[:, n_free:] / column_size,
        values=np.linalg.inv(unmix) @ space.T * size,
        doubt=max(
            relative_size(deviations[:, n_free:], theta[:, n_free:]),
            relative_size(deviations[:, :n_free], unmix.T),
        ),
        residual=float(norms.max() / np.sqrt(n_effects)),
    )
    return heads, space @ unmix / size


def _weights(parts: list[NDArray], unmix: NDArray) -> tuple[NDArray, NDArray]:
    """Sigmoids (Q, H) that ``unmix`` (e, H) makes of effects, and derivatives (H, Q, e) by it.

    One part: effects @ unmix.  Two, of moves forwards and backwards, are p = sigmoid(z + t) and
    q = sigmoid(-z + t) for some t, so that z = (logit p - logit q) / 2.
    """
    n_heads = unmix.shape[1]
    if len(parts) == 1:
        return parts[0] @ unmix, np.broadcast_to(parts[0], (n_heads, *parts[0].shape))
    inside = [np.clip(part @ unmix, 1e-12, 1 - 1e-12) for part in parts]
    logits = [np.log(p) - np.log1p(-p) for p in inside]
    sigmoids = expit((logits[0] - logits[1]) / 2)
    slope = sigmoids * (1 - sigmoids) / 2
    by_part = [
        (slope / (p * (1 - p))).T[:, :, None] * part for p, part in zip(inside, parts, strict=True)
    ]
    return sigmoids, by_part[0] - by_part[1]


def _logits(sigmoids: NDArray) -> NDArray[np.float64]:
    """log(p / (1 - p)), with p kept within rounding of (0, 1)."""
    inside = np.clip(sigmoids, 1e-12, 1 - 1e-12)
    return np.log(inside) - np.log1p(-inside)


def _slopes_of(sigmoids: NDArray, design: NDArray) -> NDArray[np.float64]:
    """Slopes (H, k) of the logits of (Q, H) over design (H, Q, k), weighted by their worth."""
    weights = np.clip(sigmoids * (1 - sigmoids), 1e-6, None)
    weighted = weights.T[:, :, None] * design
    right = (weights * _logits(sigmoids)).T
    q, r = np.linalg.qr(weighted)
    ridge = 1e-14 * np.abs(r).max(axis=(1, 2), keepdims=True) * np.eye(r.shape[-1])
    projected = np.swapaxes(q, 1, 2) @ right[:, :, None]
    return np.linalg.solve(r + ridge, projected)[:, :, 0]


def relative_size(deviations: NDArray, numbers: NDArray) -> float:
    """The largest norm of a row of deviations, relative to that of the numbers; inf if unknown."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.maximum(np.linalg.norm(numbers, axis=1), np.finfo(float).tiny)
        largest = float((np.linalg.norm(deviations, axis=1) / sizes).max())
    return largest if np.isfinite(largest) else float("inf")


@dataclass(frozen=True)
class Points:
    """Query tokens (Q, d), of which the first ``n_mixing`` unmix the heads.

    Their rows are expressed in ``basis`` (D, k), or one basis (H, D, k) per head.  The others,
    if there are any, determine all rows of A_i delta once the heads are unmixed.
    """

    tokens: NDArray[np.float64]
    basis: NDArray[np.float64]
    n_mixing: int
    beside: float = 1.0

    @classmethod
    def for_all_rows(cls, pairs: Pairs, n_heads: int) -> Points:
        """Tokens that determine all rows of A_i delta: orthogonal ones, zero for biases, and spare.

        Up to WHOLE_ROWS rows: D + H + SPARE tokens for everything.  Above: max(6, H) + H + SPARE
        in a subspace unmix the heads, and D + 4 others determine the rows.
        """
        n_dims, rng, size = pairs.n_dims, pairs.rng, POINT_SIZE * pairs.point_size
        frame = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
        frame = np.vstack([frame, np.zeros((int(pairs.bias), n_dims))])
        if pairs.n_rows <= WHOLE_ROWS:
            spare = unit_rows(rng, _spare(pairs, pairs.n_rows, n_heads), n_dims)
            tokens = size * np.vstack([frame, spare])
            return cls(tokens, np.eye(pairs.n_rows), len(tokens))
        n_seen = max(6, n_heads)
        subspace = np.linalg.qr(rng.standard_normal((n_dims, n_seen)))[0]
        n_inside = n_seen + pairs.bias + _spare(pairs, n_seen, n_heads)
        inside = unit_rows(rng, n_inside, n_seen) @ subspace.T
        n_outside = 4 if pairs.total.noise <= NOISY else n_dims // 4
        outside = np.vstack([frame, unit_rows(rng, n_outside, n_dims)])
        tokens = size * np.vstack([inside, outside])
        basis = np.zeros((pairs.n_rows, n_seen + pairs.bias))
        basis[:n_dims, :n_seen] = subspace
        basis[n_dims:, n_seen:] = 1.0
        return cls(tokens, basis, len(inside))

    @classmethod
    def for_column_spaces(cls, pairs: Pairs, spaces: NDArray, n_seen: int) -> Points:
        """r + H + SPARE tokens, where the columns of A_i lie in known ``spaces`` (H, D, r).

        These are spaces of ``n_seen`` columns, and as exact as those.
        """
        n_heads, _, rank = spaces.shape
        n_tokens = rank + _spare(pairs, rank, n_heads)
        beside = beside_basis(rank, n_seen)
        return cls(pairs.random_points(n_tokens, POINT_SIZE), spaces, n_tokens, beside)

    def solve(
        self, pairs: Pairs, effects: NDArray, delta: NDArray, start: NDArray
    ) -> HeadsAt | None:
        """The heads for ``delta`` whose c_i are near the rows of ``start`` (H, e).

        ``effects`` are what ``pairs.measured`` returned for the tokens.
        None unless every head fits its sigmoid up to what noise explains.
        """
        parts = pairs.weighing(effects)
        n, total, rows = self.n_mixing, delta @ pairs.total.value, pairs.rows(self.tokens)
        found = _unmix([part[:n] for part in parts], delta, total, rows[:n] @ self.basis, start)
        # Of rough answers these heads are a start alone: nearby ones are fitted with all tokens.
        all_again = n < len(self.tokens) and NOISY < pairs.total.noise <= ROUGH
        if found is not None and all_again:
            found = _unmix(parts, delta, total, rows, found[0].values)
        if found is None:
            return None
        heads, unmix = found
        size = float(np.linalg.norm(unmix, axis=0).max())
        largest = LARGEST_ROUGH if pairs.total.noise > ROUGH else LARGEST_RESIDUAL
        if not heads.residual <= min(largest, 1e-11 + 30 * pairs.error * size):
            return None
        if not all_again and n < len(self.tokens):
            others, sigmoids = rows[n:], _weights([part[n:] for part in parts], unmix)[0]
            if np.min(sigmoids * (1 - sigmoids)) > 1e-3:
                columns = np.asarray(np.linalg.lstsq(others, _logits(sigmoids), rcond=None)[0].T)
            else:
                columns = _slopes_of(sigmoids, np.broadcast_to(others, (len(start), *others.shape)))
            heads = replace(heads, columns=columns)
        basis = self.basis if n == len(self.tokens) else np.eye(pairs.n_rows)
        if len(parts) == 1:
            return self._with_errors(pairs, heads, effects, basis)
        columns = np.einsum("...dk,...k->...d", basis, heads.columns)
        return replace(heads, columns=columns, residual=heads.residual / size)

    def _with_errors(
        self, pairs: Pairs, heads: HeadsAt, effects: NDArray, basis: NDArray
    ) -> HeadsAt:
        """Columns (H, k) of the basis (D, k) or (H, D, k) as (H, D), and standard errors."""
        near = HeadEquations(pairs.rows(self.tokens) @ basis, heads.columns, heads.values, 1.0)
        columns = np.einsum("...dk,...k->...d", basis, heads.columns)
        if not near.determined:
            unknown = (np.full_like(columns, np.inf), np.full_like(heads.values, np.inf))
            return replace(heads, columns=columns, errors=unknown)
        left = effects - near.sigmoids[:-1] @ heads.values
        # What errors of S add to all effects does not show in what is left of them.
        of_sum = np.mean(pairs.total.errors[: pairs.n_dims] ** 2, axis=0)
        variances = (left**2).mean(axis=0) / near.freedom
        alone = pairs.alone(self.tokens, heads.delta)[:, : pairs.n_dims]
        variances += np.mean(np.sum(alone**2, axis=1)) * of_sum
        every = np.broadcast_to(variances, near.sigmoids.shape[:1] + variances.shape)
        of_columns = spread_over_rows(near.column_variances(every), basis, self.beside)
        errors = (np.sqrt(of_columns), np.sqrt(near.value_variances(variances)))
        residual = float(np.sqrt(np.mean(left**2)))
        return replace(heads, columns=columns, residual=residual, errors=errors)


def other_directions(delta: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    """Orthonormal rows (d - 1, d), all orthogonal to delta (d,)."""
    spanning = rng.standard_normal((len(delta), len(delta)))
    spanning[:, 0] = delta
    return np.linalg.qr(spanning)[0][:, 1:].T


def _spare(pairs: Pairs, n_slopes: int, n_heads: int) -> int:
    """Tokens beyond the unknown slopes."""
    return n_heads + SPARE + ((n_slopes + n_heads) // 2 if pairs.total.noise > NOISY else 0)
