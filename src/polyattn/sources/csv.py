"""CSV files as parts of a table: chunks are ranges of bytes, and own the lines that begin in them.

The first line names the columns.  Values of ``sequence`` are texts as they stand in the file
("07" is not "7"); columns of numbers are integers where all texts of a chunk are, and float64
otherwise.  A line ends where the file has a line break: values with line breaks in quotes are
refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.numerics.arrays import EXACT_INTEGER
from polyattn.quoting import shown
from polyattn.sources.arrow_tables import (
    Column,
    Table,
    arrow,
    is_text,
    numbers,
    plain_type,
    text_targets,
)
from polyattn.sources.stamped_files import StampedFile
from polyattn.sources.table_columns import TableColumns
from polyattn.sources.tables import TablePart

# pyarrow takes no more at once; and no line is longer.
MOST_CHUNK_BYTES = 1 << 30
LONGEST_LINE = 1 << 24

# Bytes read at once where a line, or the rest of a sequence, is looked for; then twice as many.
FEW_BYTES = 1 << 16

_NOT_BLANK = re.compile(rb"[^\r\n]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")


@dataclass(frozen=True)
class CsvPart(TablePart):
    """A CSV file.

    header : the names of all its columns
    first : where the first line of values begins, in bytes
    numbers : the columns that hold numbers
    targets : those of them that may be labels instead
    """

    file: StampedFile
    header: tuple[str, ...]
    first: int
    separator: str
    sequence: str | None = None
    numbers: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @classmethod
    def found(cls, file: StampedFile, columns: TableColumns, separator: str) -> CsvPart:
        """The file with its header, in which the columns must be."""
        part = cls.opened(file, separator)
        columns.require_in(part.header, f"the file {file.path!r}")
        weights = () if columns.weight is None else (columns.weight,)
        numeric = (*columns.tokens, *columns.targets, *weights)
        return replace(part, sequence=columns.sequence, numbers=numeric, targets=columns.targets)

    @classmethod
    def opened(cls, file: StampedFile, separator: str) -> CsvPart:
        """The file with its header, whatever its columns are."""
        with file.reading("CSV file"), open(file.path, "rb") as opened:
            line = opened.readline(LONGEST_LINE)
        header = _header(line, separator, file.path)
        return cls(file, tuple(header), len(line), separator)

    def labelled(self) -> CsvPart:
        numeric = tuple(name for name in self.numbers if name not in self.targets)
        return replace(self, numbers=numeric, targets=())

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.file.path

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return self.file.fingerprint

    def ranges(self, chunk_bytes: int) -> list[tuple[int, int, int]]:
        steps = range(self.first, self.file.size, chunk_bytes)
        stops = [*steps[1:], self.file.size]
        return [(first, stop, stop - first) for first, stop in zip(steps, stops, strict=True)]

    def read(self, first: int, stop: int, names: list[str]) -> Table:
        with self.file.reading("CSV file"), open(self.path, "rb") as opened:
            start, end = self._line_start(opened, first), self._line_start(opened, stop)
            opened.seek(start)
            table = self._parsed(opened.read(end - start), names, start)
        # The parser's own memory, some times that of the lines, is not kept for the next ones.
        arrow().default_memory_pool().release_unused()
        return table

    def row_before(self, position: int | None, names: list[str]) -> Table | None:
        with self.file.reading("CSV file"), open(self.path, "rb") as opened:
            end = self._line_start(opened, self.file.size if position is None else position)
            size = FEW_BYTES
            while end > self.first:
                start = self._line_start(opened, max(self.first, end - size))
                opened.seek(start)
                lines = opened.read(end - start).rstrip(b"\r\n")
                if lines:
                    last = lines.rfind(b"\n") + 1
                    rows = self._parsed(lines[last:], names, start + last)
                    return rows.slice(len(rows) - 1)
                end, size = (end, 2 * size) if start == end else (start, size)
        return None

    def rows_from(self, position: int | None, names: list[str]) -> Iterator[Table]:
        first, size = self.first if position is None else position, FEW_BYTES
        while first < self.file.size:
            stop = min(self.file.size, first + size)
            rows = self.read(first, stop, names)
            if len(rows):
                yield rows
            first, size = stop, 2 * size

    def _line_start(self, opened: BinaryIO, position: int) -> int:
        """Where the first line that does not begin before a position does."""
        if position <= self.first:
            return self.first
        # A line break right before the position counts.
        opened.seek(position - 1)
        while block := opened.read(FEW_BYTES):
            place = block.find(b"\n")
            if place >= 0:
                return opened.tell() - len(block) + place + 1
        return self.file.size

    def _parsed(self, data: bytes, names: list[str], start: int) -> Table:
        """The rows in whole lines of the file; ``start`` is where they begin, for messages."""
        if _NOT_BLANK.search(data) is None:
            return arrow().table({name: [] for name in names})
        self._require_closed_quotes(data, start)
        texts = [self.sequence] if self.sequence in names else []
        try:
            table = self._columns(data, names, texts)
            self._require_numbers(table, data, start)
            rounded = [name for name in names if _may_be_rounded(table.column(name))]
            if rounded:
                exact = self._columns(data, rounded, rounded)
                for name in rounded:
                    _require_unrounded(table.column(name), exact.column(name), name, self.path)
        except arrow().ArrowException as error:
            reason = shown(str(error).partition("\n")[0], 300)
            raise FileFormatError(
                f"the lines of {self.path!r} from byte {start} on cannot be read: {reason}."
            ) from None
        return table

    def _columns(self, data: bytes, names: list[str], texts: Sequence[str | None]) -> Table:
        import pyarrow.csv as arrow_csv

        pa = arrow()
        header = [
            name if name in names else f"{i} is not read" for i, name in enumerate(self.header)
        ]
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            # One block: the type of a column is that of all its texts.
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=header),
            arrow_csv.ParseOptions(delimiter=self.separator),
            arrow_csv.ConvertOptions(
                include_columns=names, column_types={name: pa.large_string() for name in texts}
            ),
        )

    def _require_numbers(self, table: Table, data: bytes, start: int) -> None:
        """Refuse a text in a column of numbers, by line and column."""
        for name in self.numbers:
            if name in table.column_names and is_text(plain_type(table.column(name).type)):
                at = self._first_text(data, self.header.index(name))
                if at is None:
                    continue
                line, text = at
                where = f"{self.path!r}, line {self._lines_before(start) + line}"
                if name in self.targets:
                    raise text_targets(name, where, text)
                raise InvalidType(
                    f"{where}: the column {name!r} must hold real numbers; it holds {shown(text)} "
                    "there. Correct the value, or leave it empty and impute it."
                )

    def _first_text(self, data: bytes, column: int) -> tuple[int, str] | None:
        """The first value of a column that is no number, and the number of its line from 0 on."""
        gaps = set(_null_values())
        for line, text in enumerate(data.decode().split("\n")):
            values = next(csv.reader([text.rstrip("\r")], delimiter=self.separator), [])
            value = values[column].strip() if column < len(values) else ""
            if value not in gaps and not _is_number(value):
                return line, value
        return None

    def _lines_before(self, position: int) -> int:
        """The number of the line that begins at a position, the header being line 1."""
        count, left = 1, position
        with open(self.path, "rb") as opened:
            while left and (block := opened.read(min(left, 1 << 20))):
                count, left = count + block.count(b"\n"), left - len(block)
        return count

    def _require_closed_quotes(self, data: bytes, start: int) -> None:
        """Refuse a line with an odd number of quotation marks: a quoted value goes on behind it."""
        if b'"' not in data:
            return
        marks = np.frombuffer(data, dtype=np.uint8)
        ends = np.append(np.flatnonzero(marks == ord("\n")), len(data))
        quotes = np.searchsorted(np.flatnonzero(marks == ord('"')), ends)
        if np.any(quotes % 2):
            line = int(np.argmax(quotes % 2))
            place = start + (int(ends[line - 1]) + 1 if line else 0)
            raise FileFormatError(
                f"in {self.path!r}, the line at byte {place} has a quotation mark without its "
                "partner. Values with line breaks are not read: write the table without "
                "them, or as Parquet."
            )


def _header(line: bytes, separator: str, path: str) -> list[str]:
    """The names in the first line of a file."""
    if len(line) == LONGEST_LINE or b"\r" in line.rstrip(b"\r\n"):
        raise FileFormatError(
            f"the first line of {path!r} must name the columns and end with a line feed; it is "
            "too long, or holds carriage returns."
        )
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        names = next(csv.reader([text], delimiter=separator, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(
            f"the first line of {path!r} must name the columns, in UTF-8: {error}."
        ) from None
    if not names:
        raise FileFormatError(f"{path!r} is empty: its first line must name the columns.")
    return names


def _null_values() -> list[str]:
    """The texts that are read as missing values."""
    import pyarrow.csv as arrow_csv

    return list(arrow_csv.ConvertOptions().null_values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _may_be_rounded(column: Column) -> bool:
    """Whether a column holds floats so large that texts of integers may have been rounded."""
    from pyarrow import compute

    if not arrow().types.is_floating(column.type):
        return False
    ends = compute.min_max(column).as_py()
    return any(end is not None and abs(end) >= EXACT_INTEGER for end in ends.values())


def _require_unrounded(floats: Column, texts: Column, name: str, path: str) -> None:
    """Refuse texts of integers that are not the float64 as which they were read."""
    values = numbers(floats)
    for row in np.flatnonzero(np.abs(values) >= EXACT_INTEGER):
        text = texts[int(row)].as_py().strip()
        if _INTEGER.fullmatch(text) and int(text) != int(values[row]):
            raise InvalidInput(
                f"the column {name!r} of {path!r} holds the integer {shown(text)}, which float64 "
                "would round. Subtract an offset or divide by a common factor first."
            )
