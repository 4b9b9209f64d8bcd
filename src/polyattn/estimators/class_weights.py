"""class_weight: how much each class counts, as in scikit-learn, times the weights of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown

Array = NDArray[np.float64]


def require_class_weight(class_weight: Any, mode: str, several: bool) -> None:
    """Refuse what is no class_weight, and one where weights of sequences cannot express it."""
    if class_weight is None:
        return
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    if not (balanced or isinstance(class_weight, Mapping)):
        raise InvalidInput(
            "class_weight must be None, 'balanced' or a dict of labels and weights; got "
            f"{shown(class_weight)}."
        )
    if several:
        raise InvalidInput(
            "class_weight is about one label for each sequence; with indicator columns weigh "
            "sequences by sample_weight."
        )
    if mode != "last":
        raise InvalidInput(
            "class_weight weighs whole sequences by their label, and needs mode='last'; got "
            f"mode={mode!r}, where tokens of one sequence have several. Leave it None."
        )


def refuse_balanced_stream(class_weight: Any) -> None:
    """Refuse weights that take all labels, for sums over parts of the data."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise InvalidInput(
            "class_weight='balanced' counts the labels of all data, which partial_fit does not "
            "have; give a dict of weights, or call fit."
        )


def refuse_for_source(class_weight: Any) -> None:
    """Refuse weights of classes beside those that a source has."""
    if class_weight is not None:
        raise InvalidInput(
            "class_weight weighs sequences in memory; a source has weights of its own, which are "
            "given when it is made. Leave class_weight None."
        )


def class_weights(
    class_weight: Any, codes: NDArray[np.intp], classes: NDArray, weights: Array | None
) -> Array:
    """The weight of each class (K,).

    ``"balanced"``: all / (K times its own), where both are sums of the weights of sequences.
    A dict: its weights, and 1 for classes that it does not name.
    codes : (N,), the class of each sequence
    """
    if isinstance(class_weight, Mapping):
        return _named_weights(class_weight, classes)
    own = np.bincount(codes, weights=weights, minlength=len(classes))
    if not own.sum() > 0:
        return np.ones(len(classes))
    # A class whose sequences all have weight zero says nothing, whatever its own weight.
    shares = own / own.sum()
    return np.where(own > 0, 1.0 / (len(classes) * np.where(own > 0, shares, 1.0)), 1.0)


def _named_weights(class_weight: Mapping[Any, Any], classes: NDArray) -> Array:
    given = {_plain(label): weight for label, weight in class_weight.items()}
    known = classes.tolist()
    for label, weight in given.items():
        if not isinstance(weight, Real) or isinstance(weight, bool):
            raise InvalidType(f"class_weight[{label!r}] must be a number; got {shown(weight)}.")
        if not 0.0 <= float(weight) < np.inf:
            raise InvalidInput(
                f"class_weight[{label!r}] must be finite and not negative; got {shown(weight)}."
            )
    unknown = [label for label in given if label not in known]
    # Of some sequences a class may be absent; then all others are named, or a name is wrong.
    if unknown and any(label not in given for label in known):
        raise InvalidInput(
            f"class_weight names {shown(unknown)}, which are no classes of y: these are "
            f"{shown(known, 200)}."
        )
    return np.array([float(given.get(label, 1.0)) for label in known])


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
