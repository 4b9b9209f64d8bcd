"""What the adapters for aeon and sktime share: series of channels in, our estimators behind.

Toolboxes for time series put channels before time: a collection is an array (n_series, n_channels,
n_times) or a list of arrays (n_channels, n_times_i).  Here a time step is a token and a channel is
a coordinate, so that both axes change places.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from polyattn.errors import InvalidInput, require_choice, require_flag, require_integer
from polyattn.estimators import (
    LinearAttentionClassifier,
    LinearAttentionRegressor,
    SequenceImputer,
    SequenceScaler,
)
from polyattn.estimators.imputer import STRATEGIES
from polyattn.form.form import Form
from polyattn.numerics.random_state import RandomState
from polyattn.sequences import in_layout

# A token of one number and a constant leave a layer six coefficients: series of one channel are
# seen through so many consecutive numbers.
STEPS_OF_ONE_CHANNEL = 6

# Parameters of an adapter that are those of the estimator behind it, as they are.
SHARED = ("ridge", "n_heads", "solver", "random_state", "ridge_grid", "form", "head_rank")


class SeriesModel:
    """Base of the adapters: a pipeline is fitted to series whose axes were exchanged, and asked.

    It stands before a base class of a toolbox, which checks and converts X and y.
    """

    model_: Pipeline
    form: Form | None
    standardise: bool
    unit_norm: bool
    impute: str | None
    steps_per_token: int | None

    def _fit(self, X: Any, y: NDArray) -> Self:
        """Fit to checked series, with one label or number for each of them."""
        if isinstance(self.form, Form) and self.form.mode != "last":
            raise InvalidInput(
                "form must have mode='last', which predicts one value for each series; got "
                f"mode={self.form.mode!r}. One value for each time step is what polyattn's own "
                "estimators predict."
            )
        sequences = tokens_first(X)
        steps = [*self._preparation(self._n_steps(sequences)), ("attention", self._estimator())]
        self.model_ = Pipeline(steps)
        self.model_.fit(sequences, y)
        return self

    def _predict(self, X: Any) -> NDArray:
        return self.model_.predict(tokens_first(X))

    def _n_steps(self, sequences: Any) -> int:
        """How many time steps make a token; no more than the shortest series has."""
        n_steps = self.steps_per_token
        if n_steps is None:
            n_steps = STEPS_OF_ONE_CHANNEL if sequences[0].shape[1] == 1 else 1
        n_steps = require_integer("steps_per_token", n_steps)
        return min(n_steps, *map(len, sequences))

    def _preparation(self, n_steps: int) -> list[tuple[str, BaseEstimator]]:
        """The steps before the estimator."""
        scale = require_flag("standardise", self.standardise)
        unit_norm = require_flag("unit_norm", self.unit_norm)
        steps: list[tuple[str, BaseEstimator]] = []
        if self.impute is not None:
            strategy = require_choice("impute", self.impute, STRATEGIES)
            steps.append(("imputer", SequenceImputer(strategy)))
        if n_steps > 1:
            cut = FunctionTransformer(consecutive, kw_args={"n_steps": n_steps})
            steps.append(("windows", cut))
        if scale or unit_norm:
            scaler = SequenceScaler(with_mean=scale, with_std=scale, unit_norm=unit_norm)
            steps.append(("scaler", scaler))
        return steps

    def _estimator(self) -> BaseEstimator:
        """The estimator that the parameters ask for."""
        raise NotImplementedError

    def _say_what_is_possible(self) -> None:
        """Tell the toolbox whether these parameters let series have gaps."""
        self.set_tags(**{"capability:missing_values": self.impute is not None})  # type: ignore[attr-defined]


class SeriesClassifier(SeriesModel):
    """Classification of series: ``LinearAttentionClassifier`` behind the interface of a toolbox.

    Parameters
    ----------
    ridge, bias, n_heads, solver, random_state, ridge_grid, loss, form, head_rank, class_weight
        As of ``LinearAttentionClassifier``, defaults included; a form has ``mode="last"``.
    standardise : bool
        Standardise every channel over all times of all series first (``SequenceScaler``).
    unit_norm : bool
        Divide the channels at each time by their norm, after that.
    impute : "previous" | "linear" | "mean" | "median" | "constant", optional
        How missing numbers (NaN) are filled in (``SequenceImputer``).  None: series with missing
        numbers are refused.
    steps_per_token : int, optional
        How many consecutive time steps make a token; at most as many as the shortest series has.
        None: one, but six where there is one channel, of which single numbers say little.

    Attributes
    ----------
    model_ : Pipeline
        What was fitted, for sequences whose tokens come first; its last step has ``result_``,
        ``certificate_`` and ``layer_``.  ``polyattn.save`` takes it where a token is one step.

    With ``loss="logistic"`` ``predict_proba`` gives probabilities; squared error has none, and the
    toolbox puts 1 at the label that is predicted.
    """

    def __init__(
        self,
        ridge: float | str | None = None,
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = True,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
        loss: str = "squared",
        form: Form | None = None,
        head_rank: int | None = None,
        standardise: bool = True,
        unit_norm: bool = False,
        impute: str | None = None,
        steps_per_token: int | None = None,
        class_weight: Any = None,
    ) -> None:
        self.ridge = ridge
        self.n_heads = n_heads
        self.solver = solver
        self.bias = bias
        self.random_state = random_state
        self.ridge_grid = ridge_grid
        self.loss = loss
        self.form = form
        self.head_rank = head_rank
        self.standardise = standardise
        self.unit_norm = unit_norm
        self.impute = impute
        self.steps_per_token = steps_per_token
        self.class_weight = class_weight
        super().__init__()
        self._say_what_is_possible()

    def _predict_proba(self, X: Any) -> NDArray[np.float64]:
        if hasattr(self.model_, "predict_proba"):
            return self.model_.predict_proba(tokens_first(X))
        return super()._predict_proba(X)  # type: ignore[misc]

    def _estimator(self) -> BaseEstimator:
        own = {"bias": self.bias, "loss": self.loss, "class_weight": self.class_weight}
        return LinearAttentionClassifier(**own, **_shared(self))


class SeriesRegressor(SeriesModel):
    """Regression on series: ``LinearAttentionRegressor`` behind the interface of a toolbox.

    Parameters
    ----------
    ridge, bias
        As of ``LinearAttentionRegressor``, but the ridge is chosen by leaving out each series, and
        there is a bias, because series are rarely the outputs of an attention layer.  Of a
        ``form`` the bias is a part.
    n_heads, solver, random_state, ridge_grid, form, head_rank
        As of ``LinearAttentionRegressor``, defaults included; a form has ``mode="last"``.
    standardise, unit_norm, impute, steps_per_token
        As of ``SeriesClassifier``.

    Attributes
    ----------
    model_ : Pipeline
        As of ``SeriesClassifier``.
    """

    def __init__(
        self,
        ridge: float | str | None = "loo",
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = True,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
        form: Form | None = None,
        head_rank: int | None = None,
        standardise: bool = True,
        unit_norm: bool = False,
        impute: str | None = None,
        steps_per_token: int | None = None,
    ) -> None:
        self.ridge = ridge
        self.n_heads = n_heads
        self.solver = solver
        self.bias = bias
        self.random_state = random_state
        self.ridge_grid = ridge_grid
        self.form = form
        self.head_rank = head_rank
        self.standardise = standardise
        self.unit_norm = unit_norm
        self.impute = impute
        self.steps_per_token = steps_per_token
        super().__init__()
        self._say_what_is_possible()

    def _estimator(self) -> BaseEstimator:
        # A form has its own; here it is on by default, so that beside one it was not asked for.
        bias = self.bias if self.form is None else False
        return LinearAttentionRegressor(bias=bias, **_shared(self))


def tokens_first(X: Any) -> Any:
    """Series as sequences: time steps before channels.

    X : array (n_series, n_channels, n_times), a list of arrays (n_channels, n_times_i), or a list
        of data frames, whose rows are times already
    """
    if isinstance(X, list) and hasattr(X[0], "to_numpy"):
        return [frame.to_numpy() for frame in X]
    return in_layout(X, "channels_first")


def consecutive(sequences: Any, n_steps: int) -> Any:
    """Tokens of so many consecutive ones, side by side: sliding windows.

    A sequence that is shorter begins with copies of its first token.
    """
    if isinstance(sequences, list):
        return [consecutive(each, n_steps) for each in sequences]
    lacking = n_steps - sequences.shape[-2]
    if lacking > 0:
        first = np.repeat(sequences[..., :1, :], lacking, axis=-2)
        sequences = np.concatenate([first, sequences], axis=-2)
    windows = sliding_window_view(sequences, n_steps, axis=-2)
    return windows.reshape(*windows.shape[:-2], -1)


def _shared(adapter: Any) -> dict[str, Any]:
    return {name: getattr(adapter, name) for name in SHARED}
