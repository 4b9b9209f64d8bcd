"""Parquet and Arrow files as parts of a table: chunks by row groups and record batches.

Only the named columns are read.  A chunk of a Parquet file is one or several whole row groups of
about ``chunk_bytes`` together; of a larger row group the chunks are ranges of rows.  One after the
other they are decoded once (``parquet_rows``); reading one by itself decodes the row group up to
its end.  A chunk of an Arrow file is a range of rows of its record batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from polyattn.numerics.arrays import even_ranges
from polyattn.sources.arrow_tables import Table, arrow
from polyattn.sources.parquet_rows import BATCH_BYTES, BATCH_ROWS, READERS, RowReader
from polyattn.sources.stamped_files import StampedFile
from polyattn.sources.tables import TablePart

# Rows that are read where a sequence goes on, at first.
FEW_ROWS = 1 << 12

# Files whose description is kept in memory.
MOST_DESCRIBED = 16


@dataclass(frozen=True)
class ArrowLayout:
    """What a file says of itself: its columns, and how its rows are grouped.

    borders : group i holds the rows borders[i]..borders[i + 1]
    n_bytes : of all columns of each group, decoded, about
    """

    schema: Any
    borders: tuple[int, ...]
    n_bytes: tuple[int, ...]
    metadata: Any = None


@dataclass(frozen=True)
class RowPart(TablePart):
    """A file of which ranges of rows can be read."""

    file: StampedFile
    names: tuple[str, ...]

    # A group of more bytes than this many chunks is divided into ranges of rows.
    undivided: ClassVar[int] = 1

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.file.path

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return self.file.fingerprint

    @abstractmethod
    def layout(self) -> ArrowLayout:
        """The columns and groups of the file."""

    @abstractmethod
    def batches(self, first: int, stop: int, names: list[str], keep: int) -> list[Any]:
        """Record batches that together are the range.

        keep : the row with which the next range may begin
        """

    def ranges(self, chunk_bytes: int) -> list[tuple[int, int, int]]:
        layout = self.layout()
        found: list[tuple[int, int, int]] = []
        for (first, stop), n_bytes in zip(pairwise(layout.borders), layout.n_bytes, strict=True):
            if first == stop:
                continue
            if n_bytes > self.undivided * chunk_bytes:
                n_rows = max(1, (stop - first) * self.undivided * chunk_bytes // n_bytes)
                for start, end in even_ranges(stop - first, n_rows):
                    share = n_bytes * (end - start) // (stop - first)
                    found.append((first + start, first + end, share))
            elif found and found[-1][2] + n_bytes <= chunk_bytes:
                found[-1] = (found[-1][0], stop, found[-1][2] + n_bytes)
            else:
                found.append((first, stop, n_bytes))
        return found

    def read(self, first: int, stop: int, names: list[str], keep: int | None = None) -> Table:
        batches = self.batches(first, stop, names, stop if keep is None else keep)
        schema = arrow().schema([self.layout().schema.field(name) for name in names])
        return arrow().Table.from_batches(batches, schema.remove_metadata())

    def row_before(self, position: int | None, names: list[str]) -> Table | None:
        end = self.layout().borders[-1] if position is None else position
        keep = end if position is None else end - 1
        return self.read(end - 1, end, names, keep) if end else None

    def rows_from(self, position: int | None, names: list[str]) -> Iterator[Table]:
        last = self.layout().borders[-1]
        first = keep = position or 0
        n_rows = FEW_ROWS
        while first < last:
            # Ranges that double: few rows for a short rest, few passes for a long one.
            stop = min(last, first + n_rows)
            yield self.read(first, stop, names, keep)
            first, n_rows = stop, 2 * n_rows


class ParquetPart(RowPart):
    """A Parquet file."""

    def layout(self) -> ArrowLayout:
        return _parquet_layout(self.file, self.names)

    def batches(self, first: int, stop: int, names: list[str], keep: int) -> list[Any]:
        layout = self.layout()
        key = (self.file, tuple(names))
        with self.file.reading("Parquet file"):
            reader = READERS.take(key, first)
            if reader is None:
                group = _groups(layout.borders, first, stop)[0]
                n_rows = layout.borders[-1] * BATCH_BYTES // max(1, sum(layout.n_bytes))
                n_rows = min(max(1, n_rows), BATCH_ROWS)
                reader = RowReader(self.path, names, layout.borders, layout.metadata, group, n_rows)
            found = reader.rows(first, stop, keep)
            READERS.keep(key, reader)
        return found


class ArrowPart(RowPart):
    """A file of the Arrow IPC format, also called Feather.

    A record batch is read as a whole for each of its ranges.
    """

    undivided: ClassVar[int] = 4

    def layout(self) -> ArrowLayout:
        return _arrow_layout(self.file, self.names)

    def batches(self, first: int, stop: int, names: list[str], keep: int) -> list[Any]:  # noqa: ARG002 - nothing is kept
        layout = self.layout()
        fields = [layout.schema.get_field_index(name) for name in names]
        groups = _groups(layout.borders, first, stop)
        with self.file.reading("file of the Arrow IPC format"), _ipc(self.path, fields) as file:
            rows = (file.get_batch(group) for group in groups)
            start = layout.borders[groups[0]]
            return [batch.select(names) for batch in _range_of(rows, first - start, stop - start)]


@lru_cache(MOST_DESCRIBED)
def _parquet_layout(file: StampedFile, names: tuple[str, ...]) -> ArrowLayout:
    from pyarrow import parquet

    arrow()
    with file.reading("Parquet file"), parquet.ParquetFile(file.path) as opened:
        metadata = opened.metadata
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
        leaves = [
            i
            for i in range(metadata.num_columns)
            if metadata.schema.column(i).path.partition(".")[0] in names
            or metadata.schema.column(i).path in names
        ]
        n_bytes = tuple(sum(8 * group.column(i).num_values for i in leaves) for group in groups)
        borders = tuple(accumulate((group.num_rows for group in groups), initial=0))
        return ArrowLayout(opened.schema_arrow, borders, n_bytes, metadata)


@lru_cache(MOST_DESCRIBED)
def _arrow_layout(file: StampedFile, names: tuple[str, ...]) -> ArrowLayout:
    with file.reading("file of the Arrow IPC format"):
        with _ipc(file.path, None) as opened:
            schema = opened.schema
        # Rows are counted on one column: of the others nothing is read.
        fields = [i for i, name in enumerate(schema.names) if name in names]
        with _ipc(file.path, fields[:1]) as opened:
            counts = [opened.get_batch(i).num_rows for i in range(opened.num_record_batches)]
    borders = tuple(accumulate(counts, initial=0))
    share = file.size / max(1, borders[-1] * len(schema.names))
    n_bytes = tuple(int(max(8, share) * count * len(fields)) for count in counts)
    return ArrowLayout(schema, borders, n_bytes)


def _groups(borders: tuple[int, ...], first: int, stop: int) -> list[int]:
    """The numbers of the groups in which rows first..stop lie."""
    return [g for g, (start, end) in enumerate(pairwise(borders)) if start < stop and end > first]


def _range_of(batches: Iterable[Any], first: int, stop: int) -> Iterator[Any]:
    """Rows first..stop of batches that follow each other; later ones are not asked for."""
    start = 0
    for batch in batches:
        low, high = max(first - start, 0), min(stop - start, len(batch))
        if low < high:
            yield batch.slice(low, high - low)
        start += len(batch)
        if start >= stop:
            return


@contextmanager
def _ipc(path: str, fields: list[int] | None) -> Iterator[Any]:
    pa = arrow()
    # No memory map: what is read of it would count as memory until the system wants it back.
    with pa.OSFile(path) as file:
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        yield pa.ipc.open_file(file, options=options)
