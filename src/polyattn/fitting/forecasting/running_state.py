"""RunningState: the sums that a layer attends to, kept up to date token by token.

For a scale of distances start <= t - s < stop and weights decay^(t - s), with products p_s,

    S_t = decay S_(t-1) + decay^start p_(t-start)          without a last distance,
    S_t = sum_(o = start..stop-1) decay^o p_(t-o)          in a window: nothing is subtracted.

The same recurrences hold for derivatives of the products, so that one class carries both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.form.form import Scale


class RunningState:
    """Sums over the tokens of B sequences, as the newest token of each sees them.

    scales : distances and weights of each set of heads
    shape : of the products of one token of each sequence, (pairs, B, ...)
    depth : how many tokens back anything but zero can be; None: as far as the scales reach
    Cost of a token: the products times the longest window; memory that, and the sums.
    """

    def __init__(
        self, scales: Sequence[Scale], shape: tuple[int, ...], depth: int | None = None
    ) -> None:
        needed = max(
            scale.start + 1 if scale.stop is None else max(scale.stop, 1) for scale in scales
        )
        self.scales, self.depth = scales, needed if depth is None else min(needed, depth)
        # The product at distance o stands at (newest - o) modulo the depth.
        self.recent, self.newest = np.zeros((self.depth, *shape)), 0
        self.totals = {
            number: np.zeros(shape) for number, scale in enumerate(scales) if scale.stop is None
        }

    def load(self, sequence: int, products: NDArray, first: int, n_tokens: int) -> None:
        """Add a piece (pairs, k) of the products of a sequence, from token ``first`` on.

        n_tokens : how many tokens it has in all, before any ``push``
        """
        distances = n_tokens - 1 - (first + np.arange(products.shape[1]))
        for number, total in self.totals.items():
            start, _, decay = self.scales[number]
            seen = distances >= start
            total[:, sequence] += products[:, seen] @ decay ** distances[seen].astype(np.float64)
        near = distances < self.depth
        places = (self.newest - distances[near]) % self.depth
        self.recent[places, :, sequence] = products[:, near].T

    def push(self, products: NDArray) -> NDArray[np.float64]:
        """The sums (scales * pairs, B, ...) once each sequence has one token more."""
        self.newest = (self.newest + 1) % self.depth
        self.recent[self.newest] = products
        return np.concatenate([self._sum(number) for number in range(len(self.scales))])

    def keep(self, which: NDArray) -> None:
        """Go on with some of the sequences."""
        self.recent = self.recent[:, :, which]
        self.totals = {number: total[:, which] for number, total in self.totals.items()}

    def scale(self, factors: NDArray) -> None:
        """Multiply all that is kept of each sequence by its factor (B,)."""
        shape = (-1, *[1] * (self.recent.ndim - 3))
        self.recent *= factors.reshape(shape)
        for total in self.totals.values():
            total *= factors.reshape(shape)

    def _sum(self, number: int) -> NDArray[np.float64]:
        start, stop, decay = self.scales[number]
        if stop is None:
            total = self.totals[number]
            if decay != 1.0:
                total *= decay
            if start < self.depth:
                total += decay**start * self._at(start)
            return total
        stop = min(stop, self.depth)
        if stop <= start:
            return np.zeros(self.recent.shape[1:])
        if stop == start + 1:
            return decay**start * self._at(start)
        distances = np.arange(start, stop)
        recent = self.recent[(self.newest - distances) % self.depth]
        return np.tensordot(decay ** distances.astype(np.float64), recent, axes=1)

    def _at(self, distance: int) -> NDArray[np.float64]:
        return np.asarray(self.recent[(self.newest - distance) % self.depth])
