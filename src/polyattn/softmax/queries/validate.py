"""The held-out check: fresh random sequences of several lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.findings import CLOSE, HeadsAt, HeldOutCheck
from polyattn.softmax.queries.layers import in_mode
from polyattn.softmax.queries.pairs import Pairs

if TYPE_CHECKING:
    from polyattn.softmax.queries.rotary import Turning

LENGTHS, N_PER_LENGTH = (2, 3, 5, 9), 9

# Positions are looked at farther back.
WITH_POSITIONS = (*LENGTHS, 40)

# Spreads of the tokens, in calibrated sizes; each is judged by itself.
SPREADS = (0.7, 2.0, 4.0)

# Deviations that pass: this, and this multiple of the noise, but no more than the third, and
# no more than so many times what noise and doubt explain: more is a function of the inputs, as
# heads leave over that are nearly alike and were taken for one.
PRECISION, NOISE_FACTOR, LARGEST_TOLERANCE, EXPLAINED = 1e-7, 1000, 1e-3, 10

# Modes in which a layer answers all rows; the first is taken where nothing tells them apart.
ROW_MODES = ("full", "causal")


@dataclass(frozen=True)
class Compared:
    """Rows (R, e) that the oracle answered, those of a layer, and what one token alone would give.

    Lengths follow one another; of each, every third sequence has the same spread: ``spread`` (R,).
    """

    observed: NDArray[np.float64]
    predicted: NDArray[np.float64]
    alone: NDArray[np.float64]
    spread: NDArray[np.intp]

    @classmethod
    def of(cls, X: NDArray, observed: NDArray, predicted: NDArray, pairs: Pairs) -> Compared:
        """Of rows (B, q, e) for the last q, or the first q, tokens X (B, q, d)."""
        alone = X @ pairs.total.value + pairs.total.bias
        spread = np.repeat(np.arange(len(X)) % len(SPREADS), X.shape[1])
        n_outputs = alone.shape[2]
        return cls(
            observed.reshape(-1, n_outputs),
            predicted.reshape(-1, n_outputs),
            alone.reshape(-1, n_outputs),
            spread,
        )

    @classmethod
    def together(cls, parts: list[Compared]) -> Compared:
        """All rows of several lengths."""
        names = ("observed", "predicted", "alone", "spread")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def at(self, number: int) -> Compared:
        """The rows of one spread."""
        which = self.spread == number
        return Compared(
            self.observed[which], self.predicted[which], self.alone[which], self.spread[which]
        )

    @property
    def size(self) -> float:
        """The rms effect of attention; without any effect, the largest output."""
        effects, outputs = self.observed - self.alone, self.observed
        return float(np.sqrt(np.mean(effects**2)) or np.abs(outputs).max()) or 1.0

    @property
    def deviation(self) -> float:
        """The largest deviation, relative to ``size``; NaN where answers are."""
        return float(np.abs(self.observed - self.predicted).max()) / self.size


def validate(
    pairs: Pairs, layer: SoftmaxAttention, heads: list[HeadsAt], turning: Turning | None = None
) -> HeldOutCheck:
    """Compare the layer, of mode last, with the oracle on random sequences of each of LENGTHS.

    Tokens are a random query token and others around it, of three spreads: what only shows on
    large inputs is noticed, and large outputs do not cover what small ones show.  Deviations are
    relative to the rms of F - x' S - b, which a layer without attention does not explain.
    The other rows, which are answered in any case, show in which modes the layer is right.
    Cost: N_PER_LENGTH queries for every length.
    """
    lengths, beside = (LENGTHS, 0.0) if turning is None else (WITH_POSITIONS, turning.doubt)
    answered = [_ask(pairs, length) for length in lengths]
    last = Compared.together(
        [Compared.of(X[:, -1:], rows[:, -1:], layer(X)[:, None], pairs) for X, rows in answered]
    )
    missed, size = last.observed - last.predicted, float(np.linalg.norm(last.observed)) or 1.0
    checks = [
        _check(pairs, last.at(number), heads, float(np.linalg.norm(missed)) / size, beside)
        for number in range(len(SPREADS))
    ]
    worst = max(checks, key=lambda check: check.deviation / check.allowed)
    fitting = tuple(mode for mode in ROW_MODES if _fits(pairs, layer, mode, answered, checks))
    return replace(worst, modes=fitting, turning=turning)


def _ask(pairs: Pairs, length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Random sequences (N_PER_LENGTH, length, d) of all spreads, and all rows of their answers."""
    X = pairs.random_sequences(np.resize(SPREADS, N_PER_LENGTH), length)
    return X, pairs.oracle.rows(X, length)


def _check(
    pairs: Pairs, compared: Compared, heads: list[HeadsAt], validation_error: float, beside: float
) -> HeldOutCheck:
    """The check of the last rows of one spread."""
    largest, deviation = np.abs(compared.observed).max(), compared.deviation
    doubt = max(_doubt(heads), beside)
    by_noise = NOISE_FACTOR * pairs.total.noise * float(largest) / compared.size
    allowed = min(PRECISION + by_noise, LARGEST_TOLERANCE)
    if deviation > EXPLAINED * (by_noise + doubt):
        # The residuals at single differences do not show how wrong the heads are.
        allowed, doubt = min(allowed, EXPLAINED * (by_noise + doubt)), inf
    return HeldOutCheck(heads, deviation, allowed, doubt, validation_error)


def _fits(
    pairs: Pairs,
    layer: SoftmaxAttention,
    mode: str,
    answered: list[tuple[NDArray, NDArray]],
    checks: list[HeldOutCheck],
) -> bool:
    """Whether the layer of this mode answers all rows but the last as well as it does the last.

    Their queries are other tokens, of other size: EXPLAINED times what the last row shows is
    allowed.  A wrong mode deviates by about 1.
    """
    other = in_mode(layer, mode)
    # Rows that nobody reads may hold anything, large numbers and NaN included: the layer says what
    # size they should have, so the two change places.
    compared = Compared.together(
        [Compared.of(X[:, :-1], other(X)[:, :-1], rows[:, :-1], pairs) for X, rows in answered]
    )
    for number, check in enumerate(checks):
        doubt = check.doubt if isfinite(check.doubt) else 0.0
        most = EXPLAINED * min(check.deviation + PRECISION + check.allowed + doubt, CLOSE)
        if not compared.at(number).deviation <= most:
            return False
    return True


def _doubt(heads: list[HeadsAt]) -> float:
    """The doubt about attn and value: differences of heads, divided by |delta_j - delta_0|."""
    if len(heads) < 2:
        return heads[0].doubt if heads else 0.0
    first, others = heads[0], heads[1:]
    near = np.array([np.linalg.norm(at.delta - first.delta) for at in others])
    lever = float(np.linalg.norm(first.delta)) / near
    doubts = np.array([np.hypot(at.doubt, first.doubt) for at in others])
    return float(np.sqrt(np.mean((lever * doubts) ** 2)))
