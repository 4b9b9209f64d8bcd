"""Series as tokens: what a layer is shown of each moment of a series.

A token of time t is made of up to four parts, side by side:

    1          a constant, which gives the layer single coordinates beside their products
    waves      cos(pi k u), k = 1..n_waves, with u in (0, 1) the place of t in the series
    values     the channels at t, or the last ``lags`` of them; ``normed``: divided by their norm
    signs      whether random directions of the piece around t are above a threshold: +a or -a,
               with a = ``sign_size``

Pieces are nine values long, one, two, four, ... steps apart, so that signs see short and long
shapes alike; half of the directions add up to zero in every channel and so do not see its level.
Thresholds are quantiles of the training pieces.  Nothing here looks at labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.preprocessing import StandardScaler

#: Values in a piece, and at most so many distances between them (1, 2, 4, ... steps).
PIECE, MOST_STEPS = 9, 6

#: Long series are seen at this many moments, equally far apart.
MOST_TOKENS = 128

#: Thresholds lie between these quantiles, of about so many pieces of the training series.
QUANTILES, N_SAMPLED = (0.1, 0.9), 2000


@dataclass(frozen=True)
class View:
    """Which parts tokens have, and whether series are scaled together or each for itself."""

    scaled: str  # "together": per channel over all training series; "each": each series by itself
    n_waves: int = 0
    lags: int = 0
    normed: bool = False
    n_signs: int = 0
    sign_size: float = 1.0


class Tokens:
    """Makes tokens by a view; scales and thresholds are those of the training series."""

    def __init__(self, view, seed=0):
        self.view, self.seed = view, seed

    def fit_transform(self, series):
        """Sequences (n_tokens, n_coordinates) of the training series (channels, time)."""
        values = np.concatenate(series, axis=1)
        self.centre, self.size = _centre_and_size(values)
        length = np.median([one.shape[1] for one in series])
        n_steps = 1 + int(np.log2(max(1.0, (length - 1) / (PIECE - 1))))
        self.steps = 2 ** np.arange(min(n_steps, MOST_STEPS))
        self.directions = self._random_directions(series[0].shape[0])
        self.thresholds = None
        return self.transform(series)

    def transform(self, series):
        """Sequences (n_tokens, n_coordinates) of any series (channels, time)."""
        series = [self._scaled(one) for one in series]
        times = [_moments(one.shape[1]) for one in series]
        parts = [[np.ones((len(t), 1)) for t in times]]
        if self.view.n_waves:
            each = zip(series, times, strict=True)
            parts.append([_waves(t, one.shape[1], self.view.n_waves) for one, t in each])
        if self.view.lags:
            parts.append([self._values(one, t) for one, t in zip(series, times, strict=True)])
        if self.view.n_signs:
            parts.append(self._signs(series, times))
        return [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]

    def _scaled(self, one):
        together = self.view.scaled == "together"
        centre, size = (self.centre, self.size) if together else _centre_and_size(one)
        return (one - centre) / size

    def _values(self, one, times):
        """The channels at each time and ``lags - 1`` times before (the first value is repeated)."""
        back = np.arange(self.view.lags)
        values = one[:, np.maximum(times[:, None] - back, 0)]  # (channels, n_tokens, lags)
        values = np.concatenate(values, axis=1)
        if not self.view.normed:
            return values
        return values / np.sqrt(1.0 + np.mean(values**2, axis=1, keepdims=True))

    def _signs(self, series, times):
        """Signs of all directions of the pieces around each time."""
        ends = np.cumsum([len(t) for t in times])[:-1]
        both = zip(series, times, strict=True)
        pieces = [_pieces(one, t, self.steps) for one, t in both]
        heights = np.concatenate(
            [
                np.concatenate([piece[k] for piece in pieces]) @ directions
                for k, directions in enumerate(self.directions)
            ],
            axis=1,
        )
        if self.thresholds is None:
            self.thresholds = _spread_quantiles(heights)
        size = self.view.sign_size
        return np.split(np.where(heights > self.thresholds, size, -size), ends)

    def _random_directions(self, n_channels):
        """For each number of steps a matrix (channels * PIECE, directions)."""
        rng = np.random.default_rng(self.seed)
        n_each = self.view.n_signs // len(self.steps)
        found = []
        for _ in self.steps:
            weights = rng.standard_normal((n_each, n_channels, PIECE))
            weights[::2] -= weights[::2].mean(axis=2, keepdims=True)
            found.append(weights.reshape(n_each, n_channels * PIECE).T)
        return found


class Summaries:
    """Sequences of one token: the constant 1 and the standardised summaries."""

    def fit_transform(self, series):
        self.scaler = StandardScaler().fit(summaries(series))
        return self.transform(series)

    def transform(self, series):
        rows = self.scaler.transform(summaries(series))
        return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)[:, None, :]


def summaries(series):
    """Mean, standard deviation and last value of every channel: one row for each series."""
    return np.array([np.concatenate([s.mean(1), s.std(1), s[:, -1]]) for s in series])


def are_standardised(series):
    """Whether every channel of every series has mean 0 and deviation 1 already, roughly."""
    rows = np.array([[one.mean(axis=1), one.std(axis=1)] for one in series])
    return bool(np.all(np.abs(rows - [[0.0], [1.0]]) < 0.05))


def _centre_and_size(values):
    """Mean and standard deviation of every channel (channels, 1); 1 where a channel is constant."""
    centre, size = values.mean(axis=1, keepdims=True), values.std(axis=1, keepdims=True)
    constant = size <= 1e-9 * np.abs(values).max(axis=1, keepdims=True)
    return centre, np.where(constant, 1.0, size)


def _moments(length):
    """The times that are seen of a series."""
    if length <= MOST_TOKENS:
        return np.arange(length)
    return np.linspace(0, length - 1, MOST_TOKENS).astype(int)


def _waves(times, length, n_waves):
    """cos(pi k u) of the places u of the times, k = 1..n_waves; 0 where a series is too short."""
    order = np.arange(1, n_waves + 1)
    return np.cos(np.pi * np.outer((times + 0.5) / length, order)) * (order < length)


def _pieces(one, times, steps):
    """Pieces around the times for each distance of values: (steps, n_tokens, channels * PIECE).

    Beyond both ends a series goes on with its first or last value.
    """
    offsets = steps[:, None] * (np.arange(PIECE) - PIECE // 2)
    at = np.clip(times[:, None, None] + offsets, 0, one.shape[1] - 1)  # (n_tokens, steps, PIECE)
    return one[:, at].transpose(2, 1, 0, 3).reshape(len(steps), len(times), -1)


def _spread_quantiles(heights):
    """A quantile of each column, from low to high and in a mixed order."""
    sample = np.sort(heights[:: 1 + len(heights) // N_SAMPLED], axis=0)
    n_columns = heights.shape[1]
    # Multiples of the golden ratio fill an interval evenly, wherever one stops.
    places = (np.arange(n_columns) * 0.6180339887498949) % 1.0
    low, high = QUANTILES
    rows = ((low + (high - low) * places) * (len(sample) - 1)).astype(int)
    columns = np.arange(n_columns)
    # Between two pieces: at the height of one of them rounding would decide.
    return (sample[rows, columns] + sample[np.minimum(rows + 1, len(sample) - 1), columns]) / 2
