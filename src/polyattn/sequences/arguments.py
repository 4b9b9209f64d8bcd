"""Sequences as arguments: whatever was given becomes a batch, or is refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.numerics.arrays import real_array, require_float64
from polyattn.quoting import counted
from polyattn.sequences.batch import SequenceBatch
from polyattn.sequences.flattening import LAYOUTS, tokens_first
from polyattn.sequences.frame_columns import is_indexed, is_pandas
from polyattn.sequences.long_rows import indexed_batch

# Nested lists of numbers are an ArrayLike already; a list of arrays is not.
Sequences: TypeAlias = SequenceBatch | ArrayLike | Sequence[NDArray]


def as_batch(
    X: Sequences,
    name: str = "X",
    n_dims: int | None = None,
    keep_integers: bool = False,
    missing: bool = False,
) -> SequenceBatch:
    """Whatever was given as sequences becomes a validated SequenceBatch.

    ``n_dims`` is the required number of coordinates, when a layer or statistics already fix it.
    Integers that float64 cannot hold are refused, unless the caller computes with them as they
    are (``keep_integers``); so is NaN, unless the caller looks for it (``missing``).
    """
    if isinstance(X, SequenceBatch):
        batch = X
        if not missing:
            batch.require_complete(name)
    elif is_list(X):
        batch = SequenceBatch.from_sequences(X, name, missing=missing)
    elif is_indexed(X):
        batch = indexed_batch(X, name, missing)
    else:
        refuse_frame(X, name)
        batch = SequenceBatch.from_array(X, name, missing=missing)
    if n_dims is not None and batch.n_dims != n_dims:
        wanted = counted(n_dims, "coordinate")
        raise InvalidInput(f"{name} must have tokens of {wanted}; got {batch.n_dims}.")
    if not keep_integers:
        require_float64(batch.values, name)
    return batch


def is_list(X: object) -> TypeGuard[Sequence[NDArray]]:
    """Whether sequences were given one by one: in a list, in an array or series of objects."""
    if isinstance(X, np.ndarray) or type(X).__name__ == "Series":
        return str(getattr(X, "dtype", "")) == "object" and getattr(X, "ndim", 1) == 1
    return isinstance(X, Sequence) and not isinstance(X, str | bytes)


def refuse_frame(X: object, name: str) -> None:
    """Refuse a table, and what holds X beside Y, and say what to do."""
    if isinstance(getattr(X, "X", None), SequenceBatch | np.ndarray):
        raise InvalidType(
            f"{name} must be sequences of tokens; got a {type(X).__name__}, which holds them and "
            "their targets: give its .X and .Y."
        )
    if is_frame(X):
        kind = f"{type(X).__module__.partition('.')[0]} {type(X).__name__}"
        raise InvalidType(
            f"{name} must be sequences of tokens; got a table ({kind}), whose rows are tokens of "
            "several sequences: pa.from_long(frame, sequence=..., order=..., tokens=[...]) makes "
            "sequences of it."
        )


def is_frame(X: object) -> bool:
    """Whether it is a table in memory: of pandas, of polars, of Arrow, a DuckDB relation."""
    if is_pandas(X) or hasattr(X, "__arrow_c_stream__"):
        return True
    return type(X).__name__ == "LazyFrame" and type(X).__module__.partition(".")[0] == "polars"


def in_layout(X: Any, layout: str, name: str = "X") -> Any:
    """Sequences of this layout as an array or list whose tokens come first; a batch as it is."""
    require_choice("layout", layout, tuple(LAYOUTS))
    if layout == "tokens_first" or X is None or isinstance(X, SequenceBatch) or is_indexed(X):
        return X
    refuse_frame(X, name)
    if not is_list(X):
        return tokens_first(real_array(X, name, True), layout, name, 3)
    each = [(item, f"{name}[{i}]") for i, item in enumerate(X)]
    return [
        tokens_first(real_array(item, called, True), layout, called, 2) for item, called in each
    ]
