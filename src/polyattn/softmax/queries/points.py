"""Query tokens that serve for every difference, and the heads that their effects determine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.mixing import Mixing, logits, slopes_of, solve_mixing
from polyattn.softmax.queries.pairs import Pairs, unit_rows

# Norm of query tokens, in calibrated sizes.
POINT_SIZE = 1.5

# How far differences lie from the first one, in calibrated sizes, and how often that is halved.
DISTANCE, N_HALVINGS = 0.3, 4

# Effects beyond the unknowns of a head: they distinguish a solution from an accident.  Where noise
# matters there are half as many again as unknowns, to average it.
SPARE = 6

# Up to this many rows of attn all of them are unknowns while heads are unmixed.
WHOLE_ROWS = 100

# Noise above this is worth a second solve with all query tokens.
NOISY = 1e-12


@dataclass(frozen=True)
class Points:
    """Query tokens (Q, d), of which the first ``n_mixing`` unmix the heads.

    Their rows are expressed in ``basis`` (D, k), or one basis (H, D, k) per head.  The others,
    if there are any, determine all rows of A_i delta once the heads are unmixed.
    """

    tokens: NDArray[np.float64]
    rows: NDArray[np.float64]
    basis: NDArray[np.float64]
    n_mixing: int

    def solve(
        self, effects: NDArray, total: NDArray, start: NDArray, delta: NDArray, noise: float
    ) -> tuple[Mixing, HeadsAt] | None:
        """The heads for ``delta`` whose c_i are near the rows of ``start`` (H, e)."""
        n = self.n_mixing
        mixing = solve_mixing(effects[:n], total, self.rows[:n] @ self.basis, start)
        if mixing is None:
            return None
        if n == len(self.tokens):
            columns = np.einsum("...dk,...k->...d", self.basis, mixing.slopes)
            return mixing, HeadsAt(delta, columns, mixing.values, mixing.doubt)
        if noise > NOISY:
            again = solve_mixing(effects, total, self.rows, mixing.values)
            if again is None:
                return None
            return again, HeadsAt(delta, again.slopes, again.values, again.doubt)
        columns = self._columns(effects[n:] @ mixing.unmix)
        return mixing, HeadsAt(delta, columns, mixing.values, mixing.doubt)

    def _columns(self, sigmoids: NDArray) -> NDArray[np.float64]:
        """A_i delta (H, D) from the sigmoids (Q', H) of the tokens that are not for mixing."""
        rows = self.rows[self.n_mixing :]
        if np.min(sigmoids * (1 - sigmoids)) > 1e-3:
            return np.asarray(np.linalg.lstsq(rows, logits(sigmoids), rcond=None)[0].T, float)
        return slopes_of(sigmoids, np.broadcast_to(rows, (sigmoids.shape[1], *rows.shape)))


def points_for_all_rows(pairs: Pairs, n_heads: int) -> Points:
    """Tokens that determine every row of A_i delta: orthogonal ones, zero for biases, and spare.

    Up to WHOLE_ROWS rows: D + H + SPARE tokens for everything.  Above: max(6, H) + H + SPARE
    in a subspace unmix the heads, and D + 4 others determine the rows.
    """
    n_dims, rng, size = pairs.n_dims, pairs.rng, POINT_SIZE * pairs.point_size
    frame = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
    frame = np.vstack([frame, np.zeros((int(pairs.bias), n_dims))])
    if pairs.n_rows <= WHOLE_ROWS:
        spare = unit_rows(rng, _spare(pairs, pairs.n_rows, n_heads), n_dims)
        tokens = size * np.vstack([frame, spare])
        return Points(tokens, pairs.rows(tokens), np.eye(pairs.n_rows), len(tokens))
    n_seen = max(6, n_heads)
    subspace = np.linalg.qr(rng.standard_normal((n_dims, n_seen)))[0]
    n_inside = n_seen + pairs.bias + _spare(pairs, n_seen, n_heads)
    inside = unit_rows(rng, n_inside, n_seen) @ subspace.T
    n_outside = 4 if pairs.noise <= NOISY else n_dims // 4
    outside = np.vstack([frame, unit_rows(rng, n_outside, n_dims)])
    tokens = size * np.vstack([inside, outside])
    basis = np.zeros((pairs.n_rows, n_seen + pairs.bias))
    basis[:n_dims, :n_seen] = subspace
    basis[n_dims:, n_seen:] = 1.0
    return Points(tokens, pairs.rows(tokens), basis, len(inside))


def points_for_column_spaces(pairs: Pairs, spaces: NDArray) -> Points:
    """r + H + SPARE tokens, when the columns of A_i are known to lie in ``spaces`` (H, D, r)."""
    n_heads, _, rank = spaces.shape
    n_tokens = rank + _spare(pairs, rank, n_heads)
    tokens = pairs.random_points(n_tokens, POINT_SIZE)
    return Points(tokens, pairs.rows(tokens), spaces, n_tokens)


def other_directions(delta: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    """Orthonormal rows (d - 1, d), all orthogonal to delta (d,)."""
    n_dims = len(delta)
    spanning = rng.standard_normal((n_dims, n_dims))
    spanning[:, 0] = delta
    return np.linalg.qr(spanning)[0][:, 1:].T


def _spare(pairs: Pairs, n_slopes: int, n_heads: int) -> int:
    """Tokens beyond the unknown slopes."""
    return n_heads + SPARE + ((n_slopes + n_heads) // 2 if pairs.noise > NOISY else 0)
