"""SoftmaxAttentionRegressor: the heads of a softmax attention layer, for scikit-learn."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from polyattn.estimators.base import refuse_table
from polyattn.estimators.regressor import SequenceRegressor, lacks_output_axis
from polyattn.numerics.random_state import RandomState
from polyattn.sequences import Sequences
from polyattn.softmax import LearnedSoftmax, learn_softmax
from polyattn.targets import Targets


class SoftmaxAttentionRegressor(SequenceRegressor):
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

    result_: LearnedSoftmax

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
    def recovered_(self) -> bool:
        """Whether the check on held-out sequences passed and the data determine every head."""
        check_is_fitted(self)
        return self.result_.recovered

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
        return self._shaped(self._outputs(X))
