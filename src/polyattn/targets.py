"""Targets and weights in: aligned with the predicted positions, validated once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.numerics.tensors import without_tensors
from polyattn.quoting import counted
from polyattn.sequences import SequenceBatch

Targets: TypeAlias = SequenceBatch | ArrayLike | Sequence[ArrayLike]


def as_targets(
    Y: Targets, batch: SequenceBatch, mode: str, n_outputs: int | None = None
) -> NDArray:
    """Targets as an array (n_rows, n_outputs), one row per predicted position.

    ``last``: (n_sequences, n_outputs) or (n_sequences,).
    ``causal`` and ``full``: (n_sequences, n_tokens, n_outputs) or (n_sequences, n_tokens), or a
    list of arrays (n_i, n_outputs) or (n_i,), or a SequenceBatch of the same lengths.
    """
    rows = _last_targets(Y, batch) if mode == "last" else _token_targets(Y, batch)
    require_outputs(rows, n_outputs)

    def place(index: tuple[int, ...]) -> str:
        row, output = index
        position = f"sequence {row}" if mode == "last" else batch.place((row,))
        return f"{position}, output {output}"

    require_finite(rows, "Y", place)
    return rows


def require_outputs(rows: NDArray, n_outputs: int | None = None) -> None:
    """Refuse targets (n_rows, e) without outputs, or with others than are wanted."""
    if rows.shape[1] == 0:
        raise InvalidInput("Y has zero outputs; at least one target coordinate is needed.")
    if n_outputs is not None and rows.shape[1] != n_outputs:
        raise InvalidInput(f"Y must have {counted(n_outputs, 'output')}; got {rows.shape[1]}.")


def as_weights(sample_weight: ArrayLike | None, batch: SequenceBatch) -> NDArray | None:
    """Weights as float64 (n_sequences,), one per sequence; None means that all count once."""
    if sample_weight is None:
        return None
    weights = real_array(sample_weight, "sample_weight").astype(np.float64)
    if weights.shape != (len(batch),):
        raise InvalidInput(
            f"sample_weight must hold one weight per sequence, shape ({len(batch)},); "
            f"got shape {weights.shape}."
        )
    require_finite(weights, "sample_weight", "sequence {0[0]}".format)
    if weights.max() > np.finfo(np.float64).max / len(batch.values):
        raise InvalidInput(
            f"the sum of sample_weight over all positions does not fit float64; the largest is "
            f"{weights.max():g}. Divide the weights by a constant."
        )
    if np.any(weights < 0):
        raise InvalidInput(
            f"sample_weight must not be negative; got {weights.min():g} as the smallest."
        )
    return weights


def _last_targets(Y: Targets, batch: SequenceBatch) -> NDArray:
    if isinstance(Y, list | tuple) and not _is_rectangular(Y):
        raise InvalidInput(
            f"in mode 'last' Y must have shape ({len(batch)}, n_outputs), one target per sequence; "
            "got a list of arrays of different lengths. One target per token needs mode='causal' "
            "or mode='full'."
        )
    array = real_array(Y.values if isinstance(Y, SequenceBatch) else Y, "Y")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InvalidInput(
            f"in mode 'last' Y must have shape ({len(batch)}, n_outputs), one target per "
            f"sequence; got shape {array.shape}. One target per token needs mode='causal' "
            "or mode='full'."
        )
    if len(array) != len(batch):
        raise InvalidInput(
            f"X has {counted(len(batch), 'sequence')} but Y has {counted(len(array), 'target')}; "
            "in mode 'last' there is one target per sequence."
        )
    return array


def _is_rectangular(Y: Sequence[ArrayLike]) -> bool:
    try:
        np.asarray(without_tensors(Y, "Y"))
    except ValueError:
        return False
    return True


def _token_targets(Y: Targets, batch: SequenceBatch) -> NDArray:
    if isinstance(Y, SequenceBatch):
        _require_lengths(Y.lengths, batch)
        return real_array(Y.values, "Y")
    if isinstance(Y, list | tuple):
        arrays = [real_array(item, f"Y[{i}]") for i, item in enumerate(Y)]
        arrays = [array[:, None] if array.ndim == 1 else array for array in arrays]
        for i, array in enumerate(arrays):
            if array.ndim != 2 or array.shape[1] != arrays[0].shape[-1]:
                raise InvalidInput(
                    f"Y[{i}] must have shape (n_tokens, n_outputs) with one n_outputs for all; "
                    f"got shape {array.shape}."
                )
        _require_lengths(np.array([len(array) for array in arrays]), batch)
        return np.concatenate(arrays)
    array = real_array(Y, "Y")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        raise InvalidInput(
            "in modes 'causal' and 'full' Y must have shape (n_sequences, n_tokens, n_outputs), "
            f"one target per token; got shape {array.shape}. One target per sequence needs "
            "mode='last'."
        )
    _require_lengths(np.full(len(array), array.shape[1]), batch)
    return array.reshape(-1, array.shape[2])


def _require_lengths(lengths: NDArray, batch: SequenceBatch) -> None:
    if len(lengths) != len(batch):
        raise InvalidInput(f"X has {counted(len(batch), 'sequence')} but Y has {len(lengths)}.")
    different = lengths != batch.lengths
    if np.any(different):
        i = int(np.argmax(different))
        raise InvalidInput(
            f"sequence {i} has {counted(batch.lengths[i], 'token')} in X but "
            f"{counted(lengths[i], 'target')} in Y; modes 'causal' and 'full' need one target per "
            "token."
        )
