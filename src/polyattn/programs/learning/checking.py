"""What learning and certificates ask of traces and options, said before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, require_integer
from polyattn.numerics.arrays import EXACT_INTEGER
from polyattn.programs.language.schema import Schema
from polyattn.programs.traces import Trace

# Labels are squared and summed: beyond this they would overflow.
LARGEST = 1e100


def require_traces(
    name: str, traces: Iterable[Trace], schema: Schema, any_size: bool = False
) -> Iterator[Trace]:
    """The traces one by one, each found fit for the schema; an error names the one that is not."""
    if isinstance(traces, Trace) or not isinstance(traces, Iterable):
        raise InvalidType(f"{name} must be a list of traces; got one {type(traces).__name__}.")
    for number, trace in enumerate(traces):
        _require_trace(f"{name}[{number}]", trace, schema, any_size)
        yield trace


def require_rule_options(max_offset: Any, max_terms: Any, n_folds: Any, step: Any) -> None:
    """The options of learning by rules, with values that they can have."""
    require_integer("max_offset", max_offset, 0)
    require_integer("max_terms", max_terms, 1)
    require_integer("n_folds", n_folds, 2)
    if step is not None and not (_is_number(step) and 0 < step < np.inf):
        raise InvalidInput(f"step must be a number > 0, or None; got {step!r}.")


def require_ridge(ridge: Any) -> None:
    """The penalty of learning by coefficients: "auto", or a number."""
    if isinstance(ridge, str) and ridge == "auto":
        return
    if not (_is_number(ridge) and 0 <= ridge < np.inf):
        raise InvalidInput(f"ridge must be 'auto' or a number >= 0; got {ridge!r}.")


def _require_trace(name: str, trace: Trace, schema: Schema, any_size: bool) -> None:
    if not isinstance(trace, Trace):
        raise InvalidType(f"{name} must be a Trace; got {type(trace).__name__}.")
    own = trace.schema
    if list(own.blocks) != list(schema.blocks):
        raise InvalidInput(
            f"{name} has the attributes {', '.join(own.blocks)}; the schema has "
            f"{', '.join(schema.blocks)}."
        )
    if not any_size and own.atoms != schema.atoms:
        raise InvalidInput(
            f"{name} is of another size: its tokens have {own.n_dims} numbers, those of the "
            f"schema {schema.n_dims}. Rules are learned from several sizes, and resized."
        )
    for part in ("prompt", "completion"):
        _require_tokens(f"{name}.{part}", getattr(trace, part), own.n_dims)
    _require_small_counts(name, trace)
    if trace.labels is not None:
        _require_labels(f"{name}.labels", trace.labels, trace.completion.shape)


def _require_tokens(name: str, tokens: Any, n_dims: int) -> None:
    """An array (n, d) of whole numbers: proofs rest on that."""
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iuf":
        raise InvalidType(
            f"{name} must be an array of whole numbers, as schema.encode(tokens) gives it; got "
            f"{_said(tokens)}."
        )
    if tokens.ndim != 2 or not len(tokens) or tokens.shape[1] != n_dims:
        raise InvalidInput(
            f"{name} must have shape (n, {n_dims}) with at least one token; got {tokens.shape}."
        )
    if not np.all(np.isfinite(tokens) & (tokens == np.rint(tokens))):
        raise InvalidInput(f"{name} must hold whole numbers; got others.")


def _require_small_counts(name: str, trace: Trace) -> None:
    """Refuse counts whose products G[j, k] x[l], of at most n m^3, float64 could not hold."""
    tokens = (trace.prompt, trace.completion)
    n_tokens = sum(map(len, tokens))
    most = max(int(abs(end)) for part in tokens for end in (part.min(), part.max()))
    if n_tokens * most**3 > EXACT_INTEGER:
        raise InvalidInput(
            f"{name} has {n_tokens} tokens that hold values up to {most} times; learning sums "
            f"products of three such numbers, and {n_tokens} * {most}^3 must not exceed 2^53. Use "
            "traces of smaller counts."
        )


def _require_labels(name: str, labels: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf":
        raise InvalidType(f"{name} must be an array of real numbers; got {_said(labels)}.")
    if labels.shape != shape:
        raise InvalidInput(f"{name} must have the completion's shape {shape}; got {labels.shape}.")
    if not np.all(np.abs(labels) < LARGEST):
        raise InvalidInput(f"{name} must be finite, and below {LARGEST:g} in size; got others.")


def _said(given: Any) -> str:
    kind = type(given).__name__
    return f"{kind} of {given.dtype}" if isinstance(given, np.ndarray) else kind


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)
