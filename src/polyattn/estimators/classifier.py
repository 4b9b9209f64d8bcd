"""LinearAttentionClassifier: least squares on class indicators or log-loss, for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from polyattn.errors import InvalidInput, require_choice
from polyattn.estimators.arguments import require_targets, tokens_first
from polyattn.estimators.base import LinearEstimator, on_each
from polyattn.estimators.class_weights import (
    class_weights,
    refuse_balanced_stream,
    refuse_for_source,
    require_class_weight,
)
from polyattn.estimators.conditional import provided
from polyattn.estimators.labels import (
    Labels,
    as_label_sets,
    as_labels,
    classes_of_stream,
    encode,
    find_classes,
    indicators,
    winners,
)
from polyattn.estimators.source_labels import source_labels, with_codes
from polyattn.estimators.training_shares import TrainingShares
from polyattn.fitting.majority import held_against_majority
from polyattn.form.form import PARTS, Form, require_form
from polyattn.form.unknown import answers_unknown
from polyattn.numerics.random_state import RandomState
from polyattn.quoting import shown
from polyattn.sequences import Sequences, as_batch, require_aligned
from polyattn.solve.log_loss import LOSSES, PER_OUTPUT, probabilities
from polyattn.sources.source import Source, require_alone
from polyattn.targets import as_weights

# The ridge of log-loss where none is given: C = 1 of scikit-learn.
DEFAULT_RIDGE = 0.5


def _has_probabilities(estimator: LinearAttentionClassifier) -> None:
    """Say why ``predict_proba`` is not there, where it is not."""
    if estimator.loss != "logistic":
        raise AttributeError(
            f"predict_proba needs loss='logistic'; got loss={estimator.loss!r}, whose scores are "
            "no probabilities. decision_function returns them."
        )


@answers_unknown(PARTS)
class LinearAttentionClassifier(ClassifierMixin, TrainingShares, LinearEstimator):  # type: ignore[misc]
    """Classification of sequences (or tokens) by a linear attention layer, to a global optimum.

    ``loss="squared"``: the layer is fitted by ``polyattn.fit`` to indicator targets – one column
    per class, a single column of -1 and 1 for two classes – and the largest output wins, as in
    ``sklearn.linear_model.RidgeClassifier``.  Its outputs are scores, not probabilities.

    ``loss="logistic"``: the layer minimises log-loss + ridge ||T||^2, as ``LogisticRegression``
    with C = 1 / (2 ridge) and without intercept does on its features, those with j < k times
    sqrt 2, and ``predict_proba`` gives probabilities.  Without a ridge separable data have no
    minimiser, which ``outcome_`` says.

    Parameters
    ----------
    mode : "last" | "causal" | "full"
        ``last``: one label per sequence; otherwise one label per token.
    ridge : float, "loo", "gcv" or None
        The penalty.  None: with squared error it is chosen by leaving out each sequence
        (``"loo"``): indicators are never an exact attention layer, and without a penalty noise
        would be followed; with log-loss it is 0.5 (C = 1).  ``partial_fit`` keeps no sequences,
        so it needs ``"gcv"`` or a number, and log-loss a number.
    bias : bool
        Append a coordinate that is always 1 to every token.  On by default: without it all
        outputs are of third degree in the tokens, and a change of sign changes the class.  Of a
        ``form`` it is a part: ``Form(bias=True)``, or ``Form(skip=True, intercept=True)``.
    n_heads, solver, random_state, ridge_grid, form, head_rank, layout
        As in ``LinearAttentionRegressor``.
    loss : "squared" | "logistic"
        Log-loss has no ``partial_fit``, no limit of ``n_heads`` and no other ``solver``.
    class_weight : None, "balanced" or dict
        What sequences of a class weigh, beside their ``sample_weight``; only in mode ``last``.
        ``"balanced"``: as much in all as those of any other class.  Classes that a dict does not
        name weigh 1.

    Attributes
    ----------
    classes_ : array (K,), the sorted labels; text, integers or booleans
        Of indicator columns their numbers, 0 .. L - 1.
    multilabel_ : bool, whether y had indicator columns
    majority_share_, training_accuracy_ : float
        The share of the most frequent class in the training data, weights included, and of these
        the share that is labelled rightly.  None where they are not known: of indicator columns,
        and the latter after ``partial_fit``, which keeps no sequences.
    result_, coef_, layer_, outcome_, certificate_, n_features_in_, n_outputs_
        As in ``LinearAttentionRegressor``; there are K outputs, or 1 for two classes.

    Several labels at once: in mode ``last`` y may be an array (n_sequences, L) of 0 and 1, or of
    booleans, of two or more columns.  Every label then has an output of its own, fitted to -1 and
    1 or by a log-loss of its own; ``predict`` gives such an array of integers, ``predict_proba``
    the probability of each label, which do not add up to 1, and ``score`` the share of sequences
    whose labels are all right.
    """

    def __init__(
        self,
        mode: str = "last",
        ridge: float | str | None = None,
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = True,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
        loss: str = "squared",
        form: Form | None = None,
        head_rank: int | None = None,
        layout: str = "tokens_first",
        class_weight: Any = None,
    ) -> None:
        super().__init__(
            mode, ridge, n_heads, solver, bias, random_state, ridge_grid, form, head_rank, layout
        )
        self.loss = loss
        self.class_weight = class_weight

    def fit(
        self,
        X: Sequences | Source,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Fit to sequences X and labels y; ``sample_weight`` has one weight per sequence."""
        mode = self._form().mode
        logistic = require_choice("loss", self.loss, LOSSES) == "logistic"
        code, weights = encode if logistic else indicators, sample_weight
        require_aligned(X, y)
        sets = None if isinstance(X, Source) else as_label_sets(y, mode)
        require_class_weight(self.class_weight, mode, sets is not None)
        if isinstance(X, Source):
            require_alone(y=y)
            refuse_for_source(self.class_weight)
            classes = find_classes(source_labels(X, mode))
            self._learn(_coded(X, mode, classes, code), None, sample_weight, context)
        elif sets is not None:
            classes = np.arange(sets.shape[1])
            targets = sets if logistic else 2.0 * sets - 1.0
            loss = PER_OUTPUT if logistic else "squared"
            self._learn(X, targets, sample_weight, context, loss=loss)
        else:
            labels = as_labels(y, mode)
            classes = find_classes(labels)
            X, weights = self._weighted(X, labels, classes, sample_weight)
            self._learn(X, code(labels, classes), weights, context)
        self._remember(classes, sets is not None)
        if sets is None:
            labelled = self._labelled(X, y, weights, context)
            self._state.result = held_against_majority(self.result_, *labelled, classes)
        return self

    def partial_fit(
        self,
        X: Sequences | Source,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Add more sequences; the first call names all ``classes`` that will ever occur.

        Indicator columns name them by their number.
        """
        self._require_streamed()
        refuse_balanced_stream(self.class_weight)
        mode = self._form().mode
        require_aligned(X, y)
        sets = None if isinstance(X, Source) else as_label_sets(y, mode)
        require_class_weight(self.class_weight, mode, sets is not None)
        before = (self.classes_, self.multilabel_) if self.__sklearn_is_fitted__() else None
        known = classes_of_stream(before, classes, sets)
        if isinstance(X, Source):
            require_alone(y=y)
            refuse_for_source(self.class_weight)
            self._learn_more(_coded(X, mode, known, indicators), None, sample_weight, context)
        elif sets is not None:
            self._learn_more(X, 2.0 * sets - 1.0, sample_weight, context)
        else:
            labels = as_labels(y, mode)
            targets = indicators(labels, known)
            X, weights = self._weighted(X, labels, known, sample_weight)
            self._learn_more(X, targets, weights, context)
        return self._remember(known, sets is not None)

    def decision_function(
        self, X: Sequences | Source, return_bound: bool = False, context: Sequences | None = None
    ) -> Any:
        """Scores (..., K) per predicted position; for two classes (...), positive: the second.

        With log-loss they are logarithms of odds, and there are no bounds.

        With ``return_bound`` also bounds (...), as of ``LinearAttentionRegressor.predict``: a
        label whose score leads by more than sqrt(2) times the bound (two classes: whose score
        exceeds it) is the one that all layers of no more training risk give.
        """
        if return_bound and self._fitted().loss != "squared":
            raise InvalidInput(
                "return_bound bounds layers by squared error; this one was fitted by log-loss. "
                "Leave it False, or fit with loss='squared'."
            )
        return self._predicted(X, return_bound, context)

    @provided(_has_probabilities)
    def predict_proba(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Probabilities (..., K) of ``classes_``; only with ``loss="logistic"``."""
        outputs = self._outputs(X, context)
        loss = self._fitted().loss
        if loss == "squared":
            raise InvalidInput(
                "the layer was fitted by squared error, whose outputs are no probabilities; call "
                "fit again with loss='logistic'."
            )
        return probabilities(outputs, each=loss == PER_OUTPUT)

    def predict(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """The label of each sequence, or of each token in modes ``causal`` and ``full``.

        Of several labels at once: 0 and 1 (n_sequences, L).
        """
        outputs = self._outputs(X, context)
        if self.multilabel_:
            return (outputs > 0).astype(np.int64)
        return on_each(lambda each: self.classes_[winners(each)], outputs)

    def score(
        self,
        X: Sequences | Source,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> float:
        """The share of predicted positions whose label is right (whose labels all are)."""
        check_is_fitted(self)
        require_aligned(X, y)
        if self.multilabel_:
            return self._score_of_sets(X, y, sample_weight, context)
        truth, guess, weights = self._labelled(X, y, sample_weight, context)
        return float(accuracy_score(truth, guess, sample_weight=weights))

    def _labelled(
        self,
        X: Sequences | Source,
        y: Any,
        sample_weight: ArrayLike | None,
        context: Sequences | None,
    ) -> tuple[NDArray, NDArray, NDArray | None]:
        """Positions among the classes (n_rows,) of labels and predictions, and the weights."""
        mode, codes = self.result_.mode, None
        if isinstance(X, Source):
            require_alone(y=y)
            require_targets(X, y)
            X = _coded(X, mode, self.classes_, encode)
        else:
            codes = encode(as_labels(y, mode), self.classes_)
        rows, outputs = self._scored(X, codes, sample_weight, 1, context)
        return rows.targets[:, 0], winners(outputs), rows.row_weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _score_of_sets(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, context: Sequences | None
    ) -> float:
        sets = None if isinstance(X, Source) else as_label_sets(y, "last")
        if sets is None:
            raise InvalidInput(
                f"y must be indicator columns of 0 and 1, shape (n_sequences, {self.n_outputs_}), "
                f"as in fit; got {shown(y)}."
            )
        rows, outputs = self._scored(X, sets, sample_weight, self.n_outputs_, context)
        right = np.all((outputs > 0) == (rows.targets[:] > 0), axis=1)
        return float(np.average(right, weights=rows.row_weights))

    def _remember(self, classes: NDArray, multilabel: bool) -> Self:
        self.classes_, self.multilabel_ = classes, multilabel
        self._plain = len(classes) == 2 and not multilabel
        return self

    def _require_streamed(self) -> None:
        """Refuse what cannot be added up in parts."""
        if require_choice("loss", self.loss, LOSSES) == "logistic":
            raise InvalidInput(
                "partial_fit keeps sums, of which log-loss is no function; call fit with all data, "
                "or set loss='squared'."
            )

    def _weighted(
        self, X: Any, labels: Labels, classes: NDArray, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any]:
        """Sequences, and their weights times those of their classes."""
        if self.class_weight is None:
            return X, sample_weight
        batch = as_batch(tokens_first(X, None, self.layout)[0])
        weights, codes = as_weights(sample_weight, batch), encode(labels, classes)
        if len(codes) != len(batch):
            raise InvalidInput(f"X has {len(batch)} sequences but y has {len(codes)} labels.")
        of_classes = class_weights(self.class_weight, codes, classes, weights)[codes]
        return batch, of_classes if weights is None else of_classes * weights

    def _form(self) -> Form:
        # The default of bias is True here, so that beside a form it was not asked for.
        return require_form(self.form, self.mode, self.bias if self.form is None else False)

    def _options(self) -> dict[str, Any]:
        options = super()._options() | {"loss": self.loss}
        if self.ridge is None:
            options["ridge"] = DEFAULT_RIDGE if self.loss == "logistic" else "loo"
        return options


def _coded(source: Source, mode: str, classes: NDArray, code: Callable[..., Any]) -> Source:
    """The source with codes of its labels as targets."""
    n_outputs = 1 if code is encode or len(classes) == 2 else len(classes)
    return with_codes(source, mode, partial(code, classes=classes), n_outputs)
