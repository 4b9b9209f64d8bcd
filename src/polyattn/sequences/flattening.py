"""Sequences in the forms that people have, as one array of all tokens and where each begins.

Each function returns (values, offsets): sequence i is ``values[offsets[i]:offsets[i + 1]]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.numerics.arrays import real_array, require_float64
from polyattn.numerics.one_hot_tokens import as_ids
from polyattn.quoting import shown

# What the last two axes of sequences are, by the name of the layout.
LAYOUTS = {"tokens_first": "n_tokens, n_dims", "channels_first": "n_channels, n_time"}


def tokens_first(array: NDArray, layout: str, name: str, n_axes: int) -> NDArray:
    """Sequences of some layout with their tokens as rows, a view; others have other axes.

    n_axes : 3 for an array of sequences, 2 for one sequence
    """
    axes = LAYOUTS[require_choice("layout", layout, tuple(LAYOUTS))]
    if array.ndim != n_axes:
        raise InvalidInput(_wanted_shape(name, axes, n_axes, array.shape))
    return array.swapaxes(-1, -2) if layout == "channels_first" else array


def _wanted_shape(name: str, axes: str, n_axes: int, shape: tuple[int, ...]) -> str:
    """What to do about sequences of another shape."""
    if n_axes == 2:
        hint = f" One sequence is [{name.partition('[')[0]}]." if len(shape) == 1 else ""
        return f"{name} must have shape ({axes}); got shape {shape}.{hint}"
    hint = ""
    if len(shape) == 2:
        hint = f" One sequence is {name}[None]; "
        hint += (
            f"sequences of one token each are {name}[:, None, :]."
            if axes == LAYOUTS["tokens_first"]
            else f"sequences of one channel each are {name}[:, None, :]."
        )
    return (
        f"{name} must have shape (n_sequences, {axes}) or be a list of arrays ({axes}); got shape "
        f"{shape}.{hint}"
    )


def flat_sequences(
    sequences: Sequence[ArrayLike] | NDArray, name: str, layout: str = "tokens_first"
) -> tuple[NDArray, NDArray[np.int64]]:
    """From a list (or array of objects) of arrays (n_i, n_dims)."""
    if not hasattr(sequences, "__len__"):
        raise InvalidType(f"{name} must be a list of sequences; got {shown(sequences)}.")
    if len(sequences) == 0:
        raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
    arrays = []
    for i, item in enumerate(sequences):
        each = f"{name}[{i}]"
        arrays.append(tokens_first(real_array(item, each, True), layout, each, 2))
    for i, array in enumerate(arrays):
        if array.shape[1] != arrays[0].shape[1]:
            raise InvalidInput(
                f"all sequences need the same number of coordinates: {name}[0] has "
                f"{arrays[0].shape[1]}, {name}[{i}] has {array.shape[1]}."
            )
    if np.result_type(*{array.dtype for array in arrays}).kind == "f":
        for i, array in enumerate(arrays):
            require_float64(array, f"{name}[{i}], beside sequences of another dtype,")
    return np.concatenate(arrays), _offsets([len(array) for array in arrays])


def flat_array(
    array: ArrayLike, name: str, layout: str = "tokens_first"
) -> tuple[NDArray, NDArray[np.int64]]:
    """From one array (n_sequences, n_tokens, n_dims); a view where the memory allows it."""
    data = tokens_first(real_array(array, name, keep_integers=True), layout, name, 3)
    n_sequences, n_tokens, n_dims = data.shape
    if n_sequences == 0:
        raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
    if n_tokens == 0:
        raise InvalidInput(f"{name} has sequences of zero tokens; each needs at least one.")
    offsets = np.arange(n_sequences + 1, dtype=np.int64) * n_tokens
    return data.reshape(n_sequences * n_tokens, n_dims), offsets


def flat_padded(
    array: ArrayLike, lengths: ArrayLike | None, name: str, layout: str = "tokens_first"
) -> tuple[NDArray, NDArray[np.int64]]:
    """From an array (n_sequences, n_max, n_dims) of which the first ``lengths[i]`` count.

    Without lengths, tokens at the end whose coordinates are all NaN do not count.
    """
    data = real_array(array, name, keep_integers=True)
    data = tokens_first(data, layout, f"padded {name}", 3)
    sizes = _lengths_before_nan(data, name) if lengths is None else np.asarray(lengths)
    if sizes.shape != (len(data),) or sizes.dtype.kind not in "iu":
        raise InvalidInput(
            f"lengths must be {len(data)} integers, one per sequence; "
            f"got {sizes.dtype} of shape {sizes.shape}."
        )
    if len(data) == 0:
        raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
    if sizes.min() < 1 or sizes.max() > data.shape[1]:
        raise InvalidInput(
            f"lengths must lie between 1 and {data.shape[1]}, the padded length; "
            f"got values from {sizes.min()} to {sizes.max()}."
        )
    inside = np.arange(data.shape[1])[None, :] < sizes[:, None]
    return data[inside], _offsets(sizes)


def flat_ids(ids: Any, name: str) -> tuple[ArrayLike, ArrayLike]:
    """From numbers of symbols (n_sequences, n_tokens), a list of them, or (flat ids, offsets)."""
    if isinstance(ids, tuple):
        if len(ids) != 2:
            raise InvalidInput(
                f"a tuple of {name} is (flat ids, offsets); got {len(ids)} entries. Give several "
                "sequences as a list."
            )
        return ids
    if isinstance(ids, list):
        arrays = [as_ids(each, f"{name}[{i}]") for i, each in enumerate(ids)]
        for i, array in enumerate(arrays):
            if array.ndim != 1:
                raise InvalidInput(
                    f"{name}[{i}] must have shape (n_tokens,); got shape {array.shape}."
                )
        lengths = [len(array) for array in arrays]
        # As one type: numpy would make floats of signed and unsigned ones.
        flat = np.concatenate([np.empty(0, np.int64), *(each.astype(np.int64) for each in arrays)])
    else:
        array = as_ids(ids, name)
        if array.ndim != 2:
            raise InvalidInput(
                f"{name} must have shape (n_sequences, n_tokens) or be a list of arrays "
                f"(n_tokens,); got shape {array.shape}."
            )
        lengths, flat = [array.shape[1]] * len(array), array.reshape(-1)
    if not lengths:
        raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
    return flat, _offsets(lengths)


def _lengths_before_nan(data: NDArray, name: str) -> NDArray[np.int64]:
    """Tokens of each sequence up to the last one that is not NaN throughout."""
    if data.dtype.kind != "f" or not data.size:
        return np.full(len(data), data.shape[1])
    there = ~np.isnan(data).all(axis=2)
    if not there.any(axis=1).all():
        i = int(np.argmin(there.any(axis=1)))
        raise InvalidInput(
            f"sequence {i} of padded {name} is NaN throughout; every sequence needs at least one "
            "token. Leave it out."
        )
    return data.shape[1] - np.argmax(there[:, ::-1], axis=1)


def _offsets(lengths: ArrayLike) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
