"""CallRecorder: the hooks that see a module's calls, and what is taken from each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.interop.sequence_buffer import SequenceBuffer
from polyattn.interop.torch.calls import (
    arguments_of,
    as_numbers,
    in_backward_pass,
    is_batch_first,
    outputs_of,
    require_self_attention,
    tokens_of,
)
from polyattn.interop.torch.graphs import is_traced
from polyattn.interop.torch.padding import (
    INSTEAD,
    Real,
    real_tokens,
    require_mode,
    tokens_within,
)
from polyattn.quoting import counted


@dataclass(frozen=True)
class Begun:
    """What a call was given: tokens (B, n, d) before anything could change them."""

    given: Tensor
    tokens: NDArray[np.float64]
    real: Real | None  # (B, n); None: all of them
    is_batched: bool
    batch_first: bool


@dataclass(frozen=True)
class Pass:
    """What the model around the module was given in the present forward pass."""

    model: nn.Module
    arguments: Mapping[str, Any]

    def real_tokens(self, n_sequences: int, n_tokens: int, mode: str) -> Real | None:
        """Real tokens (B, n) by the masks that the model was given."""
        if any(name.startswith("decoder_") for name, each in self._given()):
            raise InvalidInput(
                "the model has sequences to encode and others to decode, and the module has no "
                f"mask of its own. {INSTEAD}"
            )
        return real_tokens(self.model, self.arguments, n_sequences, n_tokens, mode)

    def require_batch(self, tokens: Tensor) -> None:
        """Refuse tokens (m, d) where the model was given ids (B, n): sequences have no axis."""
        ids = next((each for _, each in self._given() if isinstance(each, Tensor)), None)
        if tokens.ndim == 2 and ids is not None and ids.ndim == 2 and not ids.is_floating_point():
            raise InvalidInput(
                f"its tokens have shape {tuple(tokens.shape)}, and the model was given "
                f"{tuple(ids.shape)} ids: where sequences begin cannot be seen. Capture a module "
                "around it."
            )

    def _given(self) -> Iterator[tuple[str, Any]]:
        return ((name, each) for name, each in self.arguments.items() if each is not None)


class CallRecorder:
    """Hooks for a module, and for the model around it; what they see goes into a buffer.

    label : what messages call the module
    lengths : a function of tokens (B, n, d), or None: masks are read
    calls : the numbers of the calls within a forward pass that count, or None for all
    Guarantee: hooks return nothing and copy what they take, so that no number of a forward pass
    changes.  Calls that are repeated in a backward pass (checkpointing) are not counted.
    """

    def __init__(
        self,
        buffer: SequenceBuffer,
        label: str,
        lengths: Callable[..., Any] | None,
        calls: frozenset[int] | None,
        batch_first: bool | None,
    ) -> None:
        self.buffer, self.label, self.lengths, self.calls = buffer, label, lengths, calls
        self.batch_first = batch_first
        self.n_calls = 0  # within the present forward pass of the model
        self.most_calls = 0  # within any of them
        self.counted_calls: set[int] = set()
        self._pass: Pass | None = None
        # A call for each thread: the replicas of a module may run side by side.
        self._begun: dict[int, Begun] = {}
        self._lock = Lock()

    def model_begins(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a forward pass of the model."""
        self.n_calls, self._pass = 0, Pass(model, arguments_of(model, args, kwargs))

    def model_ends(self, _model: nn.Module, _args: tuple[Any, ...], _returned: Any) -> None:
        """After a forward pass of the model, whatever ended it."""
        self._pass = None

    def begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a call of the module: its tokens, which it may overwrite."""
        self._begun.pop(get_ident(), None)
        if in_backward_pass():
            return
        with self._named():
            if is_traced():
                raise InvalidInput(
                    "it is being compiled or traced; capture the module before that is done."
                )
            number, self.n_calls = self.n_calls, self.n_calls + 1
            self.most_calls = max(self.most_calls, self.n_calls)
            if self.calls is None or number in self.calls:
                self.counted_calls.add(number)
                self._begun[get_ident()] = self._begin(module, args, kwargs)

    def ends(
        self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], returned: Any
    ) -> None:
        """After a call: its outputs, and what became of its tokens."""
        begun = self._begun.pop(get_ident(), None)
        if begun is None:
            return
        with self._named():
            if not any(each is begun.given for each in (*args, *kwargs.values())):
                raise InvalidInput(
                    "another hook replaced its tokens; register that hook before capturing."
                )
            outputs = outputs_of(returned)
            with self._lock:
                self._add(begun, outputs)
                self.buffer.hand_on()

    def finish(self) -> None:
        """Hand on all that has come."""
        with self._named():
            self.buffer.hand_on(everything=True)

    def require_captured(self) -> None:
        """Refuse to end without a sequence, or without a call that was asked for."""
        missed = sorted((self.calls or frozenset()) - self.counted_calls)
        if self.buffer.n_sequences and not missed:
            return
        what = "was not called" if not self.most_calls else "saw no sequence with a real token"
        if missed and self.most_calls:
            what = (
                f"was called {counted(self.most_calls, 'time')} in a forward pass of the model, "
                f"and there is no call {', '.join(map(str, missed))}, counted from 0,"
            )
        raise InvalidInput(
            f"{self.label} {what} while it was captured: run the model within the with-block, so "
            "that it reaches this module."
        )

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun:
        arguments = arguments_of(module, args, kwargs)
        given = tokens_of(arguments, args, kwargs)
        require_self_attention(module, arguments, given)
        if self._pass is not None:
            self._pass.require_batch(given)
        first = is_batch_first(module) if self.batch_first is None else self.batch_first
        tokens = _batch_first(as_numbers(given), given.ndim == 3, first)
        return Begun(given, tokens, self._real(module, arguments, tokens), given.ndim == 3, first)

    def _real(
        self, module: nn.Module, arguments: Mapping[str, Any], tokens: NDArray[np.float64]
    ) -> Real | None:
        """Which tokens are no padding: by ``lengths``, the module's masks, or the model's."""
        if self.lengths is not None:
            return tokens_within(self.lengths, tokens)
        sizes = (len(tokens), tokens.shape[1], self.buffer.mode)
        require_mode(module, arguments, self.buffer.mode)
        real = real_tokens(module, arguments, *sizes)
        if real is None and self._pass is not None:
            return self._pass.real_tokens(*sizes)
        return real

    def _add(self, begun: Begun, returned: Tensor) -> None:
        """Add the real tokens of each sequence with the outputs at their places."""
        mode, tokens = self.buffer.mode, begun.tokens
        n_axes = 3 if begun.is_batched else 2
        if returned.ndim == n_axes - 1 and mode == "last":
            outputs, per_token = as_numbers(returned), False
            outputs = outputs if begun.is_batched else outputs[None]
        else:
            outputs, per_token = as_numbers(returned), True
            if returned.ndim == n_axes:
                outputs = _batch_first(outputs, begun.is_batched, begun.batch_first)
        wanted = tokens.shape[:2] if per_token else tokens.shape[:1]
        if outputs.shape[:-1] != wanted:
            raise InvalidInput(
                f"it returned outputs of shape {tuple(returned.shape)} for "
                f"{counted(len(tokens), 'sequence')} of {counted(tokens.shape[1], 'token')}; one "
                f"for each token is needed{', or for each sequence' * (mode == 'last')}."
            )
        for i, sequence in enumerate(tokens):
            real = slice(None) if begun.real is None else begun.real[i]
            kept, targets = sequence[real], outputs[i]
            if not len(kept):
                continue
            if per_token:
                targets = targets[real][-1].copy() if mode == "last" else targets[real]
            _require_finite(kept, targets)
            self.buffer.add(kept, targets)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors that say which module was captured."""
        try:
            yield
        except (InvalidInput, InvalidType, OutOfRange) as error:
            raise type(error)(f"while capturing {self.label}: {error}") from error
        except Exception as error:
            error.add_note(f"while capturing {self.label}")
            raise


def _batch_first(
    array: NDArray[np.float64], is_batched: bool, batch_first: bool
) -> NDArray[np.float64]:
    """The same numbers as (B, n, d)."""
    if not is_batched:
        return array[None]
    return array if batch_first else array.transpose(1, 0, 2)


def _require_finite(tokens: NDArray[np.float64], targets: NDArray[np.float64]) -> None:
    for what, array in (("tokens", tokens), ("outputs", targets)):
        if not np.all(np.isfinite(array)):
            raise InvalidInput(
                f"its {what} hold NaN or infinity where there is no padding; sums of them would "
                "hold nothing else."
            )
