"""Doubt: a program that is not right on its own traces is not determined by them anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.traces import Trace

# Outputs that differ less from a token are that token: weights are halves, or fitted to 1e-9.
NEGLIGIBLE = 1e-6


def doubt_of(traces: Iterable[Trace], outputs: Callable[[Trace], NDArray]) -> str:
    """Which token of which trace is not given, as a sentence; empty if all are.

    A row in the span of training rows has the same combination of their outputs, so these must
    be right before rounding.

    Parameters
    ----------
    outputs : function of a trace
        The outputs (m, d) before each of its tokens, given all that was before it.
    """
    for number, trace in enumerate(traces):
        wanted = trace.completion if trace.labels is None else trace.schema.round(trace.labels)
        wrong = np.any(np.abs(outputs(trace) - wanted) > NEGLIGIBLE, axis=1)
        if wrong.any():
            return (
                f"token {np.flatnonzero(wrong)[0]} of training trace {number} is not what was "
                "learned, so that the traces do not determine what comes here."
            )
    return ""
