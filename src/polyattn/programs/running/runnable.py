"""What compiled and learned programs share: they run, and know how sure each token is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.schema import (
    Decoded,
    Predictor,
    Schema,
    Token,
    decode,
    run_encoded,
    task_of,
)
from polyattn.programs.running.engine import margins
from polyattn.programs.traces import Trace


class OpenPredictor(Predictor, Protocol):
    """A predictor that can be asked for its numbers: a layer."""

    def output(self) -> NDArray[np.float64]:
        """The output (d,) after the last token, before rounding."""


class MarginKeeper:
    """A layer's predictor that keeps the margin of each token it writes."""

    def __init__(self, schema: Schema, predictor: OpenPredictor) -> None:
        self._schema, self._predictor = schema, predictor
        self.start, self.margins = predictor.start, list[float]()

    def next_token(self) -> Token:
        self.margins.append(float(margins(self._schema, self._predictor.output())))
        return self._predictor.next_token()


class Runnable(ABC):
    """A schema, and a way to predict the next token."""

    schema: Schema

    @abstractmethod
    def predictor(self) -> OpenPredictor:
        """A fresh predictor, which has seen no tokens."""

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return self.schema.n_dims

    def run(self, *given: Any, **options: Any) -> Any:
        """Run on a machine and its input, such as ``run(dfa, word)``, and read the result.

        What is given and what comes back depends on the program: see the function of the
        library that made it.
        """
        return run_encoded(self.schema, self.predictor(), given, options)

    def trace(self, *given: Any, **options: Any) -> Trace:
        """The tokens of a run; ``print(trace.show())`` prints them."""
        task = task_of(self.schema, given, options)
        return Trace.of(self.schema, self.predictor(), task, given)

    def decode(self, prompt: list[Token], limit: int) -> Decoded:
        """The tokens after a prompt: at most ``limit``, or up to the stop rule."""
        return decode(self.schema, self.predictor(), prompt, limit)
