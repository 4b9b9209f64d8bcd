"""What a classifier says of its training data: how many labels are right, and the largest class."""

from __future__ import annotations

from typing import Any

from polyattn.fitting.majority import majority_of_sums


class TrainingShares:
    """Shares of labels of an estimator with a ``result_`` and the state behind it."""

    result_: Any
    multilabel_: bool
    _state: Any

    @property
    def majority_share_(self) -> float | None:
        """The share of the most frequent class among the labels, weights included.

        Of several labels at once there is none: None.
        """
        known = self.result_.majority_share
        if self.multilabel_:
            return None
        return majority_of_sums(self._state.statistics) if known is None else known

    @property
    def training_accuracy_(self) -> float | None:
        """The share of the training data that is labelled rightly; None after partial_fit."""
        return self.result_.accuracy
