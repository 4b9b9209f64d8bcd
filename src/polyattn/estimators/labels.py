"""Labels of any kind to indicator targets and back, one per sequence or one per token."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.numerics.arrays import require_finite, require_unrounded
from polyattn.sequences import MODES

# One array, or for tokens of ragged sequences a list of arrays (n_i,).
Labels: TypeAlias = NDArray | list[NDArray]


def as_labels(y: object, mode: str) -> Labels:
    """Labels as (n_sequences,), or per token as (n_sequences, n_tokens) or a list of (n_i,)."""
    require_choice("mode", mode, MODES)
    if mode != "last" and isinstance(y, list | tuple):
        if not y:
            raise InvalidInput("y is empty: at least one sequence of labels is needed.")
        return [_one_array(item, f"y[{i}]", 1, "(n_tokens,)") for i, item in enumerate(y)]
    n_axes, shape = (1, "(n_sequences,)") if mode == "last" else (2, "(n_sequences, n_tokens)")
    return _one_array(y, "y", n_axes, shape)


def find_classes(labels: Labels) -> NDArray:
    """The sorted distinct labels; at least two are needed."""
    classes = np.unique(_flat(labels))
    if len(classes) < 2:
        raise InvalidInput(
            f"y needs at least two classes to tell apart; got only {classes.tolist()!r}."
        )
    return classes


def check_classes(classes: ArrayLike) -> NDArray:
    """The ``classes`` argument: sorted, distinct, at least two."""
    return find_classes(_one_array(classes, "classes", 1, "(n_classes,)"))


def encode(labels: Labels, classes: NDArray) -> Labels:
    """The position of each label among the classes; -1 where it is none of them."""
    if isinstance(labels, list):
        return [_positions(array, classes) for array in labels]
    return _positions(labels, classes)


def indicators(labels: Labels, classes: NDArray) -> Labels:
    """Targets (..., K): 1 for the own class, else 0; two classes need one column of -1 and 1.

    One column is the difference of the two indicator columns, and least squares is linear in
    its targets: nothing is lost.
    """
    codes = encode(labels, classes)
    unknown = _flat(codes) < 0
    if np.any(unknown):
        some = np.unique(_flat(labels)[unknown])[:5].tolist()
        raise InvalidInput(
            f"y has labels that are not among the classes {classes.tolist()!r}: {some!r}; name "
            "every class in the first call of partial_fit."
        )
    table = np.array([[-1.0], [1.0]]) if len(classes) == 2 else np.eye(len(classes))
    return [table[array] for array in codes] if isinstance(codes, list) else table[codes]


def _positions(labels: NDArray, classes: NDArray) -> NDArray[np.intp]:
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U"):
        raise InvalidType(
            f"labels must be of one kind; the classes are {classes.dtype}, y has {labels.dtype}."
        )
    found = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[found] == labels, found, -1)


def _flat(labels: Labels) -> NDArray:
    return np.concatenate(labels) if isinstance(labels, list) else labels.ravel()


def _one_array(y: object, name: str, n_axes: int, shape: str) -> NDArray:
    try:
        array = np.asarray(y)
    except ValueError:
        raise InvalidInput(
            f"{name} is not rectangular; labels must have shape {shape}. Labels of single tokens "
            "are a list of arrays (n_tokens,) and need mode='causal' or mode='full'."
        ) from None
    if array.dtype.kind in "OT" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "biufU":
        raise InvalidType(
            f"{name} must hold labels that are text, integers or booleans; got dtype {array.dtype}."
        )
    if array.ndim != n_axes:
        raise InvalidInput(
            f"{name} must have shape {shape}, one label per predicted position; got shape "
            f"{array.shape}. Give labels themselves, not indicator columns; one per token needs "
            "mode='causal' or mode='full'."
        )
    if array.dtype.kind == "f":
        require_unrounded(y, array, name)
        require_finite(array, name)
        if np.any(array != np.round(array)):
            raise InvalidInput(
                f"{name} holds fractions, which are not class labels; "
                "LinearAttentionRegressor predicts numbers."
            )
    return array
