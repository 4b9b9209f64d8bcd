"""Layers of any kind as an audit sees them: outputs, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn import interop
from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag
from polyattn.features.products import apply_coef
from polyattn.features.summaries import SeenSequences
from polyattn.features.unsigned import absolute_layout
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.form.form import Form, require_form
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.sequences import MODES, SequenceBatch
from polyattn.stats.rows import Rows
from polyattn.targets import as_targets

Outputs = Callable[[SequenceBatch, SequenceBatch | None], Any]


@dataclass(frozen=True)
class AuditedLayer:
    """A layer as an audit sees it; what a black box does not say is None."""

    outputs: Outputs
    form: Form
    # What has folded coefficients, which are made when they are asked for.
    known: LinearAttention | FitResult | None = None
    n_dims: int | None = None
    n_outputs: int | None = None
    n_context_dims: int | None = None
    # The layer with all signs removed: its outputs bound what is added up in those of the layer.
    unsigned: Outputs | None = None

    @property
    def coef(self) -> NDArray[np.float64] | None:
        """The folded coefficients (e, m, r)."""
        return None if self.known is None else self.known.coef

    def evaluate(self, part: Rows) -> tuple[NDArray, NDArray]:
        """Outputs (rows, e) for some sequences, and sizes that rounding in them is relative to."""
        found = self.outputs(part.batch, part.context)
        try:
            # A black box may return anything.
            outputs = as_targets(found, part.batch, part.mode, part.n_outputs)
        except (InvalidInput, InvalidType) as error:
            message = f"the outputs of the layer do not fit the data (here called Y): {error}"
            raise type(error)(message) from None
        if self.unsigned is None:
            return outputs, np.abs(outputs)
        sizes = self.unsigned(part.batch, part.context)
        return outputs, as_targets(sizes, part.batch, part.mode)


def as_audited(
    layer: Any, mode: str | None, bias: bool | None, form: Form | None = None
) -> AuditedLayer:
    """Any kind of layer, its form checked against what was asked for."""
    module = None
    if interop.is_torch_module(layer):
        module, layer = layer, interop.torch_layer(layer, mode)
    elif hasattr(type(layer), "result_"):
        _refuse_log_loss(layer.result_)
        if hasattr(layer, "classes_"):
            raise InvalidType(
                "audit takes a regressor; of a classifier give its result_ as the layer and as Y "
                "the indicators of the classes: one column per class, or of two classes a single "
                "column of -1 and 1."
            )
        layer = layer.result_
    _refuse_log_loss(layer)
    if isinstance(layer, OneHotFit):
        layer = layer.layer  # the same function on the tokens that it is about
    if not isinstance(layer, LinearAttention | SoftmaxAttention | FitResult):
        return _black_box(layer, module, mode, bias, form)
    _require_own(layer, "mode", mode)
    if isinstance(layer, SoftmaxAttention):
        # It has no coefficients, but knows its mode and sizes.
        constant = layer.bias if bias is None else require_flag("bias", bias)
        compared = require_form(form, layer.mode, constant)
        return AuditedLayer(_alone(layer), compared, None, layer.n_dims, layer.n_outputs)
    _require_own(layer, "bias", bias)
    if form is not None:
        _require_own(layer, "form", form)
    outputs: Any = layer.predict if isinstance(layer, FitResult) else layer
    context = layer.n_context_dims
    return AuditedLayer(
        _with_context(outputs) if context is not None else _alone(outputs), layer.form, layer,
        layer.n_dims, layer.n_outputs, context, _unsigned(layer),
    )  # fmt: skip


def _refuse_log_loss(layer: object) -> None:
    if isinstance(layer, FitResult) and layer.loss != "squared":
        raise InvalidInput(
            "audit compares layers by squared error, and this one was fitted by log-loss: its "
            "outputs are logarithms of odds, not the numbers of classes. Its outcome says how near "
            "it is to the least log-loss; certify says what the data determine. To audit a "
            "classifier, fit it by squared error."
        )


def _alone(layer: Any) -> Outputs:
    return lambda batch, _: layer(batch)


def _with_context(layer: Any) -> Outputs:
    return lambda batch, context: layer(batch, context=context)


def _unsigned(layer: LinearAttention | FitResult) -> Outputs:
    """The layer with all signs removed, on tokens without signs."""
    if isinstance(layer, FitResult):
        known: Any = replace(layer, coef=np.abs(layer.coef))
        evaluate = known.predict
    else:
        known = _without_signs(layer)
        evaluate = known
    if layer.layout.is_plain:
        # As floats: the magnitude of the smallest integer does not fit its own type.
        return lambda batch, _: evaluate(
            SequenceBatch(np.abs(batch.values[:], dtype=np.float64), batch.offsets)
        )
    layout = absolute_layout(layer.layout)

    def outputs(batch: SequenceBatch, context: SequenceBatch | None) -> Any:
        blocks = SeenSequences(layout, batch, context).blocks()
        rows = [apply_coef(known.coef, block.sums, block.queries).T for block in blocks]
        together = np.concatenate(rows)
        return together if layout.form.mode == "last" else np.split(together, batch.offsets[1:-1])

    return outputs


def _without_signs(layer: LinearAttention) -> LinearAttention:
    sizes = np.abs(layer.attn), np.abs(layer.value)
    return LinearAttention(
        *sizes, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=layer.head_scales,
        skip=None if layer.skip is None else np.abs(layer.skip),
        intercept=None if layer.intercept is None else np.abs(layer.intercept),
    )  # fmt: skip


def _require_own(layer: Any, name: str, asked: object) -> None:
    own = getattr(layer, name)
    if asked is not None and asked != own:
        raise InvalidInput(
            f"the layer has {name} {own!r}, but {name}={asked!r} was asked for; leave it out."
        )


def _black_box(
    layer: Any, module: Any, mode: str | None, bias: bool | None, form: Form | None
) -> AuditedLayer:
    """A torch module that nobody can read, or else any function of sequences."""
    if module is None and not callable(layer):
        raise InvalidType(
            "layer must be a LinearAttention, a SoftmaxAttention, a FitResult, a fitted regressor, "
            f"a torch module or a function of sequences; got {type(layer).__name__}."
        )

    def outputs(batch: SequenceBatch, context: SequenceBatch | None) -> Any:
        if module is not None and context is not None:
            raise InvalidInput(
                "a torch module is given the sequences alone, and these attend to a context; give "
                "audit a function of both arrays, (X, context), that calls the module."
            )
        if module is not None:
            return interop.torch_outputs(module, batch)
        both = [batch] if context is None else [batch, context]
        return layer(*map(_as_given, both))

    chosen = require_choice("mode", "last" if mode is None else mode, MODES)
    constant = require_flag("bias", bias is not None and bias)
    return AuditedLayer(outputs, require_form(form, chosen, constant))


def _as_given(batch: SequenceBatch) -> Any:
    """An array (B, n, d), or a list of arrays (n_i, d) if lengths differ."""
    n, length = len(batch), batch.common_length
    return list(batch) if length is None else batch.values[:].reshape(n, length, -1)
