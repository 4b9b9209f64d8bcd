"""Frames that speak Arrow (polars, DuckDB, pyarrow), and their columns as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidType
from polyattn.quoting import shown
from polyattn.sequences.frame_columns import FrameColumn
from polyattn.sources.arrow_tables import Column, Table, arrow, is_real, numbers, plain_table


def arrow_table(frame: Any) -> Table:
    """Anything that exports its rows through the interface of Arrow, as a table of pyarrow."""
    if type(frame).__name__ == "LazyFrame":
        raise InvalidType(
            "frame is a LazyFrame, which has no rows yet; call .collect() and give what it returns."
        )
    if hasattr(type(frame), "__dask_graph__"):
        raise InvalidType(
            "frame is a collection of Dask; pa.scan(frame, sequence=..., tokens=[...]) reads it in "
            "its parts, or call .compute()."
        )
    if not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")):
        raise InvalidType(
            "frame must be a pandas or polars DataFrame, an Arrow table, a DuckDB relation, or "
            f"something else with __arrow_c_stream__; got {shown(frame)}. pa.scan reads files."
        )
    try:
        return arrow().table(frame)
    except arrow().ArrowInvalid as error:
        raise InvalidType(
            f"frame must be a table with columns; got a {type(frame).__name__}, which exports "
            f"something else: {error}."
        ) from None


def arrow_column(table: Table, name: str) -> FrameColumn:
    """A column of a table, decoded."""
    column = plain_table(table.select([name])).column(0)
    types, kind = arrow().types, column.type
    missing = _missing(column)
    if types.is_null(kind):
        return FrameColumn(name, np.zeros(len(column)), missing, "number", "nothing")
    if is_real(kind):
        return FrameColumn.of_numbers(name, _filled(column), missing)
    if types.is_temporal(kind) and not types.is_interval(kind):
        return FrameColumn(name, _times(column), missing, "time", str(kind))
    texts = np.empty(len(column), dtype=object)
    texts[:] = column.to_pylist()
    return FrameColumn.of_objects(name, texts, missing, str(kind))


def _missing(column: Column) -> NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    from pyarrow import compute

    return numbers(compute.is_null(column))


def _filled(column: Column) -> NDArray:
    """Numbers with zeros where one is missing."""
    if column.null_count:
        zero = False if arrow().types.is_boolean(column.type) else 0
        column = column.fill_null(arrow().scalar(zero, column.type))
    return numbers(column)


def _times(column: Column) -> NDArray:
    """Times as numpy has them (of a day: as counts); those with a zone are in UTC."""
    types, kind = arrow().types, column.type
    narrow = types.is_date32(kind) or types.is_time32(kind)
    counts = _filled(column.cast(arrow().int32() if narrow else arrow().int64())).astype(np.int64)
    if types.is_date32(kind):
        return counts.view("datetime64[D]")
    if types.is_date64(kind):
        return counts.view("datetime64[ms]")
    if types.is_timestamp(kind):
        return counts.view(f"datetime64[{kind.unit}]")
    return counts.view(f"timedelta64[{kind.unit}]")
