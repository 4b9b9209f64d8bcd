"""SoftmaxAttentionRegressor: the heads of a softmax attention layer, for scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from polyattn.estimators.base import determination, flatten, refuse_table, without_output_axis
from polyattn.estimators.regressor import lacks_output_axis
from polyattn.model import SoftmaxAttention
from polyattn.numerics.random_state import RandomState
from polyattn.outcome import Outcome
from polyattn.sequences import Sequences, as_batch
from polyattn.softmax import LearnedSoftmax, learn_softmax
from polyattn.targets import Targets, as_targets


class SoftmaxAttentionRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression on sequences by a multi-head softmax attention layer.

    See ``polyattn.learn_softmax``, which this calls.  Unlike the linear estimators this one can
    fail to find the best layer; ``outcome_`` says so, and ``recovered_`` is a plain flag.

    Parameters
    ----------
    n_heads : int, "auto" or None
        With "auto", as with None, the data decide.
    mode : "full" | "causal" | "last"
        Which positions are predicted: every token, or the last one of a sequence.
    method : "auto" | "moments" | "sculpt"
    bias : bool
        The layer sees a constant coordinate 1 beside each token.
    noise : float, optional
        Standard deviation of the targets' errors in their units, if known.
    max_heads : int, optional
        The most heads to look for when their number is not given.
    max_seconds : float, optional
        Stop after about this time with the best layer so far.
    random_state : int, Generator or None

    Attributes
    ----------
    result_ : LearnedSoftmax
    layer_ : SoftmaxAttention
    outcome_ : Outcome, what was found as a sentence
    recovered_ : bool, whether the check on held-out sequences passed
    n_features_in_ : int, coordinates per token
    n_outputs_ : int
    """

    def __init__(
        self,
        n_heads: int | str | None = None,
        mode: str = "full",
        method: str = "auto",
        noise: float | None = None,
        max_heads: int | None = None,
        max_seconds: float | None = None,
        random_state: RandomState = 0,
        bias: bool = False,
    ) -> None:
        self.n_heads = n_heads
        self.mode = mode
        self.method = method
        self.noise = noise
        self.max_heads = max_heads
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.bias = bias

    @property
    def layer_(self) -> SoftmaxAttention:
        """The layer that was found."""
        return self._learned().layer

    @property
    def outcome_(self) -> Outcome:
        """What was found, as a sentence."""
        return self._learned().outcome

    @property
    def recovered_(self) -> bool:
        """Whether the check on held-out sequences passed and the data determine every head."""
        return self._learned().recovered

    def fit(self, X: Sequences, y: Targets) -> Self:
        """Learn heads from sequences X and targets y; a tenth of them is held out as a check."""
        refuse_table(X)
        self.result_ = learn_softmax(
            X, y, self.n_heads, self.method, self.random_state, mode=self.mode, bias=self.bias,
            noise=self.noise, max_heads=self.max_heads, max_seconds=self.max_seconds,
        )  # fmt: skip
        self.n_features_in_ = self.result_.layer.n_dims
        self.n_outputs_ = self.result_.layer.n_outputs
        self._plain = lacks_output_axis(y, self.mode)
        return self

    def predict(self, X: Sequences) -> Any:
        """Predictions in the form of the y that was fitted."""
        layer = self.layer_
        refuse_table(X)
        outputs = layer(X)
        return without_output_axis(outputs) if self._plain else outputs

    def score(self, X: Sequences, y: Targets, sample_weight: Any = None) -> float:
        """R^2 over all predicted positions, averaged over outputs as by scikit-learn."""
        layer = self.layer_
        refuse_table(X)
        batch = as_batch(X, n_dims=layer.n_dims)
        rows = as_targets(y, batch, layer.mode, layer.n_outputs)
        weights = sample_weight
        if weights is not None and layer.mode != "last":
            weights = np.repeat(np.asarray(weights), batch.lengths)
        return determination(rows, flatten(layer(batch)), weights)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.target_tags.multi_output = True
        return tags

    def _learned(self) -> LearnedSoftmax:
        check_is_fitted(self, "result_")
        return self.result_
