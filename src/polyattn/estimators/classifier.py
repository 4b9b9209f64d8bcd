"""LinearAttentionClassifier: least squares on class indicators, for scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from polyattn.errors import InvalidInput, require_flag
from polyattn.estimators.base import LinearEstimator, flatten, without_output_axis
from polyattn.estimators.labels import as_labels, check_classes, encode, find_classes, indicators
from polyattn.numerics.random_state import RandomState
from polyattn.sequences import Sequences


class LinearAttentionClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Classification of sequences (or tokens) by a linear attention layer, in closed form.

    The layer is fitted by ``polyattn.fit`` to indicator targets – one column per class, a single
    column of -1 and 1 for two classes – and the largest output wins, as in
    ``sklearn.linear_model.RidgeClassifier``.

    There is no ``predict_proba``: outputs of least squares are scores, not probabilities.  Where
    probabilities are needed, calibrate ``decision_function`` on data that were not fitted.

    Parameters
    ----------
    mode : "last" | "causal" | "full"
        ``last``: one label per sequence; otherwise one label per token.
    ridge : float, "loo" or "gcv"
        The penalty.  By default it is chosen by leaving out each sequence: indicators are never
        an exact attention layer, and without a penalty noise would be followed.
        ``partial_fit`` keeps no sequences, so it needs ``"gcv"`` or a number.
    n_heads : None, int or "auto"
        None is the optimum over any number of heads; a number limits them, ``"auto"`` lets the
        noise decide.
    solver : "auto" | "primal" | "dual" | "direct" | "iterative"
    bias : bool
        Append a coordinate that is always 1 to every token.  On by default: without it all
        outputs are of third degree in the tokens, and a change of sign changes the class.
    random_state : int, Generator or None
        Seed of the search for few heads; the optimum itself needs none.
    ridge_grid : array, optional
        The ridges that a rule chooses from; a wide grid by default.

    Attributes
    ----------
    classes_ : array (K,), the sorted labels; text, integers or booleans
    result_, coef_, layer_, outcome_, certificate_, n_features_in_, n_outputs_
        As in ``LinearAttentionRegressor``; there are K outputs, or 1 for two classes.
    """

    def __init__(
        self,
        mode: str = "last",
        ridge: float | str = "loo",
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = True,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
    ) -> None:
        super().__init__(mode, ridge, n_heads, solver, bias, random_state, ridge_grid)

    def fit(self, X: Sequences, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to sequences X and labels y; ``sample_weight`` has one weight per sequence."""
        labels = as_labels(y, self.mode)
        classes = find_classes(labels)
        self._learn(X, indicators(labels, classes), sample_weight)
        self.classes_ = classes
        return self

    def partial_fit(
        self,
        X: Sequences,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add more sequences; the first call names all ``classes`` that will ever occur."""
        known = self._stream_classes(classes)
        self._learn_more(X, indicators(as_labels(y, self.mode), known), sample_weight)
        self.classes_ = known
        return self

    def decision_function(self, X: Sequences, return_bound: bool = False) -> Any:
        """Scores (..., K) per predicted position; for two classes (...), positive: the second.

        With ``return_bound`` also bounds (...), as of ``LinearAttentionRegressor.predict``: a
        label whose score leads by more than sqrt(2) times the bound (two classes: whose score
        exceeds it) is the one that all layers of no more training risk give.
        """
        bounded = require_flag("return_bound", return_bound)
        outputs = self._outputs(X)
        scores = without_output_axis(outputs) if len(self.classes_) == 2 else outputs
        return (scores, self._bounds(X, outputs)) if bounded else scores

    def predict(self, X: Sequences) -> Any:
        """The label of each sequence, or of each token in modes ``causal`` and ``full``."""
        outputs = self._outputs(X)
        if isinstance(outputs, list):
            return [self.classes_[_winners(array)] for array in outputs]
        return self.classes_[_winners(outputs)]

    def score(self, X: Sequences, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of predicted positions whose label is right."""
        codes = encode(as_labels(y, self.result_.mode), self.classes_)
        rows = self._rows(X, codes, sample_weight, 1)
        predicted = _winners(flatten(self._outputs(rows.batch)))
        return float(accuracy_score(rows.targets[:, 0], predicted, sample_weight=rows.row_weights))

    def _stream_classes(self, classes: ArrayLike | None) -> NDArray:
        if not self.__sklearn_is_fitted__():
            if classes is None:
                raise InvalidInput(
                    "the first call of partial_fit needs classes=..., all labels that will occur."
                )
            return check_classes(classes)
        if classes is not None and not np.array_equal(check_classes(classes), self.classes_):
            raise InvalidInput(
                f"classes must be those of the first call, {self.classes_.tolist()!r}; "
                f"got {np.asarray(classes).tolist()!r}."
            )
        return self.classes_


def _winners(outputs: NDArray) -> NDArray[np.intp]:
    """The position of the winning class, from outputs (..., K) or (..., 1)."""
    if outputs.shape[-1] == 1:
        return (outputs[..., 0] > 0).astype(np.intp)
    return np.argmax(outputs, axis=-1)
