"""What compiled and learned programs share: they run, and know how sure each token is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.schema import (
    Decoded,
    Predictor,
    Schema,
    Token,
    decode,
    run_encoded,
    tasks_of,
)
from polyattn.programs.traces import Trace


def margin(schema: Schema, output: NDArray) -> float:
    """How far every number of an output (d,) may move before it is rounded to another token.

    The distance, in the largest change of a number, to the nearest border of ``schema.round``:
    in a one-hot block half the lead over the next best, and what is above or below one half; in
    other blocks what is left to the next integer.  A layer that writes 0 and 1 exactly has 0.5.
    """
    found = []
    for attribute in schema.attributes:
        block = output[schema.blocks[attribute.name]]
        if attribute.rounding != ONE_HOT:
            found.append(0.5 - np.abs(block - np.rint(block)).max())
            continue
        best, *others = np.sort(block)[::-1][:2]
        found.append(abs(best - 0.5))
        if best > 0.5:
            found += [(best - next_best) / 2 for next_best in others]
    return float(min(found))


class OpenPredictor(Predictor, Protocol):
    """A predictor that can be asked for its numbers: a layer."""

    def output(self) -> Mapping[int, float] | NDArray[np.float64]:
        """The output after the last token, before rounding; a mapping leaves zeros out."""


class MarginKeeper:
    """A layer's predictor that keeps the margin of each token it writes."""

    def __init__(self, schema: Schema, predictor: OpenPredictor) -> None:
        self._schema, self._predictor = schema, predictor
        self.margins: list[float] = []

    def start(self, prompt: list[Token]) -> None:
        self.margins = []
        self._predictor.start(prompt)

    def next_token(self) -> Token:
        output = self._predictor.output()
        if isinstance(output, Mapping):
            numbers = np.zeros(self._schema.n_dims)
            numbers[list(output.keys())] = list(output.values())
            output = numbers
        self.margins.append(margin(self._schema, output))
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
        (task,) = tasks_of(self.schema, [given], options)
        return Trace.of(self.schema, task, self.decode(task.prompt, task.limit), given)

    def decode(self, prompt: list[Token], limit: int) -> Decoded:
        """The tokens after a prompt: at most ``limit``, or up to the stop rule."""
        return decode(self.schema, self.predictor(), prompt, limit)
