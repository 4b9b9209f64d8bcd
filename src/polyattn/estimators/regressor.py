"""LinearAttentionRegressor and SoftmaxAttentionRegressor, for scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from polyattn.estimators.arguments import refuse_source, tokens_first
from polyattn.estimators.base import LinearEstimator, SequenceEstimator
from polyattn.numerics.random_state import RandomState
from polyattn.numerics.scaling import column_magnitudes
from polyattn.sequences import Sequences
from polyattn.softmax import LearnedSoftmax, learn_softmax
from polyattn.sources.source import Source
from polyattn.targets import Targets


class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Base of the regressors: predictions in the form of the y that was fitted, and R^2."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def score(
        self,
        X: Sequences | Source,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> float:
        """R^2 over all predicted positions, averaged over outputs as by scikit-learn."""
        check_is_fitted(self)
        rows, outputs = self._scored(X, y, sample_weight, self.n_outputs_, context)
        both = (rows.targets[:], outputs)
        # Powers of two, one for each output, so that no square leaves float64.
        exponents = np.frexp(column_magnitudes(both, self.n_outputs_))[1]
        truth, guess = (np.ldexp(each.astype(np.float64), -exponents) for each in both)
        return float(r2_score(truth, guess, sample_weight=rows.row_weights))


class LinearAttentionRegressor(SequenceRegressor, LinearEstimator):
    """Regression on sequences by a multi-head linear attention layer, fitted in closed form.

    Minimises  sum_i w_i ||y_i - F(X_i)||^2 + ridge ||T||_F^2  over layers F with any number of
    heads: see ``polyattn.fit``, which this calls.

    Parameters
    ----------
    mode : "last" | "causal" | "full"
        Which positions are predicted: the last token of a sequence, or every token.
    ridge : float, "loo" or "gcv"
        The penalty, or the rule that chooses it.
    n_heads : None, int or "auto"
        None is the optimum over any number of heads; a number limits them, ``"auto"`` lets the
        noise decide.
    solver : "auto" | "primal" | "dual" | "direct" | "iterative"
    bias : bool
        Append a coordinate that is always 1 to every token.  Off by default, as in
        ``polyattn.fit``: the fit is then a plain attention layer.
    random_state : int, Generator or None
        Seed of the search for few heads; the optimum itself needs none.
    ridge_grid : array, optional
        The ridges that a rule chooses from; a wide grid by default.
    form : Form, optional
        Any other layer that is linear in its parameters, instead of ``mode`` and ``bias``.  Where
        tokens attend to other sequences, all methods take those as ``context``.
    head_rank : int, optional
        The largest rank of the attn of a head.
    layout : "tokens_first" | "channels_first"
        The axes of X (and of a context) in all methods: (n_sequences, n_tokens, n_dims), or
        (n_sequences, n_channels, n_time) as aeon and sktime have them.  Targets and predictions of
        single tokens have these as rows in both.

    Attributes
    ----------
    result_ : FitResult
    coef_ : array (e, m, r), the folded coefficients
    layer_ : LinearAttention; its heads are searched for on first access
    outcome_ : Outcome, what was found as a sentence
    certificate_ : Certificate, whether the training data determine the layer on all real inputs
    n_features_in_, n_outputs_ : int, coordinates of a token and of an output
    feature_names_in_ : array of str (n_features_in_,), only of sequences with names
        What coordinates were called (``SequenceBatch.coordinate_names``, the columns of tables).
        Sequences with other names, or in another order, are then refused by all methods; those
        without names are taken.

    X is an array (n_sequences, n_tokens, n_dims), a list of arrays (n_i, n_dims), a SequenceBatch,
    or a source (``polyattn.scan``), which holds y and weights.  Predictions have the form of the y
    that was fitted: without an axis of outputs if y had none (or a source has one output), and
    one entry per token in modes ``causal`` and ``full`` (a list of arrays if X is a list or a
    source).

    ``partial_fit`` adds sequences to sums that do not grow with their number and solves on the
    first use of a fitted attribute or a prediction.  With ``solver="direct"`` the sums are a
    triangular factor: slower, but accurate for nearly dependent features.
    """

    def fit(
        self,
        X: Sequences | Source,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Fit to sequences X and targets y; ``sample_weight`` has one weight per sequence."""
        return self._learn(X, y, sample_weight, context)

    def partial_fit(
        self,
        X: Sequences | Source,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Add more sequences; equals ``fit`` on all of them together up to rounding."""
        return self._learn_more(X, y, sample_weight, context)

    def predict(
        self, X: Sequences | Source, return_bound: bool = False, context: Sequences | None = None
    ) -> Any:
        """Predictions in the form of the y that was fitted; with ``return_bound`` also bounds.

        The bound at a predicted position says how far two layers there can be apart, in the norm
        of their outputs, if both fit the training data at least as well as this one.  It is
        infinite where those do not determine the layer, and as good as zero where this one is
        the optimum (no ridge, any number of heads) and they do, however noisy they are: it is no
        error bar, and says nothing of how far the truth is.
        """
        return self._predicted(X, return_bound, context)


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
    polish : bool
        False: the heads of the method alone, without descent from them.
    layout : "tokens_first" | "channels_first"
        The axes of X, as in ``LinearAttentionRegressor``.

    Attributes
    ----------
    result_ : LearnedSoftmax
    layer_ : SoftmaxAttention
    outcome_ : Outcome, what was found as a sentence
    recovered_ : bool, whether the check on held-out sequences passed
    n_features_in_, n_outputs_ : int, coordinates of a token and of an output
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
        polish: bool = True,
        layout: str = "tokens_first",
    ) -> None:
        self.n_heads = n_heads
        self.mode = mode
        self.method = method
        self.noise = noise
        self.max_heads = max_heads
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.bias = bias
        self.polish = polish
        self.layout = layout

    @property
    def recovered_(self) -> bool:
        """Whether the check on held-out sequences passed and the data determine every head."""
        check_is_fitted(self)
        return self.result_.recovered

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def fit(self, X: Sequences, y: Targets) -> Self:
        """Learn heads from sequences X and targets y; a tenth of them is held out as a check."""
        refuse_source(X)
        X, _ = tokens_first(X, None, self.layout)
        self.result_ = learn_softmax(
            X, y, self.n_heads, self.method, self.random_state, mode=self.mode, bias=self.bias,
            polish=self.polish, noise=self.noise, max_heads=self.max_heads,
            max_seconds=self.max_seconds,
        )  # fmt: skip
        self.n_features_in_ = self.result_.layer.n_dims
        self.n_outputs_ = self.result_.layer.n_outputs
        self._note_shape(y, self.mode)
        self._remember_names(X)
        return self

    def predict(self, X: Sequences | Source) -> Any:
        """Predictions in the form of the y that was fitted."""
        return self._shaped(self._outputs(X))
