"""The methods, each as a pair (classifier, regressor) made from nothing but data.

Series are arrays (channels, time), as aeon holds them.  The attention recipe (attention.py) is what
this folder makes of the estimators of polyattn; all others are used as their packages have them.
"""

from __future__ import annotations

import numpy as np
from aeon.classification.convolution_based import MiniRocketClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
from aeon.regression.convolution_based import MiniRocketRegressor
from aeon.regression.distance_based import KNeighborsTimeSeriesRegressor
from attention import Attention, SlowAttention
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tokens import summaries

import polyattn as pa
from polyattn.interop.aeon import AeonAttentionClassifier, AeonAttentionRegressor

ALPHAS = np.logspace(-4, 4, 17)


class PlainAttention:
    """The estimators of polyattn with their defaults; a token is the channels at its time."""

    def __init__(self, is_regression):
        kind = pa.LinearAttentionRegressor if is_regression else pa.LinearAttentionClassifier
        self.model = kind()

    def fit(self, series, y):
        self.model.fit([one.T for one in series], y)
        return self

    def predict(self, series):
        return self.model.predict([one.T for one in series])


class Adapter:
    """The adapters of polyattn for aeon with their defaults."""

    def __init__(self, is_regression):
        self.model = AeonAttentionRegressor() if is_regression else AeonAttentionClassifier()

    def fit(self, series, y):
        self.model.fit(series, y)
        return self

    def predict(self, series):
        return self.model.predict(series)


class RidgeOnSummaries:
    """Ridge regression on mean, standard deviation and last value of every channel."""

    def __init__(self, is_regression):
        ridge = RidgeCV(ALPHAS) if is_regression else RidgeClassifierCV(ALPHAS)
        self.model = make_pipeline(StandardScaler(), ridge)

    def fit(self, series, y):
        self.model.fit(summaries(series), y)
        return self

    def predict(self, series):
        return self.model.predict(summaries(series))


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
    "attention recipe": Attention,
    "with decay and log-loss": SlowAttention,
    "default estimator": PlainAttention,
    "default aeon adapter": Adapter,
    "ridge on summaries": RidgeOnSummaries,
    "1NN-DTW": NearestWarped,
    "MiniRocket": MiniRocket,
}


def _at_length(one, length):
    """The first ``length`` values, or all of them and the last one again and again."""
    missing = max(0, length - one.shape[1])
    return np.pad(one[:, :length], ((0, 0), (0, missing)), mode="edge")
