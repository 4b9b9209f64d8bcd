"""SequenceBatch: sequences of tokens, one after the other, validated once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_flag
from polyattn.numerics.arrays import (
    any_missing,
    pieces,
    real_array,
    require_finite,
    require_not_infinite,
    rows_between,
)
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.numerics.scaling import column_magnitudes, column_sizes
from polyattn.quoting import counted
from polyattn.sequences.coordinate_names import checked_names
from polyattn.sequences.flattening import flat_array, flat_ids, flat_padded, flat_sequences

MODES = ("last", "causal", "full")

# What to do about NaN among tokens.
IMPUTE = "remove or impute them: pa.SequenceImputer fills missing values"


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
    missing : bool
        Whether NaN, a number that is missing, is let in.  ``has_missing`` says whether there is
        one; such a batch is taken by what looks for missing numbers (``SequenceImputer``), and
        refused by everything that computes.  Infinity is always refused.
    coordinate_names : texts (n_dims,), optional
        What coordinates are called, such as the columns of a table.  Parts of the batch keep
        them; whatever was fitted to named sequences refuses others, and another order.

    Anything that takes sequences takes a SequenceBatch, and builds one from an array
    (n_sequences, n_tokens, n_dims) or a list of arrays (n_i, n_dims).
    """

    values: NDArray
    offsets: NDArray[np.int64]
    has_missing: bool = False
    coordinate_names: tuple[str, ...] | None = None

    def __init__(
        self,
        values: ArrayLike,
        offsets: ArrayLike,
        name: str = "X",
        *,
        missing: bool = False,
        coordinate_names: Sequence[str] | None = None,
    ) -> None:
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
        vars(self)["coordinate_names"] = checked_names(coordinate_names, self.n_dims)
        vars(self)["has_missing"] = self._look(name, require_flag("missing", missing))

    @classmethod
    def from_sequences(
        cls,
        sequences: Sequence[ArrayLike],
        name: str = "X",
        *,
        layout: str = "tokens_first",
        missing: bool = False,
    ) -> Self:
        """From a list of arrays (n_i, n_dims) of any lengths and one number of coordinates.

        layout : "tokens_first", or "channels_first" for arrays (n_channels, n_time)
        """
        return cls(*flat_sequences(sequences, name, layout), name, missing=missing)

    @classmethod
    def from_array(
        cls,
        array: ArrayLike,
        name: str = "X",
        *,
        layout: str = "tokens_first",
        missing: bool = False,
    ) -> Self:
        """From one array (n_sequences, n_tokens, n_dims); a view where the memory allows it.

        layout : "tokens_first", or "channels_first" for (n_sequences, n_channels, n_time), as
            aeon and sktime have it
        """
        return cls(*flat_array(array, name, layout), name, missing=missing)

    @classmethod
    def from_padded(
        cls,
        array: ArrayLike,
        lengths: ArrayLike | None = None,
        name: str = "X",
        *,
        layout: str = "tokens_first",
        missing: bool = False,
    ) -> Self:
        """From an array (n_sequences, n_max, n_dims) of which the first ``lengths[i]`` count.

        What stands behind the length (zeros, NaN) is ignored.  Without ``lengths`` tokens at the
        end that are NaN in every coordinate are padding, as tslearn writes it.
        """
        return cls(*flat_padded(array, lengths, name, layout), name, missing=missing)

    @classmethod
    def from_ids(cls, ids: Any, n_symbols: int, name: str = "ids") -> Self:
        """One-hot tokens from the numbers 0 .. n_symbols - 1 of their symbols.

        ids : integer array (n_sequences, n_tokens), list of integer arrays (n_i,), or a pair (flat
            ids, offsets) where sequence i is ``flat[offsets[i]:offsets[i + 1]]``

        Token t has ``n_symbols`` coordinates, of which number ``ids[t]`` is 1 and all others are 0.
        Only the numbers are kept; whatever takes sequences takes these.
        """
        flat, offsets = flat_ids(ids, name)
        return cls(OneHotTokens.checked(flat, n_symbols, name), offsets, name)

    def named(self, coordinate_names: Sequence[str] | None) -> Self:
        """The same sequences, whose coordinates are called so; a view."""
        made = copy(self)
        vars(made)["coordinate_names"] = checked_names(coordinate_names, self.n_dims)
        return made

    def require_complete(self, name: str = "X") -> None:
        """Refuse missing numbers, saying which sequence, token and coordinate the first is."""
        if self.has_missing:
            require_finite(self.values, name, self.place, IMPUTE)

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
        return self._some(values, self.offsets[first : stop + 1] - start)

    def chosen(self, which: NDArray[np.intp]) -> SequenceBatch:
        """The sequences with these numbers as a batch of their own, a copy."""
        lengths = self.lengths[which]
        ends = np.cumsum(lengths)
        tokens = np.arange(ends[-1]) + np.repeat(self.offsets[which] - (ends - lengths), lengths)
        values = self.values
        some = values.chosen(tokens) if isinstance(values, OneHotTokens) else values[tokens]
        return self._some(some, np.concatenate([[0], ends]))

    def __iter__(self) -> Iterator[NDArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        gaps = ", some missing" if self.has_missing else ""
        return f"SequenceBatch({self.in_words}, {self.values.dtype}{gaps})"

    @property
    def in_words(self) -> str:
        """Its sizes: "300 sequences, 4 tokens of 50 coordinates"; of several lengths "3..9"."""
        least, most = int(self.lengths.min()), int(self.lengths.max())
        tokens = counted(most, "token") if least == most else f"{least:,}..{most:,} tokens"
        return f"{counted(len(self), 'sequence')}, {tokens} of {counted(self.n_dims, 'coordinate')}"

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
        """The largest magnitude of each coordinate, shape (n_dims,); what is missing has none."""
        return _present_sizes(self.values) if self.has_missing else column_sizes(self.values)

    def _look(self, name: str, missing: bool) -> bool:
        """Whether a number is missing; refused unless ``missing``, as infinity always is."""
        if not missing:
            require_finite(self.values, name, self.place, IMPUTE)
            return False
        require_not_infinite(self.values, name, self.place)
        return any_missing(self.values)

    def _some(self, values: Any, offsets: NDArray[np.int64]) -> SequenceBatch:
        """Some of these sequences, which were looked at with all of them."""
        batch = checked_before(values, offsets, self.coordinate_names)
        vars(batch)["has_missing"] = self.has_missing and any_missing(values)
        return batch


class OwnedBatch(SequenceBatch):
    """Sequences in an array that nobody else holds, as readers of files make it.

    The magnitudes of coordinates tell whether all numbers are finite.  Nobody changes these, so
    what one pass found is kept.
    """

    def coordinate_sizes(self) -> NDArray[np.float64]:
        return np.asarray(vars(self)["sizes"])

    def _look(self, name: str, missing: bool) -> bool:
        # Where one number is NaN or infinite, so is the largest of its column.
        with np.errstate(invalid="ignore"):
            sizes = column_sizes(self.values)
        found = not np.isfinite(sizes).all() and super()._look(name, missing)
        vars(self)["sizes"] = _present_sizes(self.values) if found else sizes
        return found


def checked_before(
    values: Any, offsets: NDArray[np.int64], coordinate_names: tuple[str, ...] | None = None
) -> SequenceBatch:
    """A batch of sequences that were looked at before.

    values : an array, or what is read like one when it is sliced (``sources.read_array``)
    """
    batch = object.__new__(SequenceBatch)
    vars(batch).update(values=values, offsets=offsets, coordinate_names=coordinate_names)
    return batch


def _present_sizes(values: NDArray) -> NDArray[np.float64]:
    """The largest magnitude of each column among the numbers that are not missing."""
    present = (np.where(np.isnan(piece), 0, piece) for piece in pieces(values))
    return column_magnitudes(present, values.shape[1])
