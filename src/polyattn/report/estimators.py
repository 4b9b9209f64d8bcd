"""What pages and plots show of estimators for scikit-learn: results, classes, sequences.

Of a pipeline the last step is shown, beside what the other steps make of the sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from polyattn.display import Description
from polyattn.errors import InvalidInput, InvalidType
from polyattn.estimators import LinearAttentionClassifier
from polyattn.estimators.arguments import tokens_first
from polyattn.estimators.base import SequenceEstimator, on_each
from polyattn.estimators.description import described
from polyattn.estimators.labels import as_label_sets, as_labels, encode
from polyattn.fitting.result import FitResult
from polyattn.quoting import printable, shown
from polyattn.report.names import numbered
from polyattn.sequences import names_of, require_same_names
from polyattn.solve.log_loss import PER_OUTPUT


@dataclass(frozen=True, eq=False)
class ShownModel:
    """What is shown, and the classes that its outputs are scores of.

    words : what is said of it, where that is more than it says of itself
    several : whether the classes are labels of which a sequence can have any number
    estimator : which made it, if one did
    steps : the pipeline of what comes before the estimator, if there is any
    """

    thing: Any
    words: Description | None = None
    classes: tuple[str, ...] = ()
    several: bool = False
    estimator: SequenceEstimator | None = None
    steps: Pipeline | None = None

    def sequences(self, X: Any, context: Any) -> tuple[Any, Any]:
        """X and its context as the layer takes them."""
        if self.steps is not None and X is not None:
            X = self.steps.transform(X)
        if X is None:
            return X, context
        require_same_names(names_of(X), self.coordinate_names)
        if self.estimator is None:
            return X, context
        return tokens_first(X, context, self.estimator.layout)

    @property
    def coordinate_names(self) -> tuple[str, ...] | None:
        """What the coordinates of the layer were called in the data that it was fitted to."""
        names = getattr(self.estimator, "feature_names_in_", None)
        return names_of(self.thing) if names is None else tuple(names)

    def targets(self, y: Any) -> Any:
        """Labels of an estimator as class numbers, or columns of 0 and 1; others as they are."""
        if y is None or not isinstance(self.estimator, LinearAttentionClassifier):
            return y
        return (_columns if self.several else _class_numbers)(self.estimator, y)


def as_shown(thing: Any) -> ShownModel:
    """The result of an estimator or of the last step of a pipeline; anything else as it is."""
    model, steps = thing, None
    if isinstance(thing, Pipeline):
        model = thing[-1]
        steps = thing[:-1] if len(thing) > 1 else None
        if not isinstance(model, SequenceEstimator):
            raise InvalidType(
                "the last step of a pipeline must be an estimator of polyattn to be shown; got "
                f"{type(model).__name__}."
            )
    if isinstance(model, SequenceEstimator):
        result = model.result_
        labels: tuple[str, ...] = ()
        several = isinstance(model, LinearAttentionClassifier) and model.multilabel_
        if isinstance(model, LinearAttentionClassifier):
            labels = tuple(printable(str(label)) for label in model.classes_)
        return ShownModel(result, described(thing).describe(), labels, several, model, steps)
    if isinstance(thing, FitResult) and thing.loss != "squared":
        several = thing.loss == PER_OUTPUT
        labels = numbered(thing.n_outputs if several else max(2, thing.n_outputs))
        return ShownModel(thing, None, labels, several)
    return ShownModel(thing)


def _columns(estimator: LinearAttentionClassifier, y: Any) -> Any:
    """Columns of 0 and 1; what is no such array is refused."""
    sets = as_label_sets(y, "last")
    if sets is None:
        raise InvalidInput(
            f"y must be indicator columns of 0 and 1, shape (n_sequences, {estimator.n_outputs_}), "
            f"as in fit; got {shown(y)}."
        )
    return sets


def _class_numbers(estimator: LinearAttentionClassifier, y: Any) -> Any:
    """The numbers of labels y among the classes; labels of no class are refused."""
    labels = as_labels(y, estimator.result_.mode)
    codes = encode(labels, estimator.classes_)
    both = zip(_listed(labels), _listed(codes), strict=True)
    unknown = np.unique(np.concatenate([each[code < 0] for each, code in both]))
    if unknown.size:
        raise InvalidInput(
            f"y must hold labels among the classes {shown(estimator.classes_.tolist())}; got "
            f"{shown(unknown[:5].tolist())}. Leave their sequences out."
        )
    return on_each(lambda each: each.astype(np.float64), codes)


def _listed(arrays: Any) -> Sequence[Any]:
    return arrays if isinstance(arrays, list) else [arrays.ravel()]
