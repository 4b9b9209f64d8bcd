"""Files of tables opened as a source: Parquet, Arrow and CSV, by the suffix of their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from polyattn.errors import FileFormatError, InvalidInput, InvalidType, require_integer
from polyattn.files.atomic import file_to_read
from polyattn.quoting import shown
from polyattn.sources.arrow_tables import (
    ArrowType,
    arrow,
    is_real,
    is_text,
    plain_table,
    plain_type,
)
from polyattn.sources.csv import MOST_CHUNK_BYTES, CsvPart
from polyattn.sources.list_format import list_width, require_list_types
from polyattn.sources.parquet import ArrowPart, ParquetPart, RowPart
from polyattn.sources.stamped_files import StampedFile
from polyattn.sources.table_columns import TableColumns, have_lists, is_list, require_long_types
from polyattn.sources.tables import CHUNK_BYTES, TablePart, TableSource

# What separates the values of a line, by suffix.
SEPARATORS = {".csv": ",", ".tsv": "\t"}

# Files whose rows are grouped and whose columns have types, by suffix.
ROW_PARTS: dict[str, type[RowPart]] = {
    ".parquet": ParquetPart,
    ".pq": ParquetPart,
    ".arrow": ArrowPart,
    ".feather": ArrowPart,
    ".ipc": ArrowPart,
}

SUFFIXES = (*ROW_PARTS, *SEPARATORS)


def open_tables(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    sequence: str | None = None,
    order: str | None = None,
    tokens: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    weight: str | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> TableSource:
    """Files of one table, in order, as a source; of the rows only the first are looked at.

    Long format, one row per token: ``sequence`` names the sequence of a token, ``order`` its
    place in it (None: as the rows stand), ``tokens`` its coordinates, ``targets`` the outputs
    wanted there, ``weight`` how much the sequence counts.  Rows of a sequence stand together,
    across files too; all of them go to the chunk in which the first stands.

    Lists, one row per sequence (Parquet, Arrow): ``tokens`` is one column of lists of tokens or
    several of lists of numbers, ``targets`` are columns of numbers (one per sequence) or of lists
    (one per token).

    Guarantee: numbers are taken over unrounded (texts of floats to the nearest float64); missing
    values, NaN and infinity are refused where they are used.
    Cost: each file is opened once and its description is read; later each chunk is read as a
    whole, some ``chunk_bytes`` of numbers, and needs about three times as much memory.
    """
    arrow()
    columns = TableColumns.named(sequence, order, tokens, targets, weight)
    chunk_bytes = require_integer("chunk_bytes", chunk_bytes)
    if chunk_bytes > MOST_CHUNK_BYTES:
        raise InvalidInput(f"chunk_bytes must be at most {MOST_CHUNK_BYTES}; got {chunk_bytes}.")
    files = _files(paths)
    suffix = _suffix(files)
    n_dims, n_outputs, lists = len(columns.tokens), len(columns.targets), False
    parts: list[TablePart] = []
    if suffix in SEPARATORS:
        columns.identifier(f"the file {files[0].path!r}")
        texts = [CsvPart.found(file, columns, SEPARATORS[suffix]) for file in files]
        parts += [part for part in texts if part.row_before(None, [columns.identifier()])]
    else:
        typed = [ROW_PARTS[suffix](file, tuple(columns.used)) for file in files]
        lists = _require_types(typed, columns)
        typed = [part for part in typed if part.layout().borders[-1]]
        parts += typed
        if lists and typed:
            n_dims, n_outputs = _widths(typed[0], columns)
    if not parts:
        raise InvalidInput(
            f"the table has no rows: {shown([file.path for file in files])} hold none."
        )
    return TableSource(tuple(parts), columns, n_dims, n_outputs, lists, chunk_bytes)


def described_columns(path: str | os.PathLike[str]) -> dict[str, str]:
    """The columns of a table, and what each of them holds, of a CSV by its first rows."""
    arrow()
    files = _files(path)
    suffix = _suffix(files)
    if suffix in SEPARATORS:
        part = CsvPart.opened(files[0], SEPARATORS[suffix])
        names = list(dict.fromkeys(part.header))
        first = next(part.rows_from(None, names), None)
        if first is None:
            return dict.fromkeys(names, "nothing")
        schema = first.schema
    else:
        schema = ROW_PARTS[suffix](files[0], ()).layout().schema
    return {field.name: _in_words(plain_type(field.type)) for field in schema}


def _in_words(kind: ArrowType) -> str:
    """What values of a type are."""
    types = arrow().types
    words = {
        "whole numbers": types.is_integer(kind), "yes or no": types.is_boolean(kind),
        "numbers": is_real(kind), "text": is_text(kind), "times": types.is_temporal(kind),
        "lists": is_list(kind), "nothing": types.is_null(kind),
    }  # fmt: skip
    return next((word for word, holds in words.items() if holds), str(kind))


def _files(paths: object) -> list[StampedFile]:
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(several, Sequence) or not len(several):
        raise InvalidType(f"paths must be one file or a list of files; got {shown(paths)}.")
    files = [StampedFile.found(file_to_read(path, "paths")) for path in several]
    names = [file.path for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"the file {twice!r} is given twice; give it once.")
    return files


def _suffix(files: list[StampedFile]) -> str:
    """The suffix that all files have."""
    found = {Path(file.path).suffix.lower(): file.path for file in files}
    if len(found) > 1:
        raise InvalidInput(
            f"the files of one table need one suffix; got {', '.join(sorted(found))}."
        )
    suffix, path = next(iter(found.items()))
    if suffix not in SUFFIXES:
        raise InvalidInput(
            f"a table is a file with one of the suffixes {', '.join(SUFFIXES)}; got {path!r}."
        )
    return suffix


def _require_types(parts: list[RowPart], columns: TableColumns) -> bool:
    """Refuse columns that cannot be used; whether the tokens stand in lists."""
    kinds: list[dict[str, ArrowType]] = []
    for part in parts:
        schema = part.layout().schema
        columns.require_in(schema.names, f"the file {part.path!r}")
        kinds.append({name: schema.field(name).type for name in columns.used})
    lists = have_lists(columns, kinds[0])
    for part, mine in zip(parts, kinds, strict=True):
        if have_lists(columns, mine) != lists:
            raise FileFormatError(
                f"the tokens are lists in one of the files {parts[0].path!r} and {part.path!r}, "
                "and numbers in the other; all files of a table are of one format."
            )
        check = require_list_types if lists else require_long_types
        check(columns, mine, f"the file {part.path!r}")
        if columns.sequence is not None:
            _require_one_identifier(columns.sequence, kinds[0], mine, part.path)
    return lists


def _require_one_identifier(
    name: str, first: dict[str, ArrowType], mine: dict[str, ArrowType], path: str
) -> None:
    """Refuse sequences that are named by numbers in one file and by texts in another."""
    a, b = plain_type(first[name]), plain_type(mine[name])
    whole = arrow().types.is_integer(a) and arrow().types.is_integer(b)
    if a != b and not whole:
        raise FileFormatError(
            f"the column {name!r} names sequences by {a} in the first file and by {b} in "
            f"{path!r}; write it in one type."
        )


def _widths(part: RowPart, columns: TableColumns) -> tuple[int, int]:
    """Coordinates per token, and outputs, of a table with lists."""
    first = plain_table(part.read(0, 1, columns.used))
    kinds = {field.name: field.type for field in first.schema}
    return (
        list_width(columns.tokens, kinds, first),
        list_width(columns.targets, kinds, first),
    )
