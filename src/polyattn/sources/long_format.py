"""Rows of a table in long format, one per token, as sequences with targets and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown
from polyattn.sequences import OwnedBatch, SequenceBatch
from polyattn.sequences.long_rows import first_change, ordered_rows
from polyattn.sources.arrow_tables import (
    Column,
    Table,
    are_numbers,
    arrow,
    as_arrow,
    as_numpy,
    chosen_rows,
    gaps_as_nan,
    is_text,
    matrix,
    numbers,
    require_no_gap,
    require_real,
    text_targets,
)
from polyattn.sources.source import ChunkData, TokenLabels
from polyattn.sources.table_columns import NUMBERS_ALONE, Allowed, TableColumns, require_order


def long_data(
    table: Table, columns: TableColumns, mode: str, place: str, allowed: Allowed = NUMBERS_ALONE
) -> ChunkData:
    """What a table of whole sequences holds, each of them in adjacent rows.

    table : decoded (``plain_table``), with at least one row
    mode : "last" takes the target of the last token of each sequence, others one per token
    place : what messages call the table
    allowed : what may stand in it beside numbers

    Guarantee: no number is rounded; a gap, NaN or infinity that is used is refused, naming
    sequence, token and column, and so are two tokens of one sequence at one place of the order.
    Cost: a copy of the numbers, two where rows have to be sorted.
    """
    identifiers = table.column(columns.identifier(place))
    _require_identifiers(identifiers, columns.identifier(place), place)
    rows = _SequenceRows(table, columns, place, run_borders(identifiers))
    places = None if columns.order is None else rows.sorted_places(columns.order)
    batch = rows.batch("tokens", columns.tokens, places, allowed.missing)
    return ChunkData(
        batch,
        targets=rows.targets(mode, places, allowed.labels) if columns.targets else None,
        weights=None if columns.weight is None else rows.weights(columns.weight),
        names=rows.names(),
        order=rows.order(places),
    )


def label_texts(texts: NDArray, name: str, words: Callable[[int], str]) -> NDArray:
    """Labels as an array of texts; an empty one is a label that is missing."""
    empty = np.flatnonzero(texts == "")
    if len(empty):
        raise InvalidInput(
            f"{words(int(empty[0]))}: the column {name!r} has no label there; remove the sequence, "
            "or give it one."
        )
    return texts.astype(str)


def run_borders(identifiers: Column) -> NDArray[np.int64]:
    """Where equal entries of a column begin and end: run i is borders[i]..borders[i + 1]."""
    if are_numbers(identifiers):
        entries = numbers(identifiers)
        changes = entries[1:] != entries[:-1]
    else:
        from pyarrow import compute

        one = identifiers.combine_chunks()
        different = compute.not_equal(one.slice(1), one.slice(0, len(one) - 1))
        changes = as_numpy(different)
    starts = np.flatnonzero(changes) + 1
    return np.concatenate([[0], starts, [len(identifiers)]]).astype(np.int64)


def leading_rows(table: Table, earlier: Table, name: str) -> int:
    """How many rows at the beginning belong to the sequence of the last row of an earlier table.

    name : the column that names sequences in both tables, which are decoded
    """
    here, there = table.column(name), earlier.column(name)
    types = arrow().types
    whole = types.is_integer(here.type) and types.is_integer(there.type)
    if here.type != there.type and not whole:
        raise InvalidType(
            f"the column {name!r} names sequences by {there.type} in one part of the table and by "
            f"{here.type} in another; write it in one type."
        )
    earlier_name = there[-1]
    if here.type != there.type and earlier_name.is_valid:
        try:
            earlier_name = arrow().scalar(earlier_name.as_py(), here.type)
        except (arrow().ArrowInvalid, OverflowError):  # no integer of this type is equal to it
            return 0
    count = 0
    for chunk in here.chunks:
        same = _equal(chunk, earlier_name)
        if not same.all():
            return count + int(np.argmin(same))
        count += len(chunk)
    return count


def _equal(entries: Any, name: Any) -> NDArray[np.bool_]:
    """Which entries of an array are this one; a missing value is none."""
    if are_numbers(entries) and name.is_valid:
        return np.asarray(as_numpy(entries) == name.as_py())
    from pyarrow import compute

    same = compute.equal(entries, name)
    return as_numpy(same.fill_null(False) if same.null_count else same)


@dataclass(frozen=True, eq=False)
class _SequenceRows:
    """Rows of whole sequences: sequence i owns the rows borders[i]..borders[i + 1]."""

    table: Table
    columns: TableColumns
    place: str
    borders: NDArray[np.int64]

    def names(self) -> NDArray:
        return numbers(chosen_rows(self.table, [self.columns.identifier()], self.borders[:-1])[0])

    def order(self, places: NDArray[np.int64] | None) -> Column | None:
        """What the column of the order holds for each token, in that order."""
        name = self.columns.order
        if name is None:
            return None
        column = self.table.column(name)
        return column if places is None else column.take(as_arrow(places))

    def sorted_places(self, order: str) -> NDArray[np.int64] | None:
        """Where the rows of each sequence stand, in its order; None where they stand so already."""
        keys = self._keys(order)
        within = np.ones(len(keys) - 1, dtype=bool)  # rows of one sequence one after the other
        within[self.borders[1:-1] - 1] = False
        if np.all(keys[1:] > keys[:-1], where=within):
            return None
        runs = np.repeat(np.arange(len(self.borders) - 1), np.diff(self.borders))
        places, row = ordered_rows(runs, keys)
        if row is not None:
            value = self.table.column(order)[row]
            raise InvalidInput(
                f"{self._words(row, token=False)}: the order {order!r} is {shown(str(value))} in "
                "two rows; each token of a sequence needs a place of its own."
            )
        return places

    def batch(
        self,
        what: str,
        names: tuple[str, ...],
        places: NDArray[np.int64] | None,
        missing: bool = False,
    ) -> SequenceBatch:
        """Columns of numbers as one array of all tokens, in the order of ``places``."""
        table = gaps_as_nan(self.table, names) if missing else self.table
        values = self._matrix(table, names, self._words)
        ordered = values if places is None else np.take(values.T, places, axis=1).T
        try:
            return OwnedBatch(ordered, self.borders, what, missing=missing)
        except InvalidInput:
            known = np.where(np.isnan(values), 0.0, values) if missing else values
            _require_finite(known, names, self._words)  # which says where
            raise

    def targets(
        self, mode: str, places: NDArray[np.int64] | None, labels: bool
    ) -> NDArray | SequenceBatch | TokenLabels:
        names = self.columns.targets
        last = self.borders[1:] - 1 if places is None else places[self.borders[1:] - 1]
        text = next((name for name in names if is_text(self.table.column(name).type)), None)
        if text is not None:
            every = np.arange(len(self.table)) if places is None else places
            return self._labels(text, last if mode == "last" else every, mode, labels)
        if mode != "last":
            return self.batch("targets", names, places)

        def words(i: int) -> str:
            return self._words(int(last[i]))

        # Targets of other tokens are not used, and may be missing.
        values = self._matrix(chosen_rows(self.table, names, last), names, words)
        _require_finite(values, names, words)
        return values

    def _labels(
        self, name: str, rows: NDArray[np.int64], mode: str, labels: bool
    ) -> NDArray | TokenLabels:
        """The texts in these rows of a column."""
        column = chosen_rows(self.table, [name], rows).column(name)
        require_no_gap(column, name, lambda i: self._words(int(rows[i])))
        if not labels:
            raise text_targets(name, self._words(int(rows[0])), str(column[0]))
        values = label_texts(numbers(column), name, lambda i: self._words(int(rows[i])))
        return values if mode == "last" else TokenLabels(values, self.borders)

    def weights(self, weight: str) -> NDArray:
        values = self._matrix(self.table, (weight,), self._words)
        _require_finite(values, (weight,), self._words)
        first = values[self.borders[:-1], 0]
        row = first_change(values[:, 0], self.borders)
        if row is not None:
            mine = first[np.searchsorted(self.borders, row, side="right") - 1]
            raise InvalidInput(
                f"{self._words(row, token=False)}: the weight {weight!r} must be the same in all "
                f"rows of a sequence; it is {mine} and {values[row, 0]}."
            )
        return first

    def _identifiers(self) -> Column:
        return self.table.column(self.columns.identifier())

    def _matrix(self, table: Table, names: tuple[str, ...], words: Callable[[int], str]) -> NDArray:
        for name in names:
            column = table.column(name)
            require_real(name, column.type, self.place)
            require_no_gap(column, name, words)
        return matrix(table, names)

    def _keys(self, order: str) -> NDArray:
        """The order as numbers that can be compared."""
        column = self.table.column(order)
        require_order(order, column.type, self.place)
        require_no_gap(column, order, self._words)
        types = arrow().types
        if types.is_temporal(column.type):
            narrow = types.is_date32(column.type) or types.is_time32(column.type)
            column = column.cast(arrow().int32() if narrow else arrow().int64())
        keys = numbers(column)
        _require_finite(keys[:, None], (order,), self._words)
        return keys

    def _words(self, row: int, token: bool = True) -> str:
        """Where a row of the table stands, in words; tokens are counted from 0 as they stand."""
        i = int(np.searchsorted(self.borders, row, side="right")) - 1
        name = shown(str(self._identifiers()[int(self.borders[i])]))
        position = f", row {row - int(self.borders[i])} of it" if token else ""
        return f"{self.place}, sequence {name}{position}"


def _require_identifiers(identifiers: Column, name: str, place: str) -> None:
    """Refuse sequences without a name; NaN would be another one in each row."""
    from pyarrow import compute

    require_no_gap(identifiers, name, lambda row: f"{place}, row {row} of what was read")
    nameless = False
    if arrow().types.is_floating(identifiers.type):
        nameless = bool(compute.any(compute.is_nan(identifiers)).as_py())
    elif arrow().types.is_large_string(identifiers.type):
        nameless = compute.min(compute.binary_length(identifiers)).as_py() == 0
    if nameless:
        raise InvalidInput(
            f"{place}: the column {name!r} must name the sequence in every row; it holds NaN or "
            "an empty text."
        )


def _require_finite(values: NDArray, names: tuple[str, ...], words: Callable[[int], str]) -> None:
    if values.dtype.kind != "f":
        return
    finite = np.isfinite(values)
    if not finite.all():
        row, j = (int(i) for i in np.argwhere(~finite)[0])
        raise InvalidInput(
            f"{words(row)}: the column {names[j]!r} holds {values[row, j]} there; remove or "
            "impute what is not finite."
        )
