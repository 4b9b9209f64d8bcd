"""Numbers between Arrow and numpy: the same as by pyarrow's own way, which imports pandas."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import polyattn
from polyattn.sources.arrow_tables import as_arrow, as_numpy, chosen_rows, numbers

COLUMNS = {
    "int64": pa.array([3, -1, 2**62, 0, 5]),
    "uint8": pa.array([3, 1, 255, 0, 5], pa.uint8()),
    "float": pa.array([0.5, -0.0, np.inf, 5e-324, 1.0]),
    "float32": pa.array([0.5, -0.0, 3e38, 1e-45, 1.0], pa.float32()),
    "half": pa.array(np.array([0.5, 1.0, 2.0, 3.0, 4.0], np.float16)),
    "flag": pa.array([True, False, False, True, True] * 9),
    "text": pa.array(["a", "", "ü", "10", "b"], pa.large_string()),
    "gap": pa.array([1, None, 3, 4, None]),
    "float gap": pa.array([1.5, None, 3.0, 4.0, None]),
    "time": pa.array(np.arange(5).astype("datetime64[s]")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_are_those_of_pyarrow(name) -> None:
    column = COLUMNS[name]
    for part in (column, column.slice(1), column.slice(2, 2), column.slice(5), column.slice(1, 0)):
        wanted = part.to_numpy(zero_copy_only=False)
        found = as_numpy(part)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    pieces = pa.chunked_array([column.slice(3), column.slice(0, 0), column.slice(1, 3)])
    np.testing.assert_array_equal(numbers(pieces), pieces.to_numpy())
    none = pa.chunked_array([], type=column.type)
    assert (len(numbers(none)), numbers(none).dtype) == (0, none.to_numpy().dtype)
    rows = chosen_rows(pa.table({"c": pieces}), ["c"], np.array([2, 0]))
    assert rows["c"].to_pylist() == [pieces[2].as_py(), pieces[0].as_py()]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u2", ">f8", "?", "M8[D]", "U3"])
def test_there_and_back(dtype) -> None:
    given = np.arange(12).astype(dtype).reshape(3, 4)
    for array in (given[1], given[:, 2], given[0, :0]):
        assert as_arrow(array).equals(pa.array(array.astype(array.dtype.newbyteorder("="))))


def test_tables_are_read_without_pandas(tmp_path: Path) -> None:
    table = pa.table({"id": np.repeat(np.arange(9), 3), "x": np.arange(27.0), "y": np.ones(27)})
    pq.write_table(table, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    code = (
        "import sys, polyattn as pa\n"
        "for suffix in ('parquet', 'csv'):\n"
        "    source = pa.scan(f't.{suffix}', sequence='id', tokens='x', targets='y')\n"
        "    assert pa.fit(source, ridge=1.0).statistics.n_rows == 9\n"
        "    assert 'pandas' not in sys.modules, suffix\n"
        "import pyarrow\n"
        "pyarrow.array([1]).to_numpy()\n"
        "assert 'pandas' in sys.modules, 'the way through pyarrow is as good by now'\n"
    )
    sources = str(Path(polyattn.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": sources},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
