"""Labels as arguments: one for each predicted position, or indicator columns of several at once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.estimators.base import on_each
from polyattn.numerics.arrays import require_finite, require_unrounded
from polyattn.quoting import shown
from polyattn.sequences import MODES

# Labels are one array, or for tokens of ragged sequences a list of arrays (n_i,).
Labels: TypeAlias = NDArray | list[NDArray]


def as_labels(y: object, mode: str) -> Labels:
    """Labels as (n_sequences,), or per token as (n_sequences, n_tokens) or a list of (n_i,)."""
    require_choice("mode", mode, MODES)
    if mode != "last" and isinstance(y, list | tuple):
        if not y:
            raise InvalidInput("y is empty: at least one sequence of labels is needed.")
        return [label_array(item, f"y[{i}]", 1, "(n_tokens,)") for i, item in enumerate(y)]
    n_axes, shape = (1, "(n_sequences,)") if mode == "last" else (2, "(n_sequences, n_tokens)")
    return label_array(y, "y", n_axes, shape)


def as_label_sets(y: object, mode: str) -> NDArray[np.int64] | None:
    """Indicator columns (n_sequences, L) of 0 and 1, one for each label; None for other labels.

    Only of whole sequences: in other modes y of two axes has one label for each token.
    """
    if mode != "last" or y is None or isinstance(y, str):
        return None
    try:
        array = np.asarray(y)
    except ValueError:  # rows of different lengths, which is said of labels
        return None
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind not in "biuf":
        return None
    foreign = (array != 0) & (array != 1)
    if np.any(foreign):
        row, column = (int(i) for i in np.argwhere(foreign)[0])
        raise InvalidInput(
            "y of two axes says of each sequence which labels it has, by columns of 0 and 1; got "
            f"{shown(array[row, column].item())} for sequence {row}, label {column}. One label of "
            "several is given as itself, shape (n_sequences,)."
        )
    return array.astype(np.int64)


def find_classes(labels: Labels) -> NDArray:
    """The sorted distinct labels; at least two are needed."""
    classes = np.unique(flat_labels(labels))
    if len(classes) < 2:
        raise InvalidInput(
            f"y needs at least two classes to tell apart; got one class, {classes.tolist()!r}."
        )
    return classes


def classes_of_stream(
    before: tuple[NDArray, bool] | None, classes: object, sets: NDArray | None
) -> NDArray:
    """All classes of a stream, which its first call names; refused where they change.

    before : the classes so far, and whether y had indicator columns; None in the first call
    sets : the indicator columns of this call, if it has any
    """
    named = None
    if classes is not None:
        named = find_classes(label_array(classes, "classes", 1, "(n_classes,)"))
    elif sets is not None:
        named = np.arange(sets.shape[1])
    known = named if before is None else before[0]
    if known is None:
        raise InvalidInput(
            "the first call of partial_fit needs classes=..., all labels that will occur."
        )
    columns = known if sets is None else np.arange(sets.shape[1])
    other_kind = before is not None and before[1] != (sets is not None)
    if other_kind or not np.array_equal(known, columns):
        raise InvalidInput(
            "y must be of one kind in all calls, labels or indicator columns of 0 and 1, and of "
            f"the classes of the first call, {shown(known.tolist())}."
        )
    if named is not None and not np.array_equal(named, known):
        raise InvalidInput(
            f"classes must be those of the first call, {known.tolist()!r}; got {named.tolist()!r}."
        )
    return known


def encode(labels: Labels, classes: NDArray) -> Any:
    """The position of each label among the classes; -1 where it is none of them."""

    def positions(array: NDArray) -> NDArray:
        if (array.dtype.kind == "U") != (classes.dtype.kind == "U"):
            raise InvalidType(
                f"labels must be of one kind; the classes are {classes.dtype}, y has {array.dtype}."
            )
        found = np.minimum(np.searchsorted(classes, array), len(classes) - 1)
        return np.where(classes[found] == array, found, -1)

    return on_each(positions, labels)


def indicators(labels: Labels, classes: NDArray) -> Any:
    """Targets (..., K): 1 for the own class, else 0; for two classes (...), -1 and 1.

    Least squares is linear in its targets: the difference of two indicators loses nothing.
    """
    codes = encode(labels, classes)
    unknown = flat_labels(codes) < 0
    if np.any(unknown):
        some = np.unique(flat_labels(labels)[unknown])[:5].tolist()
        raise InvalidInput(
            f"y has labels that are not among the classes {classes.tolist()!r}: {some!r}; name "
            "every class in the first call of partial_fit."
        )
    table = np.array([-1.0, 1.0]) if len(classes) == 2 else np.eye(len(classes))
    return on_each(lambda positions: table[positions], codes)


def winners(outputs: NDArray) -> NDArray[np.intp]:
    """The position of the winning class, from outputs (..., K) or (..., 1)."""
    if outputs.shape[-1] == 1:
        return (outputs[..., 0] > 0).astype(np.intp)
    return np.argmax(outputs, axis=-1)


def flat_labels(labels: Labels) -> NDArray:
    """All labels one after the other."""
    return np.concatenate(labels) if isinstance(labels, list) else labels.ravel()


def label_array(y: object, name: str, n_axes: int, shape: str) -> NDArray:
    """Labels of one kind as an array of so many axes; ``name`` and ``shape`` are for messages."""
    try:
        array = np.asarray(y)
    except ValueError:
        raise InvalidInput(
            f"{name} is not rectangular; labels must have shape {shape}. Labels of single tokens "
            "are a list of arrays (n_tokens,) and need mode='causal' or mode='full'."
        ) from None
    _refuse_missing(y, array, name)
    if array.dtype.kind in "OT" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "biufU":
        raise InvalidType(
            f"Unknown label type: {name} must hold labels that are text, integers or booleans; got "
            f"dtype {array.dtype}. Integers beyond 64 bits can be given as text."
        )
    if array.ndim == n_axes + 1 and array.shape[-1] == 1:
        cure = f"np.ravel({name})" if n_axes == 1 else f"np.asarray({name})[..., 0]"
        raise InvalidInput(
            f"{name} has one column, shape {array.shape}: give {cure}, shape {shape}."
        )
    if array.ndim != n_axes:
        raise InvalidInput(
            f"{name} must have shape {shape}, one label per predicted position; got shape "
            f"{array.shape}. Give labels themselves, not indicator columns, which only "
            "mode='last' takes (two or more of them); one per token needs mode='causal' or "
            "mode='full'."
        )
    if array.dtype.kind == "f":
        require_unrounded(y, array, name)
        require_finite(array, name)
        if np.any(array != np.round(array)):
            raise InvalidInput(
                f"{name} holds fractions, which are not class labels; LinearAttentionRegressor "
                "predicts continuous numbers."
            )
    return array


def _refuse_missing(y: object, array: NDArray, name: str) -> None:
    """Refuse text beside None or NaN, of which numpy would make the texts "None" and "nan"."""
    if array.dtype.kind not in "OTU" or (array.dtype.kind == "U" and isinstance(y, np.ndarray)):
        return
    items = np.asarray(y, dtype=object)
    missing = [index for index, item in np.ndenumerate(items) if _is_missing(item)]
    if missing:
        first = ", ".join(str(i) for i in missing[0])
        others = f", and {len(missing) - 1} others are" if len(missing) > 1 else ""
        raise InvalidInput(
            f"{name}[{first}] is missing (got {items[missing[0]]!r}){others}; every predicted "
            "position needs a label. Leave such sequences out, or give them a label of their own."
        )


def _is_missing(item: object) -> bool:
    """None, NaN, and what pandas writes for them."""
    is_nan = isinstance(item, float | np.floating) and bool(np.isnan(item))
    return item is None or is_nan or type(item).__name__ in ("NAType", "NaTType")
