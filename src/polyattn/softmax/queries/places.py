"""A few query tokens at which copies separate the heads of one difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.calibrate import Sizes, unit_rows
from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.rational import N_COPIES, poles_at_point, shares

# Query tokens at which the rational function is tried, and their norm in calibrated sizes.
N_PLACES = 4
PLACE_SIZE = 3.0

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
        fits = []
        for place, effects in zip(self.tokens, self.effects, strict=True):
            logits, values, residual = poles_at_point(
                effects, self.total, n_heads, FIT * error, rng
            )
            if residual <= FIT * error:
                heads = HeadsAt(self.delta, logits[:, None], values)
                fits.append((_clearness(logits, values), place, heads))
        if 2 * len(fits) < len(self.tokens):
            return None
        _, place, heads = max(fits, key=lambda fit: fit[0])
        return place, heads


def measure_places(pairs: Pairs, sizes: Sizes, rng: np.random.Generator) -> Places:
    """Places for a random difference.  Cost: N_PLACES queries for every share."""
    delta = sizes.delta * unit_rows(rng, 1, pairs.oracle.n_dims)[0]
    tokens = PLACE_SIZE * sizes.point * unit_rows(rng, N_PLACES, pairs.oracle.n_dims)
    effects = effects_at_shares(pairs, tokens, delta, shares())
    return Places(delta, pairs.sum_of(delta), tokens, effects)


def effects_at_shares(
    pairs: Pairs, tokens: NDArray, delta: NDArray, moved: NDArray
) -> NDArray[np.float64]:
    """Effects (Q, R, e) with each number of moved copies."""
    return np.stack([pairs.effect(tokens, delta, int(r), N_COPIES - int(r)) for r in moved], axis=1)


def _clearness(logits: NDArray, values: NDArray) -> float:
    """How well separated the sigmoids are: the smallest gap times the smallest value."""
    gap = float(np.diff(np.sort(logits)).min()) if len(logits) > 1 else 1.0
    sizes = np.linalg.norm(values, axis=1)
    return min(gap, 3.0) * float(sizes.min() / sizes.max()) / (1 + float(np.abs(logits).max()))
