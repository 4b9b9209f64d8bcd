"""Fitted estimators and pipelines of them as files: parameters, and what was learned."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from polyattn.errors import InvalidInput, InvalidType
from polyattn.estimators.classifier import LinearAttentionClassifier
from polyattn.estimators.imputer import SequenceImputer
from polyattn.estimators.regressor import LinearAttentionRegressor, SoftmaxAttentionRegressor
from polyattn.estimators.saved_parameters import parameters_from_dict, parameters_to_dict
from polyattn.estimators.saved_state import (
    restore_state,
    state_to_record,
    with_prefix,
    without_prefix,
)
from polyattn.estimators.scaler import SequenceScaler
from polyattn.estimators.transformers import SequenceTransformer
from polyattn.files.fields import any_object, entries, flag, listed, nullable, one_of, require, text
from polyattn.files.records import Record
from polyattn.quoting import shown

ESTIMATORS = {
    kind.__name__: kind
    for kind in (
        LinearAttentionRegressor,
        LinearAttentionClassifier,
        SoftmaxAttentionRegressor,
        SequenceScaler,
        SequenceImputer,
    )
}

# A step that changes nothing.
PASSTHROUGH = "passthrough"

ESTIMATOR_FIELDS = entries(
    {"class": one_of(tuple(ESTIMATORS)), "parameters": any_object, "fitted": any_object},
    # Of sequences with names; files of older releases have none.
    {"feature_names": listed(text())},
)
PIPELINE_FIELDS = entries(
    {"steps": listed(entries({"name": text(1000), "step": any_object}), 1), "verbose": flag},
    {"transform_input": nullable(listed(text(1000)))},
)


class SavedEstimator:
    """The file of one estimator."""

    kind = "estimator"

    @classmethod
    def to_record(cls, estimator: Any) -> Record:
        """Named arrays and plain metadata of a fitted estimator."""
        name = type(estimator).__name__
        if ESTIMATORS.get(name) is not type(estimator):
            raise InvalidType(
                f"save takes these estimators, and pipelines of them: {', '.join(ESTIMATORS)}; "
                f"got {name}."
            )
        if not estimator.__sklearn_is_fitted__():
            raise InvalidInput(f"this {name} is not fitted yet; call fit before it is saved.")
        parameters = parameters_to_dict(estimator)
        arrays, fitted = state_to_record(estimator)
        metadata = {"class": name, "parameters": parameters, "fitted": fitted}
        if hasattr(estimator, "feature_names_in_"):
            metadata["feature_names"] = estimator.feature_names_in_.tolist()
        return Record(cls.kind, arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> Any:
        """The inverse of ``to_record``."""
        return _estimator(record.arrays, record.metadata, "metadata")


class SavedPipeline:
    """The file of a pipeline whose steps are estimators of polyattn."""

    kind = "pipeline"

    @classmethod
    def to_record(cls, pipeline: Pipeline) -> Record:
        """Named arrays and plain metadata of a fitted pipeline."""
        if type(pipeline) is not Pipeline:
            raise InvalidType(f"save takes a Pipeline itself; got {type(pipeline).__name__}.")
        if pipeline.memory is not None:
            raise InvalidInput(
                "a pipeline with memory caches to a folder, which a file cannot keep; "
                "set_params(memory=None) before it is saved."
            )
        arrays: dict[str, Any] = {}
        steps = []
        for at, (name, step) in enumerate(pipeline.steps):
            if step is None or (isinstance(step, str) and step == PASSTHROUGH):
                steps.append({"name": name, "step": {PASSTHROUGH: True}})
                continue
            if ESTIMATORS.get(type(step).__name__) is not type(step):
                raise InvalidType(
                    f"step {name!r} of the pipeline is {shown(step)}, which cannot be saved; a "
                    f"saved pipeline has steps of these kinds: {', '.join(ESTIMATORS)}. Save those "
                    "by themselves, and put the pipeline together again after loading."
                )
            record = SavedEstimator.to_record(step)
            arrays |= with_prefix(f"{at}.", record.arrays)
            steps.append({"name": name, "step": record.metadata})
        _require_one_layout(pipeline.steps)
        if (wrong := _wrong_width(pipeline.steps)) is not None:
            raise InvalidInput(
                f"step {wrong!r} of the pipeline takes tokens of another width than those before "
                "it give; fit the pipeline again before it is saved."
            )
        metadata: dict[str, Any] = {"steps": steps, "verbose": bool(pipeline.verbose)}
        if pipeline.transform_input is not None:
            metadata["transform_input"] = list(pipeline.transform_input)
        return Record(cls.kind, arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> Pipeline:
        """The inverse of ``to_record``."""
        metadata = record.metadata
        PIPELINE_FIELDS(metadata, "metadata")
        names = [each["name"] for each in metadata["steps"]]
        different = len(set(names)) == len(names)
        require(different, "metadata.steps", "steps of different names", names)
        prefixes = tuple(f"{at}." for at in range(len(names)))
        strange = [name for name in record.arrays if not name.startswith(prefixes)]
        require(not strange, "arrays", "those of the steps", strange)
        steps = []
        for at, each in enumerate(metadata["steps"]):
            where = f"metadata.steps[{at}].step"
            arrays = without_prefix(f"{at}.", record.arrays)
            if PASSTHROUGH in each["step"]:
                require(each["step"] == {PASSTHROUGH: True}, where, "no step", each["step"])
                require(not arrays, "arrays", f"none of step {at}", list(arrays))
                steps.append((each["name"], PASSTHROUGH))
            else:
                steps.append((each["name"], _estimator(arrays, each["step"], where)))
        for name, step in steps[:-1]:
            changes = step == PASSTHROUGH or isinstance(step, SequenceTransformer)
            require(changes, "metadata.steps", "transformers before the last step", name)
        wrong = _wrong_width(steps)
        require(wrong is None, "metadata.steps", "steps for tokens of the same width", wrong)
        return Pipeline(
            steps, transform_input=metadata.get("transform_input"), verbose=metadata["verbose"]
        )


SAVED = {kind.kind: kind for kind in (SavedEstimator, SavedPipeline)}


def model_record(model: Any) -> Record:
    """The record of an estimator or a pipeline."""
    kind = SavedPipeline if isinstance(model, Pipeline) else SavedEstimator
    return kind.to_record(model)


def _require_one_layout(steps: list[tuple[str, Any]]) -> None:
    """Refuse steps that read the same arrays with different axes: one of them is wrong."""
    found = {step.layout: name for name, step in steps if hasattr(step, "layout")}
    if len(found) > 1:
        said = " and ".join(f"{name!r} has layout={layout!r}" for layout, name in found.items())
        raise InvalidInput(
            f"steps of the pipeline read arrays with different axes: {said}. Give all of them the "
            "same layout, and fit again."
        )


def _wrong_width(steps: list[tuple[str, Any]]) -> str | None:
    """The name of a step whose tokens are wider or narrower than those it is given, if any."""
    width: int | None = None
    for name, step in steps:
        if step is None or isinstance(step, str):
            continue
        if width not in (None, step.n_features_in_):
            return name
        if isinstance(step, SequenceTransformer):
            width = len(step.get_feature_names_out())
    return None


def _estimator(arrays: dict[str, Any], content: Any, where: str) -> Any:
    ESTIMATOR_FIELDS(content, where)
    kind = ESTIMATORS[content["class"]]
    parameters = parameters_from_dict(content["parameters"], kind, f"{where}.parameters")
    estimator = kind(**parameters)
    restore_state(estimator, arrays, content["fitted"], f"{where}.fitted")
    names = content.get("feature_names")
    if names is not None:
        wanted = estimator.n_features_in_
        require(len(names) == wanted, f"{where}.feature_names", f"{wanted} names", len(names))
        estimator._set_names(names)
    return estimator
