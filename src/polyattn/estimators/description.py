"""What estimators and pipelines say of themselves: as text, as plain data, and in ``show``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Described, Description
from polyattn.quoting import counted, shown
from polyattn.sequences.coordinate_names import in_description

# So many labels are named; of more only their number is said.
SHOWN_LABELS = 12

NOT_FITTED = "Not fitted yet: call fit."
NOT_SOLVED = "Not solved yet: partial_fit keeps sums, which the first use solves."


class DescribedEstimator(Described):
    """An estimator that describes itself once it is fitted; ``repr`` stays scikit-learn's."""

    def describe(self) -> Description:
        """What was learned; computes nothing."""
        model: Any = self
        if not model.__sklearn_is_fitted__():
            return Description("An estimator", repr(model), NOT_FITTED)
        known = _known_result(model)
        about = f"{type(model).__name__}, {self._learned_in_words()}"
        facts = self._learned_facts() | in_description(getattr(model, "feature_names_in_", None))
        if known is None:
            sentence = NOT_SOLVED if hasattr(model, "_state") else ""
            return Description(self._title(), about, sentence, facts=facts)
        made = known.describe()
        return replace(made, title=self._title(), about=about, facts=facts | made.facts)

    def arrays(self) -> dict[str, NDArray]:
        """Those of the result."""
        known = _known_result(self)
        return {} if known is None else known.arrays()

    def __str__(self) -> str:
        fitted = self.__sklearn_is_fitted__()  # type: ignore[attr-defined]
        return str(self.describe()) if fitted else repr(self)

    def _title(self) -> str:
        return "A fitted classifier" if hasattr(self, "classes_") else "A fitted regressor"

    def _learned_in_words(self) -> str:
        """What goes in and comes out."""
        model: Any = self
        known = _known_result(model)
        tokens = f"tokens of {counted(model.n_features_in_, 'coordinate')}"
        if not hasattr(model, "classes_"):
            words = f"{tokens} to {counted(model.n_outputs_, 'output')}"
        else:
            several = model.multilabel_
            which = f"any of {counted(len(model.classes_), 'label')}" if several else ""
            words = f"{which or labels_in_words(model.classes_)} from {tokens}"
        form = model._state.statistics.form if known is None else _predictor(known)
        return f"{words}, mode {form.mode}"

    def _learned_facts(self) -> dict[str, Any]:
        model: Any = self
        if not hasattr(model, "classes_"):
            return {}
        return {"n_classes": len(model.classes_), "classes": model.classes_.tolist()}


class DescribedPipeline(Described):
    """A pipeline of scikit-learn with its description: that of the last step, and all steps."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def describe(self) -> Description:
        """The last step, after those before it."""
        steps = [step for _, step in self.pipeline.steps]
        last = described(steps[-1]).describe() if hasattr(steps[-1], "describe") else None
        before = ", ".join(_step_in_words(step) for step in steps[:-1])
        if last is None:
            return Description("A pipeline", f"{before}, {steps[-1]}" if before else str(steps[-1]))
        about = f"{before}, then {last.about}" if before else last.about
        facts: dict[str, Any] = {"steps": [_step_in_words(step) for step in steps]}
        names = (getattr(step, "feature_names_in_", None) for step in steps)
        first = in_description(next((each for each in names if each is not None), None))
        lines = tuple(f"{name}: {step!r}" for name, step in self.pipeline.steps)
        return replace(last, title="A fitted pipeline", about=about,
                       facts=facts | last.facts | first, lines=lines)  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """Those of all steps, under the names of these."""
        return {
            f"{name}.{own}": each
            for name, step in self.pipeline.steps
            if isinstance(step, Described)
            for own, each in step.arrays().items()
        }

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON types, without arrays."""
        return super().to_dict() | {"kind": "Pipeline"}


def described(model: Any) -> Described:
    """The model itself if it describes itself, or a pipeline with its description."""
    return model if isinstance(model, Described) else DescribedPipeline(model)


def labels_in_words(classes: NDArray) -> str:
    """How many classes there are, and which: "3 classes ('a', 'b', 'c')"."""
    count = counted(len(classes), "class")
    if len(classes) > SHOWN_LABELS:
        return count
    return f"{count} ({', '.join(shown(each) for each in np.asarray(classes).tolist())})"


def _step_in_words(step: Any) -> str:
    return step if isinstance(step, str) else type(step).__name__


def _known_result(model: Any) -> Any:
    """The result, if it is there; after ``partial_fit`` it is made on first use."""
    if hasattr(model, "_state"):
        return vars(model._state).get("result")
    return vars(model).get("result_")


def _predictor(result: Any) -> Any:
    """What has a mode: the fit, or the layer that was learned."""
    return result if hasattr(result, "mode") else result.layer
