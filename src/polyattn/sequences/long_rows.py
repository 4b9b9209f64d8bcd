"""Rows of a table in long format, one per token and in any order, put together to sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.quoting import counted, shown
from polyattn.sequences.batch import IMPUTE, SequenceBatch
from polyattn.sequences.coordinate_names import column_texts
from polyattn.sequences.frame_columns import (
    FrameColumn,
    index_column,
    is_indexed,
    number_matrix,
    series_column,
)


@dataclass(frozen=True, eq=False)
class LongRows:
    """Rows in the order of their sequences: sequence i owns rows[borders[i]:borders[i + 1]].

    ids : what each sequence is called (n_sequences,), sorted
    rows : where each token stands in the table (n_tokens_total,)
    place : what messages call the table
    """

    ids: NDArray
    rows: NDArray[np.intp]
    borders: NDArray[np.int64]
    place: str

    @classmethod
    def of(cls, identifier: FrameColumn, order: FrameColumn | None, place: str) -> LongRows:
        """Sorted by the name of the sequence, then by the order (None: as the rows stand).

        Two rows of a sequence at one place of the order are refused.
        """
        if not len(identifier):
            raise InvalidInput(f"{place} has no rows; at least one sequence is needed.")
        ids, numbers = identifier.numbered(place)
        keys = None
        if order is not None:
            order.require_order(place)
            keys = order.values
        rows, again = ordered_rows(numbers, keys)
        borders = np.searchsorted(numbers[rows], np.arange(len(ids) + 1)).astype(np.int64)
        made = cls(ids, rows, borders, place)
        if order is not None:
            made.require_whole(order, rows)
        if order is not None and again is not None:
            raise InvalidInput(
                f"{place}, sequence {made.called(numbers[again])}: the order {order.name!r} is "
                f"{shown(str(order.values[again]))} in two rows; each token of a sequence needs a "
                "place of its own."
            )
        return made

    def batch(
        self, columns: list[FrameColumn], missing: bool, name: str = "X", remedy: str = IMPUTE
    ) -> SequenceBatch:
        """Columns of numbers as the coordinates of tokens.

        remedy : what to do about numbers that are missing, unless they are let in
        """
        for each in columns:
            each.require_number("tokens", self.place)
            if not missing:
                self.require_whole(each, self.rows, remedy)
        values = number_matrix(columns, self.rows)
        if values.dtype.kind == "f" and np.isinf(values).any():
            token, j = (int(i) for i in np.argwhere(np.isinf(values))[0])
            raise InvalidInput(
                f"{self.words(token)}: the column {columns[j].name!r} holds {values[token, j]} "
                "there; remove or replace what is not finite."
            )
        names = column_texts(each.name for each in columns)
        return SequenceBatch(values, self.borders, name, missing=missing, coordinate_names=names)

    def require_whole(
        self,
        column: FrameColumn,
        rows: NDArray[np.intp],
        remedy: str = "remove these rows, or fill them in",
    ) -> None:
        """Refuse a column that has no value in one of these rows, some of ``self.rows``."""
        if column.missing is None or not column.missing[rows].any():
            return
        row = int(rows[np.argmax(column.missing[rows])])
        token = int(np.flatnonzero(self.rows == row)[0])
        there = counted(column.n_missing, "value") + " in all"
        raise InvalidInput(
            f"{self.words(token)}: the column {column.name!r} has no value there, and lacks "
            f"{there}; {remedy}."
        )

    def called(self, i: int) -> str:
        """What sequence i is called, in words."""
        name = self.ids[i]
        return shown(name.item() if isinstance(name, np.number | np.bool_) else str(name))

    def words(self, token: int) -> str:
        """Where a token stands, in words."""
        i = int(np.searchsorted(self.borders, token, side="right")) - 1
        return f"{self.place}, sequence {self.called(i)}, token {token - int(self.borders[i])}"


def ordered_rows(
    numbers: NDArray[np.integer], keys: NDArray | None
) -> tuple[NDArray[np.intp], int | None]:
    """Rows sorted stably by sequence and then by key; and a row whose key its sequence has twice.

    numbers : of the sequence of each row
    keys : that can be compared; None: rows stay as they stand
    """
    if keys is None:
        return np.argsort(numbers, kind="stable"), None
    rows = np.lexsort((keys, numbers))
    own, key = numbers[rows], keys[rows]
    equal = (own[1:] == own[:-1]) & (key[1:] == key[:-1])
    return rows, int(rows[np.argmax(equal)]) if equal.any() else None


def first_change(values: NDArray, borders: NDArray[np.int64]) -> int | None:
    """The first place whose value is not that of the first place of its sequence."""
    firsts = np.repeat(values[borders[:-1]], np.diff(borders), axis=0)
    different = np.atleast_2d(np.asarray(values != firsts).T).any(axis=0)
    return int(np.argmax(different)) if different.any() else None


def changing_sequences(values: NDArray, borders: NDArray[np.int64]) -> NDArray[np.intp]:
    """The numbers of the sequences within which some of the values (n_rows, e) change."""
    firsts = np.repeat(values[borders[:-1]], np.diff(borders), axis=0)
    different = np.asarray(values != firsts).any(axis=1)
    return np.flatnonzero(np.logical_or.reduceat(different, borders[:-1]))


def indexed_batch(frame: Any, name: str, missing: bool) -> SequenceBatch:
    """A frame of pandas with an index (sequence, time), as sktime has it; columns are coordinates.

    Its sequences have to be in the order of their names: then targets beside them belong to the
    same ones however they were grouped.
    """
    if frame.index.nlevels != 2:
        raise InvalidInput(
            f"the index of {name} must have two levels, the sequence and the time of a row; it has "
            f"{frame.index.nlevels}. pa.from_long({name}, sequence=, order=, tokens=) takes them "
            "by name."
        )
    place = f"the frame {name}"
    identifier = index_column(frame, 0)
    rows = LongRows.of(identifier, index_column(frame, 1), place)
    first_rows = np.minimum.reduceat(rows.rows, rows.borders[:-1])
    if np.any(np.diff(first_rows) < 0):
        raise InvalidInput(
            f"the sequences of {name} are not in the order of their names, so that targets beside "
            f"them could be of others. Sort it, {name}.sort_index(), and the targets with it; or "
            f"pa.from_long({name}, targets=...) takes both from one frame."
        )
    columns = [series_column(frame.iloc[:, j], label) for j, label in enumerate(frame.columns)]
    if not columns:
        raise InvalidInput(f"{name} has no columns; tokens need at least one coordinate.")
    return rows.batch(columns, missing, name)


def require_aligned(X: object, Y: Any) -> None:
    """Refuse targets of pandas whose index is not that of the sequences of an indexed frame X.

    Targets without names (0, 1, 2, ...) are taken in the order in which they stand.
    """
    if not is_indexed(X) or not hasattr(Y, "iloc") or type(Y.index).__name__ == "RangeIndex":
        return
    names = X.index.get_level_values(0).unique()
    if Y.index.nlevels == 1 and len(Y) == len(names) and not Y.index.equals(names):
        raise InvalidInput(
            "the index of the targets must be that of the sequences of X, in their order; it is "
            f"{shown(Y.index[:3].tolist())} ..., and that of X {shown(names[:3].tolist())} .... "
            "Y.loc[X.index.get_level_values(0).unique()] has the order of X."
        )
