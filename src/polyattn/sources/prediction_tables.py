"""Predictions written as a table, part by part: Parquet or CSV, by the suffix of the name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files.atomic import file_to_write, require_writable, write_atomically
from polyattn.numerics.arrays import even_ranges
from polyattn.sources.arrow_tables import Table, arrow, as_arrow

SUFFIXES = (".parquet", ".pq", ".csv")

# Rows that are written together: the row groups of a Parquet file.
GROUP_ROWS = 1 << 16


class PredictedPart(NamedTuple):
    """Predictions for some sequences, one after the other.

    values : (n_sequences, n_outputs), or one row per token
    lengths : tokens of each sequence where there is one prediction per token; None otherwise
    names : of the sequences (n_sequences,); None: they are numbered from 0 through all parts
    order : the place of each token in its sequence, of Arrow; None: tokens are counted from 0
    labels : of classes (n_rows,), where they are predicted
    """

    values: NDArray
    lengths: NDArray | None = None
    names: NDArray | None = None
    order: Any = None
    labels: NDArray | None = None


class PredictionColumns(NamedTuple):
    """What the columns of a table of predictions are called.

    values : one name for each output; None: ``prediction_0``, ``prediction_1``, ...
    """

    sequence: str = "sequence"
    position: str = "token"
    label: str = "label"
    values: tuple[str, ...] | None = None

    def of(self, part: PredictedPart) -> list[str]:
        """The names for a part, in their order, each of which must be another."""
        names = [self.sequence]
        names += [] if part.lengths is None else [self.position]
        names += [] if part.labels is None else [self.label]
        outputs = range(part.values.shape[1])
        names += self.values or [f"prediction_{j}" for j in outputs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidInput(
                f"the table of predictions would have two columns called {twice!r}; rename that "
                "of the data."
            )
        return names


def write_predictions(
    path: str | os.PathLike[str],
    parts: Iterable[PredictedPart],
    columns: PredictionColumns | None = None,
) -> int:
    """Write a table of predictions, and return its number of rows.

    Its columns are ``sequence`` (name or number), ``token`` (its place in the order, or from 0,
    where there is a prediction per token), ``label`` where there are some, and ``prediction_0``,
    ``prediction_1``, ..., or what ``columns`` calls them; numbers are read again as they were.

    Guarantee: the file appears complete or not at all, also where a part fails to be computed.
    Cost: memory of some GROUP_ROWS rows and of the largest part, twice.
    """
    target = file_to_write(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidInput(
            f"a table of predictions is a file with one of the suffixes {', '.join(SUFFIXES)}; "
            f"got {str(target)!r}."
        )
    arrow()
    require_writable(target)
    n_rows = 0

    def write(file: IO[bytes]) -> None:
        nonlocal n_rows
        tables = _grouped(_tables(parts, columns or PredictionColumns()))
        first = next(tables, None)
        if first is None:
            raise InvalidInput("there are no predictions to write; give at least one part.")
        with _writer(file, first.schema, target.suffix.lower()) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                n_rows += len(table)
                # The writer's own memory is not kept for the next rows.
                arrow().default_memory_pool().release_unused()

    write_atomically(target, write)
    return n_rows


def _tables(parts: Iterable[PredictedPart], columns: PredictionColumns) -> Iterator[Table]:
    """Each part as a table; all have the columns and types of the first."""
    n_sequences, schema = 0, None
    for part in parts:
        table = _table(part, n_sequences, columns)
        if schema is not None and table.schema != schema:
            raise InvalidInput(
                "all predictions of a table need the same columns and types: the first part has "
                f"{_described(schema)}; another has {_described(table.schema)}."
            )
        schema = table.schema
        n_sequences += len(part.values if part.lengths is None else part.lengths)
        yield table


def _table(part: PredictedPart, first: int, called: PredictionColumns) -> Table:
    """A part as a table with these names; its sequences are numbered from ``first`` on."""
    pa = arrow()
    values = np.asarray(part.values)
    lengths = None if part.lengths is None else np.asarray(part.lengths)
    count = len(values) if lengths is None else len(lengths)
    if values.ndim != 2 or (lengths is not None and lengths.sum() != len(values)):
        raise InvalidInput(
            "predictions must have shape (n_sequences, n_outputs), or one row per token; got shape "
            f"{values.shape} for {count} sequences."
        )
    if part.names is None:
        names = as_arrow(np.arange(first, first + count))
    elif len(part.names) == count:
        names = as_arrow(np.asarray(part.names))
    else:
        raise InvalidInput(f"{count} sequences need as many names; got {len(part.names)}.")
    columns = [names]
    if lengths is not None:
        starts = np.cumsum(lengths) - lengths
        columns = [names.take(as_arrow(np.repeat(np.arange(count), lengths)))]
        counts = as_arrow(np.arange(len(values)) - np.repeat(starts, lengths))
        columns.append(counts if part.order is None else part.order)
    if part.labels is not None:
        columns.append(as_arrow(np.asarray(part.labels)))
    columns += [as_arrow(column) for column in values.T]
    return pa.Table.from_arrays(columns, names=called.of(part))


def _grouped(tables: Iterator[Table]) -> Iterator[Table]:
    """The same rows in tables of GROUP_ROWS rows or some more, but for the last."""
    waiting: list[Table] = []
    for table in tables:
        waiting.append(table)
        n_rows = sum(map(len, waiting))
        if n_rows >= GROUP_ROWS:
            together, waiting = arrow().concat_tables(waiting), []
            for first, stop in even_ranges(n_rows, -(-n_rows // (n_rows // GROUP_ROWS))):
                yield together.slice(first, stop - first).combine_chunks()
    if waiting:
        yield arrow().concat_tables(waiting).combine_chunks()


def _writer(file: IO[bytes], schema: Any, suffix: str) -> Any:
    if suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(file, schema)
    import pyarrow.parquet

    # Predictions hardly repeat: a dictionary of them is memory, and then thrown away.
    floating = arrow().types.is_floating
    repeated = [field.name for field in schema if not floating(field.type)]
    return pyarrow.parquet.ParquetWriter(file, schema, use_dictionary=repeated)


def _described(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
