"""What transformers of sequences share: arrays, lists and batches in, and the same kind back."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from polyattn.errors import InvalidInput
from polyattn.estimators.arguments import tokens_first
from polyattn.estimators.description import DescribedEstimator
from polyattn.estimators.feature_names import NamesOfFeatures
from polyattn.quoting import counted
from polyattn.sequences import (
    SequenceBatch,
    Sequences,
    as_batch,
    checked_before,
    is_list,
    require_same_names,
)


class SequenceTransformer(
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    DescribedEstimator,
    NamesOfFeatures,
):
    """Base of the transformers: tokens are changed sequence by sequence, coordinates are named."""

    layout: str
    n_features_in_: int

    def __init_subclass__(cls, **options: Any) -> None:
        # scikit-learn would make tables of what comes out, in every class anew.
        super().__init_subclass__(auto_wrap_output_keys=None, **options)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Sequences are no table: whatever kind comes in goes out, and no other can be chosen."""
        if transform in (None, "default"):
            return self
        raise InvalidInput(
            f"{type(self).__name__} gives back sequences as they came (an array, a list or a "
            f"batch), which no table holds; got transform={transform!r}. Leave set_output out."
        )

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """The names of the coordinates: those of ``fit``, those given, or x0, x1, ..."""
        check_is_fitted(self)
        seen = getattr(self, "feature_names_in_", None)
        if input_features is None and seen is not None:
            return np.array(seen, dtype=object)
        if input_features is None:
            return np.array([f"x{j}" for j in range(self.n_features_in_)], dtype=object)
        names = np.asarray(input_features, dtype=object)
        if names.shape != (self.n_features_in_,):
            raise InvalidInput(
                f"input_features must be {self.n_features_in_} names, one for each coordinate; "
                f"got shape {names.shape}."
            )
        require_same_names(names.tolist(), seen, "in input_features")
        return names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _title(self) -> str:
        return "A fitted transformer"

    def _learned_in_words(self) -> str:
        return f"tokens of {counted(self.n_features_in_, 'coordinate')}"

    def _learned_facts(self) -> dict[str, Any]:
        return dict(self.get_params())

    def _batch(
        self, X: Sequences, n_dims: int | None = None, missing: bool = False
    ) -> SequenceBatch:
        """X as a batch, with its tokens first; after a fit (``n_dims``) of the names of that."""
        if n_dims is not None:
            self._require_names(X)
        return as_batch(tokens_first(X, None, self.layout)[0], "X", n_dims, missing=missing)

    def _as_given(self, X: Sequences, values: NDArray, batch: SequenceBatch) -> Any:
        """New tokens (n_tokens, d) of the sequences of X, in the kind and layout of X."""
        made = checked_before(values, batch.offsets)
        if isinstance(X, SequenceBatch):
            names = X.coordinate_names
            return made if names is None else made.named(self.get_feature_names_out(names).tolist())
        turned = self.layout == "channels_first"
        if is_list(X) or batch.common_length is None:
            return [np.ascontiguousarray(each.T) if turned else each for each in made]
        array = values.reshape(len(batch), -1, values.shape[1])
        return np.ascontiguousarray(np.swapaxes(array, 1, 2)) if turned else array
