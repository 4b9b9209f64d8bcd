"""LinearAttentionClassifier: least squares on class indicators or log-loss, for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.estimators.base import LinearEstimator, on_each, require_targets
from polyattn.estimators.source_labels import source_labels, with_codes
from polyattn.form.form import PARTS, Form, require_form
from polyattn.form.unknown import answers_unknown
from polyattn.numerics.arrays import require_finite, require_unrounded
from polyattn.numerics.random_state import RandomState
from polyattn.sequences import MODES, Sequences
from polyattn.solve.log_loss import LOSSES, probabilities
from polyattn.sources.source import Source, require_alone

# Labels are one array, or for tokens of ragged sequences a list of arrays (n_i,).
Labels: TypeAlias = NDArray | list[NDArray]


# The ridge of log-loss where none is given: C = 1 of scikit-learn.
DEFAULT_RIDGE = 0.5


def has_probabilities(estimator: LinearAttentionClassifier) -> bool:
    """True where ``predict_proba`` is there; scikit-learn asks for this error where it is not."""
    if estimator.loss == "logistic":
        return True
    raise AttributeError(
        f"predict_proba needs loss='logistic'; got loss={estimator.loss!r}, whose scores are no "
        "probabilities. decision_function returns them."
    )


@answers_unknown(PARTS)
class LinearAttentionClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
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
    n_heads, solver, random_state, ridge_grid, form, head_rank : as in ``LinearAttentionRegressor``
    loss : "squared" | "logistic"
        Log-loss has no ``partial_fit``, no limit of ``n_heads`` and no other ``solver``.

    Attributes
    ----------
    classes_ : array (K,), the sorted labels; text, integers or booleans
    result_, coef_, layer_, outcome_, certificate_, n_features_in_, n_outputs_
        As in ``LinearAttentionRegressor``; there are K outputs, or 1 for two classes.
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
    ) -> None:
        super().__init__(
            mode, ridge, n_heads, solver, bias, random_state, ridge_grid, form, head_rank
        )
        self.loss = loss

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
        code = encode if logistic else indicators
        if isinstance(X, Source):
            require_alone(y=y)
            classes = find_classes(source_labels(X, mode))
            self._learn(_coded(X, mode, classes, code), None, sample_weight, context)
        else:
            labels = as_labels(y, mode)
            classes = find_classes(labels)
            self._learn(X, code(labels, classes), sample_weight, context)
        self.classes_, self._plain = classes, len(classes) == 2
        return self

    def partial_fit(
        self,
        X: Sequences | Source,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Add more sequences; the first call names all ``classes`` that will ever occur."""
        if require_choice("loss", self.loss, LOSSES) == "logistic":
            raise InvalidInput(
                "partial_fit keeps sums, of which log-loss is no function; call fit with all data, "
                "or set loss='squared'."
            )
        named = None
        if classes is not None:
            named = find_classes(_one_array(classes, "classes", 1, "(n_classes,)"))
        known = self.classes_ if self.__sklearn_is_fitted__() else named
        if known is None:
            raise InvalidInput(
                "the first call of partial_fit needs classes=..., all labels that will occur."
            )
        if named is not None and not np.array_equal(named, known):
            raise InvalidInput(
                f"classes must be those of the first call, {known.tolist()!r}; "
                f"got {np.asarray(classes).tolist()!r}."
            )
        mode = self._form().mode
        if isinstance(X, Source):
            require_alone(y=y)
            self._learn_more(_coded(X, mode, known, indicators), None, sample_weight, context)
        else:
            targets = indicators(as_labels(y, mode), known)
            self._learn_more(X, targets, sample_weight, context)
        self.classes_ = known
        return self

    def decision_function(
        self, X: Sequences | Source, return_bound: bool = False, context: Sequences | None = None
    ) -> Any:
        """Scores (..., K) per predicted position; for two classes (...), positive: the second.

        With log-loss they are logarithms of odds, and there are no bounds.

        With ``return_bound`` also bounds (...), as of ``LinearAttentionRegressor.predict``: a
        label whose score leads by more than sqrt(2) times the bound (two classes: whose score
        exceeds it) is the one that all layers of no more training risk give.
        """
        if return_bound and self._fitted().loss == "logistic":
            raise InvalidInput(
                "return_bound bounds layers by squared error; this one was fitted by log-loss. "
                "Leave it False, or fit with loss='squared'."
            )
        return self._predicted(X, return_bound, context)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Probabilities (..., K) of ``classes_``; only with ``loss="logistic"``."""
        outputs = self._outputs(X, context)
        if self._fitted().loss != "logistic":
            raise InvalidInput(
                "the layer was fitted by squared error, whose outputs are no probabilities; call "
                "fit again with loss='logistic'."
            )
        return probabilities(outputs)

    def predict(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """The label of each sequence, or of each token in modes ``causal`` and ``full``."""
        outputs = self._outputs(X, context)
        return on_each(lambda each: self.classes_[_winners(each)], outputs)

    def score(
        self,
        X: Sequences | Source,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> float:
        """The share of predicted positions whose label is right."""
        mode, codes = self.result_.mode, None
        if isinstance(X, Source):
            require_alone(y=y)
            require_targets(X, y)
            X = _coded(X, mode, self.classes_, encode)
        else:
            codes = encode(as_labels(y, mode), self.classes_)
        rows, outputs = self._scored(X, codes, sample_weight, 1, context)
        truth, guess = rows.targets[:, 0], _winners(outputs)
        return float(accuracy_score(truth, guess, sample_weight=rows.row_weights))

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


def as_labels(y: object, mode: str) -> Labels:
    """Labels as (n_sequences,), or per token as (n_sequences, n_tokens) or a list of (n_i,)."""
    require_choice("mode", mode, MODES)
    if mode != "last" and isinstance(y, list | tuple):
        if not y:
            raise InvalidInput("y is empty: at least one sequence of labels is needed.")
        return [_one_array(item, f"y[{i}]", 1, "(n_tokens,)") for i, item in enumerate(y)]
    n_axes, shape = (1, "(n_sequences,)") if mode == "last" else (2, "(n_sequences, n_tokens)")
    return _one_array(y, "y", n_axes, shape)


def find_classes(labels: Labels) -> NDArray:
    """The sorted distinct labels; at least two are needed."""
    classes = np.unique(_flat(labels))
    if len(classes) < 2:
        raise InvalidInput(
            f"y needs at least two classes to tell apart; got one class, {classes.tolist()!r}."
        )
    return classes


def encode(labels: Labels, classes: NDArray) -> Any:
    """The position of each label among the classes; -1 where it is none of them."""

    def positions(array: NDArray) -> NDArray:
        if (array.dtype.kind == "U") != (classes.dtype.kind == "U"):
            raise InvalidType(
                f"labels must be of one kind; the classes are {classes.dtype}, y has {array.dtype}."
            )
        found = np.minimum(np.searchsorted(classes, array), len(classes) - 1)
        return np.where(classes[found] == array, found, -1)

    return on_each(positions, labels)


def indicators(labels: Labels, classes: NDArray) -> Any:
    """Targets (..., K): 1 for the own class, else 0; for two classes (...), -1 and 1.

    Least squares is linear in its targets: the difference of two indicators loses nothing.
    """
    codes = encode(labels, classes)
    unknown = _flat(codes) < 0
    if np.any(unknown):
        some = np.unique(_flat(labels)[unknown])[:5].tolist()
        raise InvalidInput(
            f"y has labels that are not among the classes {classes.tolist()!r}: {some!r}; name "
            "every class in the first call of partial_fit."
        )
    table = np.array([-1.0, 1.0]) if len(classes) == 2 else np.eye(len(classes))
    return on_each(lambda positions: table[positions], codes)


def _winners(outputs: NDArray) -> NDArray[np.intp]:
    """The position of the winning class, from outputs (..., K) or (..., 1)."""
    if outputs.shape[-1] == 1:
        return (outputs[..., 0] > 0).astype(np.intp)
    return np.argmax(outputs, axis=-1)


def _flat(labels: Labels) -> NDArray:
    return np.concatenate(labels) if isinstance(labels, list) else labels.ravel()


def _one_array(y: object, name: str, n_axes: int, shape: str) -> NDArray:
    try:
        array = np.asarray(y)
    except ValueError:
        raise InvalidInput(
            f"{name} is not rectangular; labels must have shape {shape}. Labels of single tokens "
            "are a list of arrays (n_tokens,) and need mode='causal' or mode='full'."
        ) from None
    if array.dtype.kind in "OT" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "biufU":
        raise InvalidType(
            f"{name} must hold labels that are text, integers or booleans; got dtype {array.dtype}."
        )
    if array.ndim != n_axes:
        raise InvalidInput(
            f"{name} must have shape {shape}, one label per predicted position; got shape "
            f"{array.shape}. Give labels themselves, not indicator columns; one per token needs "
            "mode='causal' or mode='full'."
        )
    if array.dtype.kind == "f":
        require_unrounded(y, array, name)
        require_finite(array, name)
        if np.any(array != np.round(array)):
            raise InvalidInput(
                f"{name} holds fractions, which are not class labels; LinearAttentionRegressor "
                "predicts continuous numbers."
            )
    return array
