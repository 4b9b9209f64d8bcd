"""What is audited: outputs for sequences, and the coefficients where they can be known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn import interop
from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.sequences import MODES, SequenceBatch
from polyattn.stats.rows import Rows
from polyattn.targets import as_targets


@dataclass(frozen=True)
class AuditedLayer:
    """A layer as an audit sees it; ``coef`` and its sizes are None for a black box."""

    outputs: Callable[[SequenceBatch], Any]
    mode: str
    bias: bool
    coef: NDArray[np.float64] | None = None
    n_dims: int | None = None
    n_outputs: int | None = None
    # The layer with all signs removed: its outputs bound what is added up in those of the layer.
    unsigned: Callable[[SequenceBatch], Any] | None = None

    def rows_of_outputs(self, part: Rows) -> NDArray:
        """Outputs (rows, e) for some sequences; a black box may return anything, so: checked."""
        outputs = self.outputs(part.batch)
        try:
            return as_targets(outputs, part.batch, part.mode, part.n_outputs)
        except (InvalidInput, InvalidType) as error:
            message = f"the outputs of the layer do not fit the data (here called Y): {error}"
            raise type(error)(message) from None

    def rows_of_sizes(self, part: Rows) -> NDArray | None:
        """What rounding in the outputs is relative to (rows, e); None for a black box."""
        if self.unsigned is None:
            return None
        batch = SequenceBatch(np.abs(part.batch.values), part.batch.offsets)
        return as_targets(self.unsigned(batch), part.batch, part.mode)


def as_audited(layer: Any, mode: str | None, bias: bool | None) -> AuditedLayer:
    """Any kind of layer, its mode and bias checked against what was asked for."""
    if interop.is_torch_module(layer):
        read = interop.torch_layer(layer, mode)
        if read is None:
            return _black_box(lambda batch: interop.torch_outputs(layer, batch), mode, bias)
        layer = read
    elif hasattr(type(layer), "result_"):
        if hasattr(layer, "classes_"):
            raise InvalidType(
                "audit takes a regressor; of a classifier give its result_ as the layer and the "
                "indicators of the classes as Y."
            )
        layer = layer.result_
    if isinstance(layer, SoftmaxAttention):
        # It has no coefficients, but knows its mode and sizes.
        _require_own(layer, "mode", mode)
        constant = layer.bias if bias is None else require_flag("bias", bias)
        return AuditedLayer(
            layer, layer.mode, constant, n_dims=layer.n_dims, n_outputs=layer.n_outputs
        )
    if not isinstance(layer, LinearAttention | FitResult):
        if callable(layer):
            return _black_box(lambda batch: layer(_as_argument(batch)), mode, bias)
        raise InvalidType(
            "layer must be a LinearAttention, a SoftmaxAttention, a FitResult, a fitted regressor, "
            f"a torch module or a function of sequences; got {type(layer).__name__}."
        )
    _require_own(layer, "mode", mode)
    _require_own(layer, "bias", bias)
    outputs: Callable[[SequenceBatch], Any]
    if isinstance(layer, LinearAttention):
        outputs = layer
        unsigned: Any = LinearAttention(
            np.abs(layer.attn), np.abs(layer.value), layer.mode, layer.bias
        )
    else:
        outputs, unsigned = layer.predict, replace(layer, coef=np.abs(layer.coef)).predict
    sizes = (layer.n_dims, len(layer.coef))
    return AuditedLayer(outputs, layer.mode, layer.bias, layer.coef, *sizes, unsigned)


def _require_own(layer: Any, name: str, asked: object) -> None:
    own = getattr(layer, name)
    if asked is not None and asked != own:
        raise InvalidInput(
            f"the layer has {name} {own!r}, but {name}={asked!r} was asked for; leave it out."
        )


def _black_box(
    outputs: Callable[[SequenceBatch], Any], mode: str | None, bias: bool | None
) -> AuditedLayer:
    chosen = require_choice("mode", "last" if mode is None else mode, MODES)
    return AuditedLayer(outputs, chosen, require_flag("bias", bias is not None and bias))


def _as_argument(batch: SequenceBatch) -> NDArray | list[NDArray]:
    length = batch.common_length
    return list(batch) if length is None else batch.values.reshape(len(batch), length, -1)
