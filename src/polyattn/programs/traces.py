"""Traces: what a machine wrote, token by token; all that learning gets to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.schema import Schema


@dataclass(frozen=True, eq=False)
class Trace:
    """One history: the tokens that were given and those that followed.

    prompt : array (n, d) of integers, the machine and its input as tokens
    completion : array (m, d) of integers, what came after; token t is to be predicted from the
        prompt and completion[:t]
    source : the machine and the input, if they are known
    labels : array (m, d), what to learn instead of the completion: the same with noise
    cut : whether the run was cut off; it would have gone on
    """

    schema: Schema
    prompt: NDArray[np.int64]
    completion: NDArray[np.int64]
    source: Any = None
    labels: NDArray | None = None
    cut: bool = False

    @property
    def n_rows(self) -> int:
        """m, the predicted tokens."""
        return len(self.completion)

    @property
    def targets(self) -> NDArray:
        """What is to be predicted (m, d): the completion, unless there are other labels."""
        return self.completion if self.labels is None else self.labels

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Prompt and completion (n + m, d)."""
        return np.concatenate([self.prompt, self.completion])

    def show(self) -> str:
        """The completion for a person to read, one token per line."""
        return "\n".join(self.schema.show(self.schema.decode(row)) for row in self.completion)
