"""Dask's data frames in long format as sources: a chunk is a partition.

As in ``tables``, a chunk owns the sequences that begin in its partition, and its part is the
partition with the rows of the next ones in which its last sequence goes on.  Which these are is
found out once, from the names of the sequences alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.quoting import shown
from polyattn.sequences import MODES
from polyattn.sources.arrow_tables import Table, arrow, joined, plain_table
from polyattn.sources.dask_collections import DaskChunk, DaskSource, is_delayed, require_dask
from polyattn.sources.long_format import leading_rows, long_data
from polyattn.sources.source import ChunkData, ChunkIdentity
from polyattn.sources.table_columns import TableColumns, require_identifier


@dataclass(frozen=True, eq=False)
class FrameChunk(DaskChunk):
    """The sequences that begin in a partition.

    part : a delayed list of the partition and of the rows after it that belong to its last
        sequence, as pandas' frames
    before : the name in the last row before the partition, as a table of one row, or None
    """

    identity: ChunkIdentity
    n_bytes: int
    part: Any
    columns: TableColumns
    before: Table | None

    def read_from(self, value: Any, mode: str) -> ChunkData | None:
        require_choice("mode", mode, MODES)
        name, place = self.columns.identifier(), f"partition {self.identity.first} of the frame"
        table, *others = (_table(frame, self.columns.used, place) for frame in value)
        if self.before is not None and len(table):
            table = table.slice(leading_rows(table, self.before, name))
        if not len(table):
            return None
        return long_data(joined([table, *others]), self.columns, mode, place)

    def read_inputs(self) -> ChunkData | None:
        """The content without targets, which may be missing."""
        return replace(self, columns=self.columns.without_targets()).read("last")


def frame_source(
    frame: Any,
    *,
    sequence: str | None = None,
    order: str | None = None,
    tokens: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    weight: str | None = None,
    scheduler: str = "synchronous",
) -> DaskSource:
    """A ``dask.dataframe`` in long format, partition by partition; columns as in ``open_tables``.

    The index can be one of the columns, under its name.

    scheduler : Dask's, which computes the names of the sequences once, at the ends of partitions

    Cost: one pass over the column of names when the source is made.
    """
    dask = require_dask()
    arrow()
    columns = TableColumns.named(sequence, order, tokens, targets, weight)
    if not is_frame(frame):
        raise InvalidType(f"the frame must be one of dask.dataframe; got {shown(frame)}.")
    token = dask.base.tokenize(frame)
    names = [name for name in frame.columns if isinstance(name, str)]
    if frame.index.name in columns.used and frame.index.name not in names:
        names, frame = [frame.index.name, *names], frame.reset_index()
    columns.require_in(names, "the frame")
    frame = frame[columns.used]
    partitions = [_partition(frame, i) for i in range(frame.npartitions)]
    ends = _ends(dask, frame[[columns.identifier()]], columns.identifier(), scheduler)
    filled = [i for i, end in enumerate(ends) if end.n_rows]
    if not filled:
        raise InvalidInput("the frame has no rows; at least one sequence is needed.")
    chunks = []
    before = None
    for place, i in enumerate(filled):
        following = _following(ends, filled[place:], columns.identifier())
        rows = [
            dask.delayed(_first_rows)(partitions[j], ends[i].last, columns.used) for j in following
        ]
        fingerprint = f"{token}, columns {columns.digest}"
        identity = ChunkIdentity(f"dask frame {token}", fingerprint, i, i + 1)
        n_bytes = 8 * len(columns.used) * ends[i].n_rows
        part = dask.delayed(list)([partitions[i], *rows])
        chunks.append(FrameChunk(identity, n_bytes, part, columns, before))
        before = ends[i].last
    return DaskSource(chunks, len(columns.tokens), len(columns.targets), columns.tokens)


def is_frame(value: Any) -> bool:
    """Whether it is a data frame of Dask."""
    lazy = hasattr(value, "npartitions") and hasattr(value, "columns")
    return lazy and not is_delayed(value)


class _Ends(NamedTuple):
    """The names in the first and the last row of a partition, as tables of one row.

    single : whether all its rows belong to one sequence
    """

    n_rows: int
    first: Table
    last: Table
    single: bool


def _ends(dask: Any, names: Any, name: str, scheduler: str) -> list[_Ends]:
    """The ends of all partitions of a frame of the one column that names sequences."""
    found = [dask.delayed(_ends_of)(_partition(names, i), name) for i in range(names.npartitions)]
    return list(dask.compute(*found, scheduler=scheduler))


def _ends_of(frame: Any, name: str) -> _Ends:
    table = _table(frame, [name], "the frame")
    require_identifier(name, table.column(name).type, "the frame")
    n_rows = len(table)
    if not n_rows:
        return _Ends(0, table, table, True)
    # Copies: a slice would be sent with the whole column.
    first, last = table.take([0]), table.take([n_rows - 1])
    return _Ends(n_rows, first, last, leading_rows(table, first, name) == n_rows)


def _following(ends: list[_Ends], filled: list[int], name: str) -> Iterator[int]:
    """The partitions after the first of ``filled`` in which its last sequence goes on."""
    last = ends[filled[0]].last
    for i in filled[1:]:
        if not leading_rows(ends[i].first, last, name):
            return
        yield i
        if not ends[i].single:
            return


def _first_rows(frame: Any, last: Table, names: list[str]) -> Any:
    """The rows at the beginning of a partition that belong to an earlier sequence."""
    name = last.column_names[0]
    return frame[: leading_rows(_table(frame, [name], "the frame"), last, name)][names]


def _partition(frame: Any, i: int) -> Any:
    """Partition i as one delayed frame, with its own tasks alone."""
    return frame.partitions[i].to_delayed()[0]


def _table(frame: Any, names: list[str], place: str) -> Table:
    """Columns of a frame of pandas as an Arrow table; NaN becomes a missing value."""
    pa = arrow()
    try:
        return plain_table(pa.Table.from_pandas(frame[names], preserve_index=False))
    except pa.ArrowException as error:
        reason = shown(str(error).partition("\n")[0], 300)
        raise InvalidType(
            f"{place}: the columns {shown(names)} cannot be used ({reason}); give each one type."
        ) from None
