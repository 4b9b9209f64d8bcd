"""What a MODEL is to verbs: a layer, a fit, or an estimator with labels and steps before it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.model.layer import AttentionLayer
from polyattn.sequences import names_of, require_same_names
from polyattn.sources import ChunkData
from polyattn.sources.prediction_tables import PredictedPart


@dataclass(frozen=True, eq=False)
class FittedEstimator:
    """An estimator that was saved, and the transformers of sequences before it."""

    final: Any
    steps: tuple[Any, ...] = ()

    @classmethod
    def of(cls, loaded: Any) -> FittedEstimator | None:
        """What was loaded, if it is an estimator, or a pipeline that ends with one."""
        if not hasattr(loaded, "get_params"):
            return None
        # scikit-learn is slow to load, and most verbs do not need it.
        from polyattn.estimators.base import SequenceEstimator

        if isinstance(loaded, SequenceEstimator):
            return cls(loaded)
        named = getattr(loaded, "steps", None)
        if not named or not isinstance(named[-1][1], SequenceEstimator):
            return None
        *steps, final = (each for _, each in named)
        # A text stands for a step that changes nothing.
        return cls(final, tuple(step for step in steps if not isinstance(step, str)))

    @property
    def result(self) -> Any:
        """What was learned: a fit, or a layer of softmax attention with its outcome."""
        return self.final.result_

    @property
    def layer(self) -> Any:
        """The fit, or the layer of softmax attention."""
        return self.result if isinstance(self.result, pa.FitResult) else self.result.layer

    @property
    def mode(self) -> str:
        """Which positions are predicted."""
        return str(self.layer.mode)

    @property
    def classes(self) -> NDArray | None:
        """The labels of a classifier; None where numbers are predicted, one per label included."""
        several = getattr(self.final, "multilabel_", False)
        return None if several else getattr(self.final, "classes_", None)

    @property
    def has_probabilities(self) -> bool:
        """Whether probabilities of the classes are known."""
        return self.classes is not None and hasattr(self.final, "predict_proba")

    @property
    def fills_gaps(self) -> bool:
        """Whether missing values are filled in before anything else."""
        return bool(self.steps) and isinstance(self.steps[0], pa.SequenceImputer)

    def prepared(self, X: Any) -> Any:
        """Sequences, or a source of them, as the estimator takes them."""
        for step in self.steps:
            X = step.transform(X)
        require_same_names(names_of(X), getattr(self.final, "feature_names_in_", None))
        return X

    def predicted(self, data: ChunkData, probabilities: bool) -> PredictedPart:
        """Labels, with probabilities if they are asked for; or numbers."""
        X = self.prepared(data.batch)
        given = {} if data.context is None else {"context": data.context}
        found = self.final.predict(X, **given)
        flat = np.concatenate(found) if isinstance(found, list) else found
        if self.classes is None:
            numbers = flat.astype(np.float64).reshape(-1, self.final.n_outputs_)
            return _part(numbers, self.mode, data)
        labels = flat.reshape(-1)
        values: NDArray = np.empty((len(labels), 0))
        if probabilities:
            values = _rows(self.final.predict_proba(X, **given))
        return _part(values, self.mode, data)._replace(labels=labels)


def predicted_by(
    layer: pa.FitResult | pa.QueryResult | AttentionLayer | pa.LinearisedAttention,
    data: ChunkData,
    probabilities: bool,
) -> PredictedPart:
    """The predictions of a fit, a layer, or what was found around one by queries."""
    batch, context = data.batch, data.context
    if isinstance(layer, pa.FitResult):
        outputs = (layer.predict_proba if probabilities else layer.predict)(batch, context)
    elif isinstance(layer, pa.LinearAttention):
        outputs = layer(batch, context)
    elif context is not None:
        raise InvalidInput("this layer attends to X itself; leave 'context' out of DATA.")
    else:
        outputs = layer.predict(batch) if isinstance(layer, pa.QueryResult) else layer(batch)
    return _part(_rows(outputs), layer.mode, data)


def predictor(loaded: Any) -> Any:
    """What predicts: the layer of what was learned, if there is one, or what was loaded."""
    results = pa.LearnedSoftmax | pa.QueryResult | pa.Linearised
    learned = isinstance(loaded, results) and loaded.layer is not None
    return loaded.layer if learned else FittedEstimator.of(loaded) or loaded


def require_predictor(loaded: Any, model: Path) -> Any:
    """What predicts, or what to do about a file in which nothing does."""
    found = predictor(loaded)
    layers = AttentionLayer | pa.LinearisedAttention
    if isinstance(found, pa.FitResult | layers | FittedEstimator):
        # Around a layer from queries may lie what predicts with it.
        return loaded if isinstance(loaded, pa.QueryResult) else found
    why = f"a {type(loaded).__name__}, not a layer."
    if isinstance(loaded, pa.Moments | pa.TriangularFactor):
        why = (
            "statistics, not a layer; solve them first with: "
            f"polyattn fit {model} -o model.safetensors"
        )
    raise InvalidInput(f"{str(model)!r} holds {why}")


def _part(values: NDArray, mode: str, data: ChunkData) -> PredictedPart:
    """Predictions with the names and the order of their sequences."""
    lengths = None if mode == "last" else data.batch.lengths
    return PredictedPart(values, lengths, data.names, data.order)


def _rows(outputs: Any) -> NDArray:
    """Outputs (..., e) of all predicted positions, one after the other (n_rows, e)."""
    rows = np.concatenate(outputs) if isinstance(outputs, list) else np.asarray(outputs)
    return rows.reshape(-1, rows.shape[-1])
