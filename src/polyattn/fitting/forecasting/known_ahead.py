"""Which coordinates of a token are predicted, and what is known ahead of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.form.token_maps import as_token_map, coordinates_of
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.quoting import counted, shown


def predicted_coordinates(given: Any, n_dims: int, n_outputs: int) -> NDArray[np.intp]:
    """The coordinates (e,) that the outputs are; the first ones unless given."""
    if given is None:
        return np.arange(n_outputs)
    chosen = coordinates_of(as_token_map(given, "predicted"), n_dims, "predicted")
    if chosen is None or len(chosen) != n_outputs:
        raise InvalidInput(
            f"predicted must name {counted(n_outputs, 'coordinate')}, one for each output of the "
            f"layer; got {shown(given)}."
        )
    return np.array(chosen, dtype=np.intp)


def known_ahead(future: Any, n_sequences: int, steps: int, n_others: int) -> NDArray[np.float64]:
    """The coordinates that are known ahead, (N, steps, others)."""
    if future is None:
        return np.zeros((n_sequences, steps, n_others))
    if n_others == 0:
        raise InvalidInput(
            "future holds coordinates that the layer does not predict, but it predicts all of "
            "them; leave it out."
        )
    array = real_array(future, "future")
    wanted = (n_sequences, steps, n_others)
    if array.shape == wanted[1:]:
        array = np.broadcast_to(array, wanted)
    if array.shape != wanted:
        raise InvalidInput(
            f"future must have shape {wanted} or {wanted[1:]}: for each of {steps} steps the "
            f"{counted(n_others, 'coordinate')} that the layer does not predict; got shape "
            f"{array.shape}."
        )
    require_finite(array, "future")
    return array.astype(np.float64)
