"""Linear attention as a classifier and a regressor of aeon, imported only by those who have it.

Both are thin: aeon checks and converts what comes, time and channels change places, and
``LinearAttentionClassifier`` or ``LinearAttentionRegressor`` does the rest.
"""

from __future__ import annotations

from typing import Any

from polyattn.errors import missing_extra

try:
    from aeon.classification.base import BaseClassifier
    from aeon.regression.base import BaseRegressor
except ModuleNotFoundError as error:
    if error.name != "aeon":
        raise
    raise missing_extra("aeon") from None

from polyattn.interop.series import SeriesClassifier, SeriesRegressor

__all__ = ["AeonAttentionClassifier", "AeonAttentionRegressor"]

TAGS = {
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "X_inner_type": ["numpy3D", "np-list"],
    "algorithm_type": "feature",
}


class AeonAttentionClassifier(SeriesClassifier, BaseClassifier):  # type: ignore[misc]
    """``SeriesClassifier`` for aeon: series (n_channels, n_times), of any lengths.

    Examples
    --------
    >>> from aeon.datasets import load_japanese_vowels
    >>> from polyattn.interop.aeon import AeonAttentionClassifier
    >>> X_train, y_train = load_japanese_vowels(split="train")
    >>> X_test, y_test = load_japanese_vowels(split="test")
    >>> classifier = AeonAttentionClassifier().fit(X_train, y_train)
    >>> bool(classifier.score(X_test, y_test) > 0.97)
    True
    """

    _tags = TAGS

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What aeon's checks make instances of."""
        sets: list[dict[str, Any]] = [{}, {"loss": "logistic", "impute": "linear"}]
        return sets if parameter_set == "default" else sets[:1]


class AeonAttentionRegressor(SeriesRegressor, BaseRegressor):  # type: ignore[misc]
    """``SeriesRegressor`` for aeon: series (n_channels, n_times), of any lengths.

    Examples
    --------
    >>> from aeon.datasets import load_cardano_sentiment
    >>> from polyattn.interop.aeon import AeonAttentionRegressor
    >>> X_train, y_train = load_cardano_sentiment(split="train")
    >>> regressor = AeonAttentionRegressor().fit(X_train, y_train)
    >>> X_train.shape, regressor.predict(X_train).shape
    ((74, 2, 24), (74,))
    """

    _tags = TAGS

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What aeon's checks make instances of."""
        sets: list[dict[str, Any]] = [{}, {"ridge": 1.0, "impute": "mean", "standardise": False}]
        return sets if parameter_set == "default" else sets[:1]
