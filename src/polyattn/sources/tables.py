"""Tables as sources: one row per token, or one row per sequence, in parts that follow each other.

A table is a list of parts (files, or partitions of a data frame), and a chunk is a range of one
part.  A chunk owns the sequences that *begin* in its range: it looks at the last row before the
range, to know whether its first rows belong to an earlier chunk, and reads on beyond the end
until the sequence changes, into the next parts if need be.  So every chunk can be read alone, in
any process, and all chunks together are exactly the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from polyattn.errors import InvalidInput, require_choice
from polyattn.quoting import shown
from polyattn.sequences import MODES
from polyattn.sources.arrow_tables import Table, joined, plain_table
from polyattn.sources.list_format import list_data
from polyattn.sources.long_format import leading_rows, long_data
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source
from polyattn.sources.table_columns import (
    NUMBERS_ALONE,
    Allowed,
    TableColumns,
    label_column,
    token_names,
)

# Bytes of numbers in a chunk, about.
CHUNK_BYTES = 16 << 20

# Parts over which one sequence may go: a chunk that is sent to a worker names no more of them.
MOST_PARTS = 64


class TablePart(ABC):
    """Rows of a table, one after the other, at positions that increase: row numbers or bytes.

    Parts are sent to other processes: they hold references, not rows.

    path : what messages and identities call the part
    fingerprint : changes when the content does
    """

    path: str
    fingerprint: str

    def labelled(self) -> TablePart:
        """The same part, whose targets may be texts."""
        return self

    @abstractmethod
    def ranges(self, chunk_bytes: int) -> list[tuple[int, int, int]]:
        """Ranges (first, stop, bytes of numbers) that cover the part; none without rows."""

    @abstractmethod
    def read(self, first: int, stop: int, names: list[str]) -> Table:
        """The rows of a range, with these columns."""

    @abstractmethod
    def row_before(self, position: int | None, names: list[str]) -> Table | None:
        """The last row before a position (None: of all), as a table of one row, if there is one."""

    @abstractmethod
    def rows_from(self, position: int | None, names: list[str]) -> Iterator[Table]:
        """All rows from a position on (None: from the first), a few at a time."""


@dataclass(frozen=True, eq=False)
class TableChunk(Chunk):
    """The sequences of a table that begin in a range of one of its parts.

    parts : the part itself, the one before it (if any) and those after it
    own : which of them the part itself is
    lists : whether each row is a sequence
    allowed : what may stand in the table beside numbers
    """

    identity: ChunkIdentity
    n_bytes: int
    parts: tuple[TablePart, ...]
    own: int
    columns: TableColumns
    lists: bool
    allowed: Allowed = NUMBERS_ALONE

    def read(self, mode: str) -> ChunkData | None:
        """The sequences that begin in the range; None where none does.

        Cost: memory of the range and of the rest of its last sequence, twice.
        """
        require_choice("mode", mode, MODES)
        part = self.parts[self.own]
        # First: the numbers up to the end of a file are the last that is read of it.
        before = None if self.lists else self._row_before()
        table = plain_table(part.read(self.identity.first, self.identity.stop, self.columns.used))
        place = f"the table {part.path!r}"
        if not self.lists:
            table = self._whole_sequences(table, before)
        if not len(table):
            return None
        read = list_data if self.lists else long_data
        content = read(table, self.columns, mode, place, self.allowed)
        names = token_names(self.columns, content.batch.n_dims)
        return content if names is None else replace(content, batch=content.batch.named(names))

    def read_inputs(self) -> ChunkData | None:
        """The content without targets, whose columns are not read."""
        return replace(self, columns=self.columns.without_targets()).read("last")

    def _whole_sequences(self, table: Table, before: Table | None) -> Table:
        """The rows of a range without those of an earlier sequence, and the rest of the last."""
        name = self.columns.identifier()
        if not len(table):
            return table
        if before is not None:
            table = table.slice(leading_rows(table, before, name))
        if not len(table):
            return table
        return joined([table, *self._continuation(table.select([name]))])

    def _row_before(self) -> Table | None:
        """The last row before the range, in this part or in the one before it."""
        names = [self.columns.identifier()]
        before = self.parts[self.own].row_before(self.identity.first, names)
        if before is None and self.own:
            before = self.parts[self.own - 1].row_before(None, names)
        return None if before is None else plain_table(before)

    def _continuation(self, names: Table) -> Iterator[Table]:
        """The rows after the range that belong to the sequence of its last row."""
        name = self.columns.identifier()
        # Names cost little to read, and tell whether there are such rows.
        next_names = next(self._rows_after([name]), None)
        if next_names is None or not leading_rows(next_names, names, name):
            return
        for rows in self._rows_after(self.columns.used):
            count = leading_rows(rows, names, name)
            yield rows.slice(0, count)
            if count < len(rows):
                return
        if len(self.parts) - self.own > MOST_PARTS:
            raise InvalidInput(
                f"the sequence {shown(str(names.column(name)[-1]))} goes on over {MOST_PARTS} "
                f"parts of the table, from {self.parts[self.own].path!r} to "
                f"{self.parts[-1].path!r}; a sequence may lie in fewer. Write it into fewer files."
            )

    def _rows_after(self, names: list[str]) -> Iterator[Table]:
        yield from map(plain_table, self.parts[self.own].rows_from(self.identity.stop, names))
        for part in self.parts[self.own + 1 :]:
            yield from map(plain_table, part.rows_from(None, names))


@dataclass(frozen=True, eq=False, repr=False)
class TableSource(Source):
    """A table in parts, as ``open_tables`` opens it.

    parts : each with at least one row, in order
    lists : whether each row is a sequence, in columns of lists
    allowed : what may stand in the table beside numbers
    """

    parts: tuple[TablePart, ...]
    columns: TableColumns
    n_dims: int
    n_outputs: int
    lists: bool = False
    chunk_bytes: int = CHUNK_BYTES
    n_context_dims: int | None = None
    allowed: Allowed = NUMBERS_ALONE

    @property
    def coordinate_names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The columns of tokens, unless one of them holds several coordinates in lists."""
        return token_names(self.columns, self.n_dims)

    def labelled(self) -> TableSource:
        label_column(self.columns)
        parts = tuple(part.labelled() for part in self.parts)
        return replace(self, parts=parts, allowed=self.allowed._replace(labels=True))

    def with_missing(self) -> TableSource:
        return replace(self, allowed=self.allowed._replace(missing=True))

    @cached_property
    def chunks(self) -> Sequence[TableChunk]:
        """All chunks, in the order of the parts and of the rows in them."""
        return [
            TableChunk(
                ChunkIdentity(part.path, fingerprint, first, stop),
                n_bytes,
                self.parts[max(0, i - 1) : i + MOST_PARTS + 1],
                min(i, 1),
                self.columns,
                self.lists,
                self.allowed,
            )
            for i, (part, fingerprint) in enumerate(
                zip(self.parts, self._fingerprints(), strict=True)
            )
            for first, stop, n_bytes in part.ranges(self.chunk_bytes)
        ]

    def _fingerprints(self) -> list[str]:
        """What each part is here: its content, the columns that are read, and where it was cut.

        A part that begins or ends within a sequence holds others when it is read alone.
        Cost: a few names at both ends of each part, where there are several.
        """
        cuts = [False, *(self._goes_on(*pair) for pair in pairwise(self.parts)), False]
        return [
            f"{part.fingerprint}, columns {self.columns.digest}"
            + ", begins within a sequence" * begins
            + ", ends within a sequence" * ends
            for part, (begins, ends) in zip(self.parts, pairwise(cuts), strict=True)
        ]

    def _goes_on(self, part: TablePart, following: TablePart) -> bool:
        """Whether the last sequence of a part goes on in the following one."""
        if self.lists:
            return False
        name = self.columns.identifier()
        last = part.row_before(None, [name])
        first = next(following.rows_from(None, [name]), None)
        if last is None or first is None:
            return False
        return leading_rows(plain_table(first), plain_table(last), name) > 0
