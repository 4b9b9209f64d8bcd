"""Columns of Arrow tables as numpy arrays, and tables put together: nothing is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, missing_extra
from polyattn.numerics.arrays import float64_holds, require_float64
from polyattn.quoting import shown

# pyarrow's classes; it is imported only where tables are read.
Table: TypeAlias = Any
Column: TypeAlias = Any
ArrowType: TypeAlias = Any


def arrow() -> Any:
    """The package pyarrow, or the command that installs it."""
    try:
        import pyarrow as pa
    except ImportError:
        raise missing_extra("pyarrow", "arrow") from None
    return pa


def plain_type(kind: ArrowType) -> ArrowType:
    """The type of the values of a column, however they are encoded; texts are of one type."""
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return kind


def plain_table(table: Table) -> Table:
    """The table with each column decoded to its ``plain_type``."""
    pa = arrow()
    for i, field in enumerate(table.schema):
        kind = plain_type(field.type)
        if kind != field.type:
            chunks = [_decoded(chunk, kind) for chunk in table.column(i).chunks]
            table = table.set_column(i, field.name, pa.chunked_array(chunks, type=kind))
    return table


def joined(tables: Sequence[Table]) -> Table:
    """Tables of the same columns one after the other.

    Where a column is of integers in one and of floats in another, all become float64, and
    integers that float64 cannot hold are refused.
    """
    pa = arrow()
    if len(tables) == 1:
        return tables[0]
    if len({tuple(table.schema.types) for table in tables}) == 1:
        first = tables[0].schema
        return pa.concat_tables([table.cast(first) for table in tables])
    columns = {}
    for name in tables[0].column_names:
        pieces = [table.column(name) for table in tables]
        kind = reduce(lambda a, b: _common(a, b, name), [piece.type for piece in pieces])
        chunks = [chunk for piece in pieces for chunk in _exactly_as(piece, kind, name).chunks]
        columns[name] = pa.chunked_array(chunks, type=kind)
    return pa.table(columns)


def is_real(kind: ArrowType) -> bool:
    """Whether values of this type are real numbers (bool included) that numpy has a type for."""
    types = arrow().types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def require_real(name: str, kind: ArrowType, place: str) -> None:
    """Refuse a column of values that are no real numbers; decimals would be rounded."""
    if is_real(kind) or arrow().types.is_null(kind):
        return
    raise InvalidType(
        f"{place}: the column {name!r} must hold real numbers; it holds {kind}. Convert it "
        "first, for example to float64."
    )


def is_text(kind: ArrowType) -> bool:
    """Whether values of this type are texts, decoded (``plain_type``)."""
    return bool(arrow().types.is_large_string(kind))


def require_target(name: str, kind: ArrowType, place: str) -> None:
    """Refuse a column of targets that are neither numbers nor texts, which may be labels."""
    if not is_text(kind):
        require_real(name, kind, place)


def text_targets(name: str, where: str, text: str) -> InvalidType:
    """The error about a text where a target must be a number, unless it is a label."""
    return InvalidType(
        f"{where}: targets are numbers, and the column {name!r} holds the text {shown(text)}. If "
        "it names classes: polyattn.LinearAttentionClassifier, or polyattn fit --classify."
    )


def number_type(kinds: Sequence[ArrowType]) -> np.dtype:
    """The numpy type that holds the numbers of all these types (integers need a look)."""
    return np.result_type(*(np.dtype(kind.to_pandas_dtype()) for kind in kinds))


def matrix(table: Table, names: Sequence[str]) -> NDArray:
    """Columns of real numbers without gaps side by side, shape (n_rows, n_columns).

    Columns of one type stay of that type; of several, of the common one; integers that would be
    rounded beside floats are refused.

    Cost: one copy.  The array is stored by columns, as they come: whoever needs rows takes them
    block by block.
    """
    columns = [table.column(name) for name in names]
    dtype = number_type([column.type for column in columns])
    if dtype.kind == "f":
        for name, column in zip(names, columns, strict=True):
            require_exact(column, name)
    result = np.empty((len(names), len(table)), dtype=dtype)
    for row, column in zip(result, columns, strict=True):
        start = 0
        for chunk in column.chunks:
            row[start : start + len(chunk)] = as_numpy(chunk)
            start += len(chunk)
    return result.T


def numbers(column: Column) -> NDArray:
    """A column without gaps as an array (n_rows,), of what numpy calls its type."""
    chunks = [as_numpy(chunk) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else as_numpy(column.combine_chunks())


def as_numpy(array: Any) -> NDArray:
    """The entries of an Arrow array; a view where they are numbers, and none is missing.

    pyarrow's own ``to_numpy`` imports pandas where that is installed: 45 MB, a third of a second.
    """
    types, kind = arrow().types, array.type
    if array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if types.is_integer(kind) or types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        data = array.buffers()[1] if len(array) else b""
        return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize * bool(data))
    if types.is_boolean(kind):
        bits = np.frombuffer(array.buffers()[1] if len(array) else b"", np.uint8)
        flags = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
        return flags[array.offset :].view(np.bool_)
    if types.is_large_string(kind):
        texts = np.empty(len(array), dtype=object)
        texts[:] = array.to_pylist()
        return texts
    return np.asarray(array.to_numpy(zero_copy_only=False))


def as_arrow(array: NDArray) -> Any:
    """An array as one of Arrow; integers and floats uncopied where they stand one after the other.

    As with ``as_numpy``, pyarrow's own way is taken for other types alone.
    """
    pa = arrow()
    if array.dtype.kind not in "iuf":
        return pa.array(array)
    own = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(own.dtype), len(own), [None, pa.py_buffer(own)]
    )


def are_numbers(column: Column) -> bool:
    """Whether numpy can compare the entries as they are: real numbers, none of them missing."""
    return is_real(column.type) and column.null_count == 0


def chosen_rows(table: Table, names: Sequence[str], rows: NDArray[np.int64]) -> Table:
    """The rows with these numbers, of some columns."""
    return table.select(list(names)).take(as_arrow(rows))


def gaps_as_nan(table: Table, names: Sequence[str]) -> Table:
    """The table with columns that have gaps as float64, NaN where a value is missing."""
    pa = arrow()
    for name in names:
        column = table.column(name)
        if column.null_count and (is_real(column.type) or pa.types.is_null(column.type)):
            filled = _exactly_as(column, pa.float64(), name).fill_null(float("nan"))
            table = table.set_column(table.column_names.index(name), name, filled)
    return table


def require_exact(column: Column, name: str) -> None:
    """Refuse integers of a column that float64 cannot hold."""
    types = arrow().types
    if types.is_int64(column.type) or types.is_uint64(column.type):
        for chunk in column.chunks:
            values = as_numpy(chunk.drop_null())
            if not float64_holds(values):
                require_float64(values, f"the column {name!r}, beside columns of floats,")


def _decoded(chunk: Any, kind: ArrowType) -> Any:
    pa = arrow()
    if isinstance(chunk.type, pa.BaseExtensionType):
        return _decoded(chunk.storage, kind)
    if pa.types.is_dictionary(chunk.type):
        # Texts of some types are cast before they are repeated: Arrow does not repeat them all.
        entries = pa.DictionaryArray.from_arrays(chunk.indices, _decoded(chunk.dictionary, kind))
        return entries.dictionary_decode()
    if pa.types.is_run_end_encoded(chunk.type):
        from pyarrow import compute

        return _decoded(compute.run_end_decode(chunk), kind)
    return chunk if chunk.type == kind else chunk.cast(kind)


def _common(a: ArrowType, b: ArrowType, name: str) -> ArrowType:
    """The type of a column that is of two types in two parts of a table."""
    pa = arrow()
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if is_real(a) and is_real(b):
        return pa.from_numpy_dtype(number_type([a, b]))
    raise InvalidType(
        f"the column {name!r} holds {a} in one part of the table and {b} in another; write it in "
        "one type."
    )


def _exactly_as(column: Column, kind: ArrowType, name: str) -> Column:
    if column.type == kind:
        return column
    if arrow().types.is_floating(kind):
        require_exact(column, name)
    if arrow().types.is_boolean(column.type):  # no cast to every type of number
        column = column.cast(arrow().uint8())
    return column.cast(kind)


def require_no_gap(column: Column, name: str, words: Any) -> None:
    """Refuse a column with missing values; ``words(row)`` says where the first is."""
    if column.null_count == 0:
        return
    from pyarrow import compute

    row = int(compute.index(compute.is_null(column), True).as_py())
    raise InvalidInput(
        f"{words(row)}: the column {name!r} has no value there ({column.null_count} are missing "
        "in all that was read with it); remove or impute them."
    )
