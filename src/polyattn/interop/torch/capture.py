"""capture: the inputs and outputs of a module, added up while a model runs as it always does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

import numpy as np
from torch import nn

from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag, require_integer
from polyattn.form.form import Form
from polyattn.interop.sequence_buffer import SequenceBuffer, TakesUpdates
from polyattn.interop.torch.call_recorder import CallRecorder
from polyattn.quoting import shown
from polyattn.sources.growing import GrowingSource
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.sized_later import sized_later
from polyattn.stats.statistics import Statistics

KINDS: dict[str, type[Statistics]] = {"moments": Moments, "triangular": TriangularFactor}

# So many names of modules are listed where one was not found.
LISTED_NAMES = 30


def capture(
    module: nn.Module,
    form: Form,
    name: str | None,
    into: str | TakesUpdates,
    lengths: Callable[..., Any] | None,
    calls: int | Collection[int] | None,
    batch_first: bool | None,
) -> Any:
    """See ``polyattn.interop.capture``; a context manager."""
    inner = named_module(module, name)
    if not isinstance(form, Form):
        raise InvalidType(f"form must be a polyattn.Form; got {shown(form)}.")
    if lengths is not None and not callable(lengths):
        raise InvalidType(f"lengths must be a function of the tokens; got {shown(lengths)}.")
    if batch_first is not None:
        batch_first = require_flag("batch_first", batch_first)
    if calls is not None and name is None:
        raise InvalidInput(
            "calls counts those of one forward pass of a model: give the model, and name= for "
            "the module inside it."
        )
    fed = fed_object(into, form)
    recorder = CallRecorder(
        SequenceBuffer(fed, form.mode), _label(inner, name), lengths, _as_calls(calls), batch_first
    )
    return _running(module, inner, recorder, fed)


@contextmanager
def _running(
    model: nn.Module, module: nn.Module, recorder: CallRecorder, fed: TakesUpdates
) -> Iterator[Any]:
    with ExitStack() as hooks:
        if model is not module:
            for handle in (
                model.register_forward_pre_hook(recorder.model_begins, with_kwargs=True),
                model.register_forward_hook(recorder.model_ends, always_call=True),
            ):
                hooks.callback(handle.remove)
        for handle in (
            module.register_forward_pre_hook(recorder.begins, with_kwargs=True),
            module.register_forward_hook(recorder.ends, with_kwargs=True),
        ):
            hooks.callback(handle.remove)
        try:
            yield fed
        finally:
            recorder.finish()
    recorder.require_captured()


def named_module(model: object, name: str | None) -> nn.Module:
    """The module of this name inside a model, or the model itself without one."""
    if not isinstance(model, nn.Module):
        raise InvalidType(f"module must be a torch.nn.Module; got {shown(model)}.")
    if name is None:
        return model
    names = [each for each, _ in model.named_modules(remove_duplicate=False) if each]
    if not isinstance(name, str) or name not in names:
        near = get_close_matches(str(name), names, LISTED_NAMES, 0.0)
        rest = len(names) - len(near)
        raise InvalidInput(
            f"the {type(model).__name__} has no module {name!r} inside; there are "
            f"{', '.join(near) or 'none'}{f', and {rest} more' * (rest > 0)}."
        )
    return model.get_submodule(name)


def fed_object(into: object, form: Form) -> Any:
    """What is fed: statistics that learn their sizes, a source, or what was given."""
    if isinstance(into, str):
        kind = require_choice("into", into, (*KINDS, "source"))
        return GrowingSource() if kind == "source" else sized_later(KINDS[kind], form)
    if not callable(getattr(into, "update", None)):
        raise InvalidType(
            f"into must be {', '.join(map(repr, KINDS))}, 'source', or an object with a method "
            f"update(X, Y); got {shown(into)}."
        )
    if isinstance(into, Statistics) and into.form != form:
        raise InvalidInput(f"into was made for {into.form}, and form is {form}: give the same.")
    return into


def _as_calls(calls: object) -> frozenset[int] | None:
    """The numbers of the calls that count, from 0; None for all."""
    if calls is None:
        return None
    if isinstance(calls, int | np.integer):
        return frozenset({require_integer("calls", calls, 0)})
    if isinstance(calls, str | bytes) or not isinstance(calls, Collection) or not len(calls):
        raise InvalidInput(
            f"calls must be the number of a call in each forward pass, from 0, or several; got "
            f"{shown(calls)}."
        )
    return frozenset(require_integer("calls", each, 0) for each in calls)


def _label(module: nn.Module, name: str | None) -> str:
    kind = type(module).__name__
    return kind if name is None else f"{name} ({kind})"
