"""Columns of tables in memory as numpy arrays, with what is missing; and those of pandas.

pandas is not imported: whoever has a frame of it has it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.arrays import NUMBERS, real_array, require_float64

# Objects below it, in magnitude, are numbers of numpy.
LARGEST = 1 << 63


@dataclass(frozen=True, eq=False)
class FrameColumn:
    """A column of a table.

    values : (n_rows,); numbers, times (datetime64, timedelta64 or counts of some unit), or objects
    missing : which of them are missing; None where none is
    kind : "number", "time", "text", or "other"
    held : what it holds, in words
    """

    name: Hashable
    values: NDArray
    missing: NDArray[np.bool_] | None
    kind: str
    held: str

    @classmethod
    def of_numbers(
        cls, name: Hashable, values: NDArray, missing: NDArray[np.bool_] | None = None
    ) -> FrameColumn:
        """From numbers or times of numpy; NaN and NaT are missing, too."""
        gaps = np.isnat(values) if values.dtype.kind in "mM" else None
        if values.dtype.kind == "f":
            gaps = np.isnan(values)
        if missing is not None and gaps is not None:
            gaps = gaps | missing
        elif missing is not None:
            gaps = missing
        kind = "time" if values.dtype.kind in "mM" else "number"
        return cls(name, values, _if_any(gaps), kind, str(values.dtype))

    @classmethod
    def of_objects(
        cls, name: Hashable, values: NDArray, missing: NDArray[np.bool_] | None, held: str = ""
    ) -> FrameColumn:
        """From an array of Python objects: texts, numbers, or whatever else they are."""
        there: Any = values if missing is None else values[~missing]
        if len(values) and not len(there):
            return cls(name, np.zeros(len(values)), missing, "number", "nothing")
        other = next((item for item in there if not isinstance(item, str)), None)
        if other is None:
            return cls(name, values, _if_any(missing), "text", "text")
        real = all(isinstance(item, NUMBERS) for item in there)
        if real and all(abs(item) < LARGEST for item in there):
            found = real_array(there, f"the column {name!r}", keep_integers=True)
            filled = np.zeros(len(values), dtype=found.dtype)
            filled[slice(None) if missing is None else ~missing] = found
            return cls.of_numbers(name, filled, missing)
        return cls(name, values, _if_any(missing), "other", held or f"{type(other).__name__}s")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_missing(self) -> int:
        """How many values are missing."""
        return 0 if self.missing is None else int(np.count_nonzero(self.missing))

    def require_number(self, role: str, place: str) -> None:
        """Refuse what is no real number; decimals would be rounded."""
        if self.kind != "number":
            raise InvalidType(
                f"{place}: {role} must be columns of real numbers; {self.name!r} holds "
                f"{self.held}. Convert it first, for example to float64."
            )

    def require_order(self, place: str) -> None:
        """Refuse an order that is no number and no time: of texts, '10' stands before '9'."""
        if self.kind not in ("number", "time"):
            raise InvalidType(
                f"{place}: order must be a column of numbers, dates or times; {self.name!r} holds "
                f"{self.held}. Convert it first."
            )

    def numbered(self, place: str) -> tuple[NDArray, NDArray[np.intp]]:
        """The different values, sorted, and the position of that of each row among them.

        Refused where one is missing, an empty text, or where they cannot be compared.
        """
        if self.missing is not None:
            raise InvalidInput(
                f"{place}: the column {self.name!r} must name the sequence in every row; it has no "
                f"value in {self.n_missing} of {len(self)}, first in row "
                f"{int(np.argmax(self.missing))}."
            )
        if self.values.dtype.kind != "O":
            return np.unique(self.values, return_inverse=True)
        try:
            different = sorted(set(self.values.tolist()))
        except TypeError:
            raise InvalidType(
                f"{place}: sequence must be a column of numbers, texts or times that can be "
                f"compared; {self.name!r} holds {self.held} that cannot. Convert it first."
            ) from None
        if different and different[0] == "":
            raise InvalidInput(
                f"{place}: the column {self.name!r} must name the sequence in every row; it holds "
                "an empty text."
            )
        at = {each: i for i, each in enumerate(different)}
        names = np.empty(len(different), dtype=object)
        names[:] = different
        return names, np.array([at[each] for each in self.values.tolist()], dtype=np.intp)


def number_matrix(columns: list[FrameColumn], rows: NDArray[np.intp]) -> NDArray:
    """Columns of numbers side by side, (n_rows, n_columns), of the type that holds all of them.

    NaN where one is missing.  Integers that would be rounded beside floats are refused.
    """
    dtype = np.result_type(*(each.values.dtype for each in columns))
    if dtype.kind != "f" and any(each.missing is not None for each in columns):
        dtype = np.dtype(np.float64)
    if dtype.kind == "f":
        for each in columns:
            require_float64(each.values, f"the column {each.name!r}, beside floats or gaps,")
    result = np.empty((len(rows), len(columns)), dtype=dtype)
    for j, each in enumerate(columns):
        result[:, j] = each.values[rows]
        if each.missing is not None:
            result[each.missing[rows], j] = np.nan
    return result


def is_pandas(frame: object) -> TypeGuard[Any]:
    """Whether it is a frame of pandas, or of a class made from it."""
    return any(
        each.__name__ == "DataFrame" and each.__module__.partition(".")[0] == "pandas"
        for each in type(frame).__mro__
    )


def is_indexed(frame: object) -> TypeGuard[Any]:
    """Whether it is a frame of pandas whose index names the sequence and the time of each row."""
    return is_pandas(frame) and frame.index.nlevels > 1


def pandas_names(frame: Any) -> list[Hashable]:
    """The columns of a frame and the levels of its index that have names."""
    return [*frame.columns, *(name for name in frame.index.names if name is not None)]


def pandas_column(frame: Any, name: Hashable) -> FrameColumn:
    """The column or the level of the index with this name, which is there once."""
    if name in frame.columns:
        return series_column(frame.loc[:, name], name)
    return index_column(frame, list(frame.index.names).index(name))


def index_column(frame: Any, level: int) -> FrameColumn:
    """A level of the index by its position."""
    index = frame.index
    name = index.names[level]
    values = index.get_level_values(level).to_series(index=range(len(index)))
    return series_column(values, f"level {level} of the index" if name is None else name)


def series_column(series: Any, name: Hashable) -> FrameColumn:
    """A series of pandas, whatever its type: nullable, of Arrow, categories, time zones."""
    dtype, missing = series.dtype, np.asarray(series.isna(), dtype=bool)
    kind = getattr(dtype, "kind", "O")
    if hasattr(dtype, "categories"):
        return _decoded(series, name, missing)
    if isinstance(dtype, np.dtype) and kind != "O":
        values = series.to_numpy()
    elif hasattr(dtype, "tz") and kind == "M":  # counted from 1970 in UTC, whatever the zone
        values = series.array.asi8.view(f"datetime64[{dtype.unit}]")
    elif type(dtype).__name__ == "PeriodDtype":
        return FrameColumn(name, series.array.asi8, _if_any(missing), "time", str(dtype))
    elif kind in "biufmM" and hasattr(dtype, "numpy_dtype"):
        values = series.to_numpy(dtype=dtype.numpy_dtype, na_value=0)
    elif kind in "biuf":
        values = np.asarray(series)
    else:
        return FrameColumn.of_objects(name, series.to_numpy(dtype=object), missing)
    if values.dtype.kind not in "biufmM" or values.dtype.itemsize > 8:
        return FrameColumn(name, values, _if_any(missing), "other", str(values.dtype))
    return FrameColumn.of_numbers(name, values, missing)


def _decoded(series: Any, name: Hashable, missing: NDArray[np.bool_]) -> FrameColumn:
    """Categories as the values that they stand for."""
    held = series_column(series.dtype.categories.to_series(), name)
    if missing.all():
        return FrameColumn(name, np.zeros(len(series)), _if_any(missing), held.kind, held.held)
    values = held.values[np.where(missing, 0, series.cat.codes.to_numpy())]
    return FrameColumn(name, values, _if_any(missing), held.kind, held.held)


def _if_any(missing: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    return missing if missing is not None and missing.any() else None
