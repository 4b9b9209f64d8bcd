"""Sequences in: one validated container for equal-length, ragged and padded data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.arrays import real_array, require_finite, require_float64, rows_between
from polyattn.numerics.one_hot_tokens import OneHotTokens, as_ids
from polyattn.numerics.scaling import column_sizes
from polyattn.quoting import counted

MODES = ("last", "causal", "full")


@dataclass(frozen=True, eq=False, init=False)
class SequenceBatch:
    """Sequences of tokens, one after the other: sequence i is ``values[offsets[i]:offsets[i+1]]``.

    Parameters
    ----------
    values : array (n_tokens_total, n_dims)
        Any real dtype, any memory order, memory maps included; kept as it is, never written to.
        Blocks are converted to float64 as they are used; integers that float64 cannot hold are
        kept for ``certify`` and ``verify``, and refused by everything else.  ``OneHotTokens`` are
        never made dense as a whole.
    offsets : integer array (n_sequences + 1,)
        Starts at 0, increases strictly (no empty sequences), ends at ``len(values)``.
    name : str
        What messages call these sequences, such as "X" or "context"; it is not kept.

    Anything that takes sequences takes a SequenceBatch, and builds one from an array
    (n_sequences, n_tokens, n_dims) or a list of arrays (n_i, n_dims).
    """

    values: NDArray
    offsets: NDArray[np.int64]

    def __init__(self, values: ArrayLike, offsets: ArrayLike, name: str = "X") -> None:
        if isinstance(values, OneHotTokens):
            array: Any = values
        else:
            array = real_array(values, "values", keep_integers=True)
        if array.ndim != 2:
            raise InvalidInput(
                f"values must have shape (n_tokens_total, n_dims); got shape {array.shape}."
            )
        if array.shape[1] == 0:
            raise InvalidInput(
                f"the tokens of {name} need at least one coordinate; got n_dims = 0."
            )
        borders = np.asarray(offsets)
        if borders.ndim != 1 or len(borders) < 2 or borders.dtype.kind not in "iu":
            raise InvalidInput(
                "offsets must be a one-dimensional integer array of n_sequences + 1 entries; "
                f"got {borders.dtype} of shape {borders.shape}."
            )
        borders = borders.astype(np.int64)
        if borders[0] != 0 or borders[-1] != len(array):
            raise InvalidInput(
                f"offsets must run from 0 to {len(array)}, the number of tokens; "
                f"got {borders[0]} to {borders[-1]}."
            )
        lengths = np.diff(borders)
        if np.any(lengths < 1):
            i = int(np.argmax(lengths < 1))
            raise InvalidInput(
                f"sequence {i} of {name} has {lengths[i]} tokens; every sequence needs at least "
                "one."
            )
        borders.setflags(write=False)
        vars(self).update(values=array, offsets=borders)
        self._require_finite(name)

    @classmethod
    def from_sequences(cls, sequences: Sequence[ArrayLike], name: str = "X") -> SequenceBatch:
        """From a list of arrays (n_i, n_dims) of any lengths and one number of coordinates."""
        if len(sequences) == 0:
            raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
        arrays = [real_array(item, f"{name}[{i}]", True) for i, item in enumerate(sequences)]
        for i, array in enumerate(arrays):
            if array.ndim != 2:
                hint = f" One sequence is [{name}]." if array.ndim == 1 else ""
                raise InvalidInput(
                    f"{name}[{i}] must have shape (n_tokens, n_dims); got shape "
                    f"{array.shape}.{hint}"
                )
            if array.shape[1] != arrays[0].shape[1]:
                raise InvalidInput(
                    f"all sequences need the same number of coordinates: {name}[0] has "
                    f"{arrays[0].shape[1]}, {name}[{i}] has {array.shape[1]}."
                )
        offsets = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
        if np.result_type(*{array.dtype for array in arrays}).kind == "f":
            for i, array in enumerate(arrays):
                require_float64(array, f"{name}[{i}], beside sequences of another dtype,")
        return cls(np.concatenate(arrays), offsets, name)

    @classmethod
    def from_array(cls, array: ArrayLike, name: str = "X") -> SequenceBatch:
        """From one array (n_sequences, n_tokens, n_dims); a view where the memory allows it."""
        data = real_array(array, name, keep_integers=True)
        if data.ndim != 3:
            hint = (
                f" One sequence is {name}[None]; sequences of one token each are "
                f"{name}[:, None, :]."
            )
            raise InvalidInput(
                f"{name} must have shape (n_sequences, n_tokens, n_dims) or be a list of arrays "
                f"(n_tokens, n_dims); got shape {data.shape}.{hint if data.ndim == 2 else ''}"
            )
        n_sequences, n_tokens, n_dims = data.shape
        if n_sequences == 0:
            raise InvalidInput(f"{name} is empty: at least one sequence is needed.")
        if n_tokens == 0:
            raise InvalidInput(f"{name} has sequences of zero tokens; each needs at least one.")
        offsets = np.arange(n_sequences + 1, dtype=np.int64) * n_tokens
        return cls(data.reshape(n_sequences * n_tokens, n_dims), offsets, name)

    @classmethod
    def from_padded(cls, array: ArrayLike, lengths: ArrayLike, name: str = "X") -> SequenceBatch:
        """From an array (n_sequences, n_max, n_dims) of which the first ``lengths[i]`` count.

        What stands behind the length (zeros, NaN) is ignored.
        """
        data = real_array(array, name, keep_integers=True)
        sizes = np.asarray(lengths)
        if data.ndim != 3:
            raise InvalidInput(
                f"padded {name} must have shape (n_sequences, n_max, n_dims); "
                f"got shape {data.shape}."
            )
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
        return cls(data[inside], np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), name)

    @classmethod
    def from_ids(cls, ids: Any, n_symbols: int, name: str = "ids") -> SequenceBatch:
        """One-hot tokens from the numbers 0 .. n_symbols - 1 of their symbols.

        ids : integer array (n_sequences, n_tokens), list of integer arrays (n_i,), or a pair (flat
            ids, offsets) where sequence i is ``flat[offsets[i]:offsets[i + 1]]``

        Token t has ``n_symbols`` coordinates, of which number ``ids[t]`` is 1 and all others are 0.
        Only the numbers are kept; whatever takes sequences takes these.
        """
        flat, offsets = _flat_ids(ids, name)
        return cls(OneHotTokens.checked(flat, n_symbols, name), offsets, name)

    def place(self, index: tuple[int, ...]) -> str:
        """Where an entry of ``values`` (or of targets beside them) stands, in words, from 0."""
        token, *coordinate = index
        i = int(np.searchsorted(self.offsets, token, side="right")) - 1
        words = f"sequence {i}, token {token - int(self.offsets[i])}"
        return f"{words}, coordinate {coordinate[0]}" if coordinate else words

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> NDArray: ...
    @overload
    def __getitem__(self, index: slice) -> SequenceBatch: ...

    def __getitem__(self, index: SupportsIndex | slice) -> NDArray | SequenceBatch:
        """Sequence ``index`` as an array (n_i, n_dims), or a slice as a batch; both are views."""
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            if chosen.step != 1 or not chosen:
                raise InvalidInput(
                    "a slice of sequences takes at least one, in order and without gaps; "
                    f"got {index} of {len(self)}. Others are chosen by [batch[i] for i in ...]."
                )
            return self.part(chosen.start, chosen.stop)
        if not isinstance(index, SupportsIndex):
            raise InvalidType(f"sequences are numbered by integers or sliced; got {index!r}.")
        i = range(len(self))[index]
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def part(self, first: int, stop: int) -> SequenceBatch:
        """Sequences first..stop as a batch of their own, a view."""
        start, end = int(self.offsets[first]), int(self.offsets[stop])
        values = rows_between(self.values, start, end)
        return checked_before(values, self.offsets[first : stop + 1] - start)

    def chosen(self, which: NDArray[np.intp]) -> SequenceBatch:
        """The sequences with these numbers as a batch of their own, a copy."""
        lengths = self.lengths[which]
        ends = np.cumsum(lengths)
        tokens = np.arange(ends[-1]) + np.repeat(self.offsets[which] - (ends - lengths), lengths)
        values = self.values
        some = values.chosen(tokens) if isinstance(values, OneHotTokens) else values[tokens]
        return checked_before(some, np.concatenate([[0], ends]))

    def __iter__(self) -> Iterator[NDArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        length = (
            counted(self.common_length, "token")
            if self.common_length is not None
            else f"{self.lengths.min()}..{self.lengths.max()} tokens"
        )
        return (
            f"SequenceBatch({counted(len(self), 'sequence')} of {length}, "
            f"{counted(self.n_dims, 'coordinate')}, {self.values.dtype})"
        )

    @property
    def n_dims(self) -> int:
        """Coordinates per token."""
        return self.values.shape[1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per sequence, shape (n_sequences,)."""
        return np.diff(self.offsets)

    @property
    def common_length(self) -> int | None:
        """The number of tokens when all sequences have the same one, otherwise None."""
        lengths = self.lengths
        return int(lengths[0]) if np.all(lengths == lengths[0]) else None

    def n_rows(self, mode: str) -> int:
        """How many positions are predicted: one per sequence (last) or one per token."""
        return len(self) if mode == "last" else len(self.values)

    def coordinate_sizes(self) -> NDArray[np.float64]:
        """The largest magnitude of each coordinate, shape (n_dims,)."""
        return column_sizes(self.values)

    def _require_finite(self, name: str) -> None:
        require_finite(self.values, name, self.place)


class OwnedBatch(SequenceBatch):
    """Sequences in an array that nobody else holds, as readers of files make it.

    The magnitudes of coordinates tell whether all numbers are finite.  Nobody changes these, so
    what one pass found is kept.
    """

    def coordinate_sizes(self) -> NDArray[np.float64]:
        return np.asarray(vars(self)["sizes"])

    def _require_finite(self, name: str) -> None:
        # Where one number is NaN or infinite, so is the largest of its column.
        with np.errstate(invalid="ignore"):
            sizes = column_sizes(self.values)
        if not np.isfinite(sizes).all():
            super()._require_finite(name)
        vars(self)["sizes"] = sizes


# Nested lists of numbers are an ArrayLike already; a list of arrays is not.
Sequences: TypeAlias = SequenceBatch | ArrayLike | Sequence[NDArray]


def as_batch(
    X: Sequences, name: str = "X", n_dims: int | None = None, keep_integers: bool = False
) -> SequenceBatch:
    """Whatever was given as sequences becomes a validated SequenceBatch.

    ``n_dims`` is the required number of coordinates, when a layer or statistics already fix it.
    Integers that float64 cannot hold are refused, unless the caller computes with them as they
    are (``keep_integers``).
    """
    if isinstance(X, SequenceBatch):
        batch = X
    elif isinstance(X, Sequence) and not isinstance(X, str | bytes):
        batch = SequenceBatch.from_sequences(X, name)
    else:
        batch = SequenceBatch.from_array(X, name)
    if n_dims is not None and batch.n_dims != n_dims:
        wanted = counted(n_dims, "coordinate")
        raise InvalidInput(f"{name} must have tokens of {wanted}; got {batch.n_dims}.")
    if not keep_integers:
        require_float64(batch.values, name)
    return batch


def _flat_ids(ids: Any, name: str) -> tuple[ArrayLike, ArrayLike]:
    """Numbers of symbols one after the other, and where sequences begin and end."""
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
    return flat, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def checked_before(values: Any, offsets: NDArray[np.int64]) -> SequenceBatch:
    """A batch of sequences that were looked at before.

    values : an array, or what is read like one when it is sliced (``sources.read_array``)
    """
    batch = object.__new__(SequenceBatch)
    vars(batch).update(values=values, offsets=offsets)
    return batch
