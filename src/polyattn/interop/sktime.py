"""Linear attention as a classifier and a regressor of sktime, imported only by those who have it.

Both are thin: sktime checks and converts what comes, time and channels change places, and
``LinearAttentionClassifier`` or ``LinearAttentionRegressor`` does the rest.
"""

from __future__ import annotations

from typing import Any

from polyattn.errors import missing_extra

try:
    from sktime.classification.base import BaseClassifier
    from sktime.regression.base import BaseRegressor
except ModuleNotFoundError as error:
    if error.name != "sktime":
        raise
    raise missing_extra("sktime") from None

from polyattn.interop.series import SeriesClassifier, SeriesRegressor

__all__ = ["SktimeAttentionClassifier", "SktimeAttentionRegressor"]

TAGS = {
    "authors": "The polyattn authors",
    "maintainers": "The polyattn authors",
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:random_state": True,
    "property:randomness": "derandomized",
    # The first is what all other types become; arrays stay arrays.
    "X_inner_mtype": ["df-list", "numpy3D"],
}


class SktimeAttentionClassifier(SeriesClassifier, BaseClassifier):  # type: ignore[misc]
    """``SeriesClassifier`` for sktime: panels of any type, with series of any lengths.

    Examples
    --------
    >>> from polyattn.interop.sktime import SktimeAttentionClassifier
    >>> from sktime.datasets import load_unit_test
    >>> X_train, y_train = load_unit_test(split="train", return_X_y=True)
    >>> X_test, y_test = load_unit_test(split="test", return_X_y=True)
    >>> classifier = SktimeAttentionClassifier(loss="logistic").fit(X_train, y_train)
    >>> classifier.predict_proba(X_test).shape
    (22, 2)
    """

    _tags = TAGS | {"capability:predict_proba": True, "capability:class_weight": True}

    def _say_what_is_possible(self) -> None:
        super()._say_what_is_possible()
        # Squared error has scores and no probabilities.
        self.set_tags(**{"capability:predict_proba": self.loss == "logistic"})

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What sktime's checks make instances of."""
        sets: list[dict[str, Any]] = [{}, {"loss": "logistic", "impute": "linear"}]
        return sets if parameter_set == "default" else sets[:1]


class SktimeAttentionRegressor(SeriesRegressor, BaseRegressor):  # type: ignore[misc]
    """``SeriesRegressor`` for sktime: panels of any type, with series of any lengths.

    Examples
    --------
    >>> from polyattn.interop.sktime import SktimeAttentionRegressor
    >>> from sktime.datasets import load_unit_test
    >>> X_train, y_train = load_unit_test(split="train", return_X_y=True)
    >>> X_test, _ = load_unit_test(split="test", return_X_y=True)
    >>> regressor = SktimeAttentionRegressor()
    >>> regressor.fit(X_train, y_train.astype(float)).predict(X_test).shape
    (22,)
    """

    _tags = TAGS

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What sktime's checks make instances of."""
        sets: list[dict[str, Any]] = [{}, {"ridge": 1.0, "impute": "mean", "standardise": False}]
        return sets if parameter_set == "default" else sets[:1]
