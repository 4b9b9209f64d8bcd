"""from_long: a table in memory with a row for each token, as sequences with their targets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.quoting import counted, shown
from polyattn.sequences import SequenceBatch
from polyattn.sequences.frame_columns import (
    FrameColumn,
    index_column,
    is_pandas,
    number_matrix,
    pandas_column,
    pandas_names,
)
from polyattn.sequences.long_rows import LongRows, changing_sequences, first_change
from polyattn.sources.arrow_frames import arrow_column, arrow_table
from polyattn.sources.table_columns import TableColumns

MISSING = ("refuse", "keep")
TARGET_PER = ("auto", "sequence", "token", "last")

PLACE = "the frame"
KEEP = "missing='keep' keeps them as NaN, and pa.SequenceImputer fills them"


@dataclass(frozen=True, eq=False, repr=False)
class LongData:
    """What ``from_long`` found in a table; ``X, Y = pa.from_long(...)`` takes the first two.

    X : SequenceBatch
    Y : targets as ``fit`` and estimators take them, or None; with a list of names (N, e), with a
        single name (N,); of tokens a list of arrays (n_i, e) or (n_i,)
    sample_weight : one for each sequence (N,), or None
    ids : what the table calls each sequence (N,), in the order of X
    token_names, target_names : the columns behind coordinates and outputs
    target_per : "sequence" or "token", what has a target; None without targets
    """

    X: SequenceBatch
    Y: Any
    sample_weight: NDArray | None
    ids: NDArray
    token_names: tuple[Hashable, ...]
    target_names: tuple[Hashable, ...]
    target_per: str | None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.Y))

    def __getitem__(self, index: SupportsIndex) -> Any:
        """X for 0 and Y for 1, as of a pair."""
        if not isinstance(index, SupportsIndex):
            raise InvalidType(
                f"the parts of LongData are data[0], X, and data[1], Y; got data[{shown(index)}]. "
                "Others have names, such as data.ids."
            )
        at = operator.index(index)
        if at not in (-2, -1, 0, 1):
            raise IndexError(f"LongData is a pair: data[0] is X and data[1] is Y; got data[{at}].")
        return (self.X, self.Y)[at]

    def __repr__(self) -> str:
        targets = "no targets"
        if self.target_per is not None:
            names = counted(len(self.target_names), "target")
            targets = f"{names} for each {self.target_per}"
        weights = "" if self.sample_weight is None else ", with weights"
        gaps = ", some missing" if self.X.has_missing else ""
        return f"LongData({self.X.in_words}{gaps}; {targets}{weights})"


def from_long(
    frame: Any,
    *,
    sequence: Hashable | None = None,
    order: Hashable | None = None,
    tokens: Sequence[Hashable] | Hashable | None = None,
    targets: Sequence[Hashable] | Hashable | None = None,
    weight: Hashable | None = None,
    missing: str = "refuse",
    target_per: str = "auto",
) -> LongData:
    """Sequences and targets from a table in memory with a row for each token, in any order.

    Parameters
    ----------
    frame : pandas or polars DataFrame, Arrow table, DuckDB relation
        Or anything else with ``__arrow_c_stream__``; all but pandas are read through pyarrow.
        A frame of pandas with an index of two levels (sequence, time), as sktime has it, needs no
        names: its columns are the coordinates.  Levels of an index are named like columns.
    sequence : the column that names the sequence of a token: numbers, texts or times
    order : the column with its place in the sequence: numbers or times; None: as the rows stand
    tokens : the columns of its coordinates, numbers
    targets : the columns of the outputs, numbers or texts (labels)
    weight : the column with the weight of the sequence, the same in all its rows
    missing : "refuse", or "keep" values of tokens that are missing as NaN (``SequenceImputer``)
    target_per : "auto", "sequence", "token" or "last"
        Whether Y has a target for each sequence, the same in all its rows, or for each token, or
        for each sequence that of its last token.  "auto": for each sequence where no target
        changes within one, and for each token where one does within most of them.  Where it
        changes in some and not in most, that may be a slip in a few rows, and is refused.

    Guarantee: sequences come in the order of their names (``ids``), tokens in that of ``order``,
    whatever the order of the rows.  No number is rounded.  Null and NaN are missing; refused are
    names, orders, targets and weights that are missing, two rows at one place, infinity.
    Cost: a sort of the rows, and a copy of the numbers.

    >>> import pandas as pd
    >>> import polyattn as pa
    >>> frame = pd.DataFrame(
    ...     {"who": ["b", "a", "b"], "when": [2, 1, 1], "x": [5.0, 3.0, 4.0], "y": [1, 0, 1]}
    ... )
    >>> X, y = pa.from_long(frame, sequence="who", order="when", tokens=["x"], targets="y")
    >>> X
    SequenceBatch(2 sequences, 1..2 tokens of 1 coordinate, float64)
    >>> y
    array([0, 1])
    """
    require_choice("missing", missing, MISSING)
    require_choice("target_per", target_per, TARGET_PER)
    table = _Table.of(frame)
    columns = table.named(sequence, order, tokens, targets, weight)
    identifier, place_in_it = table.places(columns)
    rows = LongRows.of(identifier, place_in_it, PLACE)
    inputs = [table.column(name) for name in columns.tokens]
    X = rows.batch(inputs, missing == "keep", remedy=KEEP)
    made = LongData(X, None, None, rows.ids, columns.tokens, columns.targets, None)
    if columns.weight is not None:
        made = replace(made, sample_weight=_weights(rows, table.column(columns.weight)))
    if not columns.targets:
        return made
    found = [table.column(name) for name in columns.targets]
    Y, per = _targets(rows, found, target_per)
    if _is_name(targets, table.names):
        Y = [each[:, 0] for each in Y] if per == "token" else Y[:, 0]
    return replace(made, Y=Y, target_per=per)


@dataclass(frozen=True, eq=False)
class _Table:
    """The columns of a frame by name.

    index : of pandas the columns of an index with two levels; otherwise empty
    """

    names: list[Any]
    column: Callable[[Any], FrameColumn]
    index: tuple[FrameColumn, ...]

    @classmethod
    def of(cls, frame: Any) -> _Table:
        if is_pandas(frame):
            levels = (0, 1) if frame.index.nlevels == 2 else ()
            index = tuple(index_column(frame, level) for level in levels)
            return cls(pandas_names(frame), lambda name: pandas_column(frame, name), index)
        table = arrow_table(frame)
        return cls(table.column_names, lambda name: arrow_column(table, name), ())

    def named(
        self, sequence: Any, order: Any, tokens: Any, targets: Any, weight: Any
    ) -> TableColumns:
        """Which columns are what; those of an index are the places of tokens unless named."""
        outputs = [targets] if _is_name(targets, self.names) else targets
        if tokens is None and self.index and sequence is None:
            beside = [order, weight, *(each.name for each in self.index), *(outputs or ())]
            tokens = [name for name in self.names if name not in beside]
        if tokens is None:
            raise InvalidInput(
                "tokens must name the columns that are coordinates of tokens; got none. The "
                f"columns of the frame are {shown(self.names)}."
            )
        inputs = [tokens] if _is_name(tokens, self.names) else tokens
        columns = TableColumns.named(sequence, order, inputs, outputs, weight, Hashable)
        columns.require_in(self.names, PLACE, InvalidInput)
        return columns

    def places(self, columns: TableColumns) -> tuple[FrameColumn, FrameColumn | None]:
        """The columns that name sequences and the places of tokens."""
        if columns.sequence is None and not self.index:
            raise InvalidInput(
                "sequence must name the column that says to which sequence a row belongs; got "
                f"none. Columns are {shown(self.names)}. (A frame of pandas with an index of two "
                "levels, the sequence and the time, needs none.)"
            )
        order = None if columns.order is None else self.column(columns.order)
        if columns.sequence is not None:
            return self.column(columns.sequence), order
        return self.index[0], self.index[1] if order is None else order


def _is_name(given: Any, names: list[Any]) -> bool:
    """Whether it is the name of one column rather than a list of names; a tuple can be either."""
    if isinstance(given, tuple):
        return given in [name for name in names if isinstance(name, tuple)]
    return given is not None and (isinstance(given, str) or not isinstance(given, Iterable))


def _weights(rows: LongRows, column: FrameColumn) -> NDArray:
    """One weight for each sequence."""
    column.require_number("weight", rows.place)
    rows.require_whole(column, rows.rows)
    return _one_each(rows, column.values[rows.rows], f"the weight {column.name!r}", "")


def _targets(rows: LongRows, columns: list[FrameColumn], target_per: str) -> tuple[Any, str]:
    """Targets (N, e), or of tokens a list of arrays (n_i, e); and what each is for."""
    chosen = rows.rows
    if target_per == "last":
        chosen = rows.rows[rows.borders[1:] - 1]
    for each in columns:
        if each.kind not in ("number", "text"):
            raise InvalidType(
                f"{rows.place}: targets must be columns of real numbers or of texts; "
                f"{each.name!r} holds {each.held}. Convert it first."
            )
        rows.require_whole(each, chosen)
    values = _side_by_side(rows, columns, chosen)
    if target_per == "last":
        return values, "sequence"
    names = ", ".join(repr(each.name) for each in columns)
    if target_per == "auto" and _changes(rows, values, f"the target {names}"):
        target_per = "token"
    if target_per == "token":
        return np.split(values, rows.borders[1:-1]), "token"
    hint = " target_per='token' takes one for each token, 'last' that of the last."
    return _one_each(rows, values, f"the target {names}", hint), "sequence"


def _changes(rows: LongRows, values: NDArray, what: str) -> bool:
    """Whether targets change within sequences; refused where they do in some, but not in most.

    A slip in one row of one sequence must not make targets of tokens of all others.
    """
    changed = changing_sequences(values, rows.borders)
    several = int(np.count_nonzero(np.diff(rows.borders) > 1))
    if not len(changed):
        return False
    if 2 * len(changed) > several:
        return True
    i = int(changed[0])
    own = values[rows.borders[i] : rows.borders[i + 1]]
    other = own[np.any(own != own[0], axis=1)][0]
    raise InvalidInput(
        f"{rows.place}, sequence {rows.called(i)}: {what} is {shown(own[0].tolist())} in one row "
        f"and {shown(other.tolist())} in another, and so it changes within {len(changed)} of "
        f"{several} sequences of several rows. If these are slips, mend them; otherwise say what "
        "has a target: target_per='token', or 'last' for that of the last row ('sequence' refuses "
        "every change)."
    )


def _side_by_side(rows: LongRows, columns: list[FrameColumn], chosen: NDArray[np.intp]) -> NDArray:
    """Targets of some rows, (n, e), all numbers or all texts."""
    kinds = {each.kind for each in columns}
    if kinds == {"text"}:
        return np.stack([each.values[chosen].astype(str) for each in columns], axis=1)
    if kinds != {"number"}:
        raise InvalidInput(
            f"{rows.place}: targets must be all numbers or all texts; "
            f"{shown([each.name for each in columns])} are of both kinds. Take them in two calls."
        )
    values = number_matrix(columns, chosen)
    if values.dtype.kind == "f" and np.isinf(values).any():
        row, j = (int(i) for i in np.argwhere(np.isinf(values))[0])
        raise InvalidInput(
            f"{rows.words(int(np.flatnonzero(rows.rows == chosen[row])[0]))}: the target "
            f"{columns[j].name!r} is {values[row, j]}; remove or replace what is not finite."
        )
    return values


def _one_each(rows: LongRows, values: NDArray, what: str, hint: str) -> NDArray:
    """The value of each sequence, which all its tokens have."""
    token = first_change(values, rows.borders)
    if token is not None:
        i = int(np.searchsorted(rows.borders, token, side="right")) - 1
        mine, other = values[rows.borders[i]].tolist(), values[token].tolist()
        raise InvalidInput(
            f"{rows.place}, sequence {rows.called(i)}: {what} must be the same in all rows of "
            f"a sequence; it is {shown(mine)} and {shown(other)}.{hint}"
        )
    return values[rows.borders[:-1]]
