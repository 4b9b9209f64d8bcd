"""The methods, each as a pair (classifier, regressor) made from nothing but data.

Series are arrays (channels, time), as aeon holds them.  Every method is used once, with its
defaults: nothing was tuned on the test sets.
"""

from __future__ import annotations

import numpy as np
from aeon.classification.convolution_based import MiniRocketClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
from aeon.regression.convolution_based import MiniRocketRegressor
from aeon.regression.distance_based import KNeighborsTimeSeriesRegressor
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyattn as pa

ALPHAS = np.logspace(-4, 4, 17)

#: A series of one channel becomes tokens of this many consecutive values: a token of one number
#: and a constant would leave the layer six coefficients.
LAGS = 6


class Attention:
    """One linear attention layer, the global optimum, its ridge chosen by leave-one-out.

    So is the size of tokens: as they are (standardised), or each divided by its norm, as
    Transformers do. The layer is cubic in its tokens, and one long token can outweigh all others.
    """

    maps = (True, False)

    def __init__(self, is_regression):
        self.estimator = (
            pa.LinearAttentionRegressor if is_regression else pa.LinearAttentionClassifier
        )

    def fit(self, series, y):
        tokens = np.concatenate([_tokens(one) for one in series])
        self.centre, self.scale = tokens.mean(0), tokens.std(0) + 1e-12
        fits = []
        for is_normed in self.maps:
            model = self.estimator(ridge="loo", bias=True).fit(
                self._sequences(series, is_normed), y
            )
            fits.append((model.result_.ridge_path.errors.min(), is_normed, model))
        _, self.is_normed, self.model = min(fits, key=lambda fit: fit[0])
        return self

    def predict(self, series):
        return self.model.predict(self._sequences(series, self.is_normed))

    def _sequences(self, series, is_normed):
        sequences = [(_tokens(one) - self.centre) / self.scale for one in series]
        if not is_normed:
            return sequences
        return [X / np.sqrt(1 + np.mean(X**2, axis=1, keepdims=True)) for X in sequences]


class RawAttention(Attention):
    """The same without the choice: tokens are only standardised."""

    maps = (False,)


class Summaries:
    """Ridge regression on mean, standard deviation and last value of every channel."""

    def __init__(self, is_regression):
        ridge = RidgeCV(ALPHAS) if is_regression else RidgeClassifierCV(ALPHAS)
        self.model = make_pipeline(StandardScaler(), ridge)

    def fit(self, series, y):
        self.model.fit(self._summaries(series), y)
        return self

    def predict(self, series):
        return self.model.predict(self._summaries(series))

    def _summaries(self, series):
        return np.array([np.concatenate([s.mean(1), s.std(1), s[:, -1]]) for s in series])


class NearestWarped:
    """The nearest neighbour under dynamic time warping (1NN-DTW)."""

    def __init__(self, is_regression):
        estimator = (
            KNeighborsTimeSeriesRegressor if is_regression else KNeighborsTimeSeriesClassifier
        )
        self.model = estimator(n_neighbors=1, distance="dtw")

    def fit(self, series, y):
        self.model.fit(series, y)
        return self

    def predict(self, series):
        return self.model.predict(series)


class MiniRocket:
    """Random convolutions and ridge; short series are continued by their last value."""

    def __init__(self, is_regression):
        estimator = MiniRocketRegressor if is_regression else MiniRocketClassifier
        self.model = estimator(random_state=0)

    def fit(self, series, y):
        # Kernels of length 9 want as many values.
        self.length = max(9, *(one.shape[1] for one in series))
        self.model.fit(self._even(series), y)
        return self

    def predict(self, series):
        return self.model.predict(self._even(series))

    def _even(self, series):
        return np.stack([_at_length(one, self.length) for one in series])


METHODS = {
    "linear attention": Attention,
    "the same, long tokens": RawAttention,
    "ridge on summaries": Summaries,
    "1NN-DTW": NearestWarped,
    "MiniRocket": MiniRocket,
}


def _tokens(one):
    """A series as tokens (time, channels); one channel as windows of LAGS values."""
    if one.shape[0] > 1:
        return one.T
    return np.lib.stride_tricks.sliding_window_view(one[0], LAGS)


def _at_length(one, length):
    """The first ``length`` values, or all of them and the last one again and again."""
    missing = max(0, length - one.shape[1])
    return np.pad(one[:, :length], ((0, 0), (0, missing)), mode="edge")
