"""What estimators are given: sequences of either layout or a source, with their targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.sequences import in_layout, is_frame, is_indexed, refuse_frame
from polyattn.sources.source import Source


def tokens_first(X: Any, context: Any, layout: str) -> tuple[Any, Any]:
    """X and context with their tokens as rows, whatever their layout; a source as it is."""
    if isinstance(X, Source):
        return X, context
    if layout != "channels_first":
        refuse_table(X)
    return in_layout(X, layout), in_layout(context, layout, "context")


def require_targets(X: Any, y: Any) -> None:
    """Refuse sequences without targets, unless they are a source that has them."""
    if isinstance(X, Source) and not X.n_outputs:
        raise InvalidInput("the source holds no targets, which are needed here.")
    if y is None and not isinstance(X, Source):
        raise InvalidInput(
            "fitting and scoring requires y to be passed, but the target y is None; give the "
            "targets of X, or a source that holds both."
        )


def refuse_source(X: Any) -> None:
    """Refuse a source, for a search that goes over the data hundreds of times."""
    if isinstance(X, Source):
        raise InvalidInput("softmax heads are learned from arrays in memory; give X and y.")


def refuse_table(X: Any) -> None:
    """Refuse a table (rows, columns), the usual mistake, and say how to make it sequences."""
    if is_frame(X):
        if not is_indexed(X):
            refuse_frame(X, "X")
        return
    if getattr(X, "ndim", None) == 2:
        raise InvalidInput(
            f"X must have shape (n_sequences, n_tokens, n_dims) or be a list of arrays (n_tokens, "
            f"n_dims); got a table of shape {np.shape(X)}. X[None] makes it one sequence, "
            "X[:, None, :] sequences of one token each."
        )
