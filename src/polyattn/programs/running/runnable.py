"""What compiled and learned programs share: they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.running.decode import (
    Decoded,
    decode,
    recorded,
    run_encoded,
    tasks_of,
)
from polyattn.programs.running.margins import OpenPredictor
from polyattn.programs.traces import Trace


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
        return recorded(self.schema, task, self.decode(task.prompt, task.limit), given)

    def decode(self, prompt: list[Token], limit: int) -> Decoded:
        """The tokens after a prompt: at most ``limit``, or up to the stop rule."""
        return decode(self.schema, self.predictor(), prompt, limit)
