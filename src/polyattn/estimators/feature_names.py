"""Names of coordinates that an estimator was fitted to: ``feature_names_in_``, as scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.estimators.arguments import tokens_first
from polyattn.sequences import names_of, require_same_names


class NamesOfFeatures:
    """An estimator that remembers what coordinates were called, and refuses other names.

    Sequences without names (arrays, lists) are taken as they are, and after a fit to such ones so
    are all names.
    """

    layout: str

    def _taken(self, X: Any, context: Any) -> tuple[Any, Any]:
        """X and context with their tokens as rows; other names than were fitted are refused."""
        self._require_names(X)
        return tokens_first(X, context, self.layout)

    def _remember_names(self, X: Any) -> None:
        """Those of the sequences that were fitted; none where they have none."""
        self._set_names(names_of(X))

    def _set_names(self, names: Any) -> None:
        vars(self).pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _require_names(self, X: Any) -> None:
        """Refuse sequences whose coordinates are called otherwise, or stand in another order."""
        require_same_names(names_of(X), getattr(self, "feature_names_in_", None))
