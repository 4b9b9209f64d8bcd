"""Arguments of ``forecast``: what predicts, what is continued, and whether both fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.form.layout import Layout
from polyattn.model.linear import LinearAttention
from polyattn.numerics.arrays import real_array
from polyattn.quoting import counted
from polyattn.sequences import SequenceBatch, as_batch
from polyattn.sources.source import Source


def layer_or_none(result: object) -> FitResult | LinearAttention | None:
    """What predicts: a fit or a layer, of an estimator that which it found; None of sequences."""
    if isinstance(result, Source):
        raise InvalidInput(
            "forecast continues sequences in memory; read them first, such as one file of them."
        )
    # Estimators lie above this module: they are known by what they hold.
    if hasattr(type(result), "classes_") or hasattr(result, "classes_"):
        raise InvalidInput(
            "a classifier has scores of classes as outputs, not tokens; a forecast needs a "
            "regression to the next tokens."
        )
    if hasattr(type(result), "result_"):
        result = result.result_  # type: ignore[attr-defined]
    if isinstance(result, OneHotFit):
        raise InvalidInput(
            "a fit of token ids has scores of symbols as outputs, not tokens; a forecast needs "
            "tokens of numbers."
        )
    if isinstance(result, FitResult):
        if result.loss != "squared":
            raise InvalidInput(
                "a fit by log-loss has log-odds of classes as outputs, not tokens; a forecast "
                "needs a fit by squared error to the next tokens."
            )
        return result
    if isinstance(result, LinearAttention):
        return result
    if isinstance(result, SequenceBatch | np.ndarray | list | tuple) or hasattr(
        result, "__array__"
    ):
        return None
    raise InvalidType(
        "forecast takes a FitResult, a LinearAttention, a fitted LinearAttentionRegressor or "
        f"sequences; got {type(result).__name__}."
    )


def checked_sequences(X: Any, n_dims: int | None, name: str) -> tuple[SequenceBatch, bool]:
    """Checked sequences, and whether it is one, given as an array (n, d) or (n,)."""
    if isinstance(X, Source):
        raise InvalidInput(f"{name} must be sequences in memory; got a source.")
    if _is_column(X):
        X = real_array(X, name)[:, None]
    single = _n_axes(X) == 2
    return as_batch(np.asarray(X)[None] if single else X, name, n_dims=n_dims), single


def require_next_tokens(layout: Layout, n_outputs: int, future: object) -> None:
    """Refuse layers whose outputs cannot be their next tokens."""
    if layout.n_context_dims is not None:
        raise InvalidInput(
            "this layer attends to a context, which ends where it ends; a forecast needs a layer "
            "that attends to the tokens before. Coordinates that are known ahead can be part of "
            "the tokens: see future."
        )
    if layout.form.mode == "full":
        raise InvalidInput(
            "in mode 'full' a token attends to those after it, too, which a forecast does not "
            "have; fit with mode='causal'."
        )
    if n_outputs > layout.n_dims:
        raise InvalidInput(
            f"a forecast needs outputs that are coordinates of the next token, at most "
            f"{layout.n_dims}; the layer has {n_outputs}. Fit it to next tokens: "
            "fit(X[:, :-1], X[:, 1:], mode='causal')."
        )
    if n_outputs < layout.n_dims and future is None:
        missing = counted(layout.n_dims - n_outputs, "coordinate")
        raise InvalidInput(
            f"tokens have {counted(layout.n_dims, 'coordinate')} and the layer {n_outputs} "
            f"outputs: {missing} of the next token would be unknown. Fit it to whole next tokens, "
            "or give those as future, where they are known ahead."
        )


def _is_column(X: Any) -> bool:
    """Whether it is one entry after the other: an array (n,), a column of a table, a list."""
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(isinstance(each, int | float | np.number) for each in X)
    # Arrays of arrays are sequences.
    return _n_axes(X) == 1 and not any(np.ndim(each) for each in np.asarray(X)[:1])


def _n_axes(X: Any) -> int | None:
    """How many axes an array, a table or a column has; None of lists and batches."""
    if isinstance(X, SequenceBatch) or not hasattr(X, "__array__"):
        return None
    return len(np.shape(X))
