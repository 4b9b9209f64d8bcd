"""SequenceImputer: missing numbers of tokens, from the same sequence or from training."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from polyattn.errors import InvalidInput, require_choice, require_flag
from polyattn.estimators.transformers import SequenceTransformer
from polyattn.numerics.coordinate_sums import CoordinateSums
from polyattn.numerics.filling import filled_by_previous, filled_linearly
from polyattn.quoting import shown
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.sources.source import Source

STRATEGIES = ("previous", "linear", "mean", "median", "constant")


class SequenceImputer(SequenceTransformer):
    """Missing numbers (NaN) of tokens filled in, each from its own sequence or from training.

    Nothing is ever carried from one sequence to another.

    Parameters
    ----------
    strategy : "previous" | "linear" | "mean" | "median" | "constant"
        ``previous``: the last number seen before it in the sequence, and at its beginning the
        mean of training.  ``linear``: on the line between those seen before and after it; beyond
        the first and the last one, these; in a sequence without any, the mean of training.
        ``mean``, ``median``: that of the coordinate over all tokens of training.  ``constant``:
        ``fill_value``.
    fill_value : float
        What ``strategy="constant"`` fills in.
    add_indicator : bool
        Append a coordinate, 1 where the number was missing and else 0, for each coordinate of
        which one was missing in training.
    layout : "tokens_first" | "channels_first"
        The axes of arrays: (n_sequences, n_tokens, n_dims), or (n_sequences, n_channels, n_time).

    Attributes
    ----------
    statistics_ : array (d,), what fills a coordinate where its sequence does not tell
    indicator_features_ : array of int, the coordinates of which one was missing in training
    n_features_in_ : int, coordinates of a token
    feature_names_in_ : array of str, only of sequences with names: what coordinates are called

    X is an array (n_sequences, n_tokens, n_dims), a list of arrays (n_i, n_dims) or a
    SequenceBatch; what comes back is of the same kind, in float64.  Infinity is refused, and so is
    a coordinate of which training saw no number, unless the strategy is ``constant``.

    >>> import numpy as np, polyattn as pa
    >>> X = [np.array([[1.0], [np.nan], [3.0]]), np.array([[np.nan], [5.0]])]
    >>> [each[:, 0].tolist() for each in pa.SequenceImputer().fit_transform(X)]
    [[1.0, 1.0, 3.0], [3.0, 5.0]]
    """

    def __init__(
        self,
        strategy: str = "previous",
        fill_value: float = 0.0,
        add_indicator: bool = False,
        layout: str = "tokens_first",
    ) -> None:
        self.strategy = strategy
        self.fill_value = fill_value
        self.add_indicator = add_indicator
        self.layout = layout

    def fit(self, X: Sequences, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn gives it
        """What is filled in where a sequence does not tell, from sequences X."""
        strategy = require_choice("strategy", self.strategy, STRATEGIES)
        require_flag("add_indicator", self.add_indicator)
        batch = self._with_gaps(X)
        values = _numbers(batch)
        missing = np.isnan(values)
        if strategy == "constant":
            statistics = np.full(batch.n_dims, require_real("fill_value", self.fill_value))
        else:
            _require_seen(missing)
            statistics = _medians(values) if strategy == "median" else _means(values)
        self.statistics_, self.n_features_in_ = statistics, batch.n_dims
        self.indicator_features_ = np.flatnonzero(missing.any(axis=0))
        self._remember_names(X)
        return self

    def transform(self, X: Sequences) -> Any:
        """X without gaps, in its own kind."""
        check_is_fitted(self)
        strategy = require_choice("strategy", self.strategy, STRATEGIES)
        batch = self._with_gaps(X, self.n_features_in_)
        values = _numbers(batch)
        missing = np.isnan(values)
        if strategy == "previous":
            filled = filled_by_previous(values, missing, batch.offsets, self.statistics_)
        elif strategy == "linear":
            filled = filled_linearly(values, missing, batch.offsets, self.statistics_)
        else:
            filled = np.where(missing, self.statistics_, values)
        if require_flag("add_indicator", self.add_indicator):
            flags = missing[:, self.indicator_features_].astype(np.float64)
            filled = np.concatenate([filled, flags], axis=1)
        return self._as_given(X, filled, batch)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """The names of the coordinates, as known or given (x0, ...); then those of indicators."""
        names = super().get_feature_names_out(input_features)
        if not self.add_indicator:
            return names
        flags = [f"missingindicator_{names[j]}" for j in self.indicator_features_]
        return np.array([*names, *flags], dtype=object)

    def arrays(self) -> dict[str, NDArray]:
        """What fills gaps that a sequence leaves open."""
        return {"statistics": self.statistics_}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "statistics_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _learned_facts(self) -> dict[str, Any]:
        gaps = len(self.indicator_features_)
        return super()._learned_facts() | {"coordinates_with_gaps": gaps}

    def _with_gaps(self, X: Sequences, n_dims: int | None = None) -> SequenceBatch:
        """X as a batch that may hold NaN."""
        if isinstance(X, Source):
            raise InvalidInput(
                "SequenceImputer takes arrays, lists and batches: a source refuses missing "
                "numbers when it is read. Fill them before the data are written."
            )
        return self._batch(X, n_dims, missing=True)


def require_real(name: str, value: object) -> float:
    """Return ``value`` as a float if it is a finite real number."""
    if isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value)):
        return float(value)
    raise InvalidInput(f"{name} must be a finite number; got {shown(value)}.")


def _numbers(batch: SequenceBatch) -> NDArray[np.float64]:
    """All tokens as float64 (n_tokens, d), not to be written to."""
    return np.asarray(batch.values[:]).astype(np.float64, copy=False)


def _require_seen(missing: NDArray[np.bool_]) -> None:
    unseen = np.flatnonzero(missing.all(axis=0))
    if len(unseen):
        raise InvalidInput(
            f"coordinate {unseen[0]} of X is missing in every token, so that nothing is known to "
            "fill in; leave it out, or set strategy='constant' and fill_value."
        )


def _means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of what is there of each coordinate."""
    columns = (column[~np.isnan(column)] for column in values.T)
    found = (CoordinateSums.of(column[:, None]) for column in columns)
    return np.array([each.mean[0] for each in found if each is not None])


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median of what is there of each coordinate."""

    def middle(column: NDArray[np.float64]) -> float:
        known = np.sort(column[~np.isnan(column)])
        low, high = known[(len(known) - 1) // 2], known[len(known) // 2]
        with np.errstate(over="ignore"):
            total = low + high
        # Halves of two large numbers, whose sum leaves float64.
        return float(total / 2 if np.isfinite(total) else low / 2 + high / 2)

    return np.array([middle(column) for column in values.T])
