"""The rows of traces: what a layer sees before each token, and the token that should follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.traces import Trace


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one trace, in order.

    grams : array (m, d, d), the token Gram matrix G of everything before the row's token
    queries : array (m, d), the token before it
    targets : array (m, d), the token itself
    """

    grams: NDArray[np.float64]
    queries: NDArray[np.float64]
    targets: NDArray[np.float64]


def rows_of(trace: Trace) -> Rows:
    """The m rows of a trace with m predicted tokens."""
    prompt = trace.prompt.astype(np.float64)
    followed = trace.completion.astype(np.float64)
    queries = np.concatenate([prompt[-1:], followed[:-1]])[: len(followed)]
    steps = np.einsum("tj,tk->tjk", queries, queries)
    steps[:1] = prompt.T @ prompt
    return Rows(np.cumsum(steps, axis=0), queries, trace.targets.astype(np.float64))
