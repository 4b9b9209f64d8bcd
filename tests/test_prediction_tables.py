"""Tables of predictions: read again they are the same numbers, and they are whole or absent."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from polyattn.errors import InvalidInput
from polyattn.sources import prediction_tables
from polyattn.sources.open_tables import open_tables
from polyattn.sources.prediction_tables import PredictedPart, write_predictions

RNG = np.random.default_rng(3)
HARD = np.array([[0.1, 1e-310], [-0.0, 1.7976931348623157e308], [2 / 3, 5e-324]])


def read(path: Path) -> pd.DataFrame:
    """The table, of a CSV file as Python reads its texts."""
    if path.suffix != ".csv":
        return pq.read_table(path).to_pandas()
    with path.open(newline="") as file:
        table = pd.DataFrame(list(csv.DictReader(file)))
    numbers = [name for name in table.columns if name != "sequence" or table[name][0] == "0"]
    return table.astype(dict.fromkeys(numbers, float))


@pytest.mark.parametrize("name", ["p.parquet", "p.pq", "p.csv"])
def test_numbers_are_read_again_as_they_were(tmp_path: Path, name) -> None:
    path = tmp_path / name
    parts = [PredictedPart(HARD), PredictedPart(np.asfortranarray(HARD[:2]))]
    assert write_predictions(path, parts) == 5
    table = read(path)
    assert list(table.columns) == ["sequence", "prediction_0", "prediction_1"]
    assert table["sequence"].tolist() == [0, 1, 2, 3, 4]
    wanted = np.concatenate([HARD, HARD[:2]])
    np.testing.assert_array_equal(table[["prediction_0", "prediction_1"]].to_numpy(), wanted)
    assert np.signbit(table["prediction_0"].to_numpy()[1])


@pytest.mark.parametrize("name", ["p.parquet", "p.csv"])
def test_predictions_per_token_keep_names_and_can_be_scanned(tmp_path: Path, name) -> None:
    path = tmp_path / name
    names = np.array(["b, c", 'q"', "7"], dtype=object)
    values = RNG.normal(size=(6, 1))
    parts = [
        PredictedPart(values[:4], np.array([1, 3]), names[:2]),
        PredictedPart(values[4:], np.array([2]), names[2:]),
    ]
    assert write_predictions(path, parts) == 6
    source = open_tables(path, sequence="sequence", order="token", tokens="prediction_0")
    data = source.chunks[0].read("last")
    assert data.names.tolist() == names.tolist()
    assert data.batch.lengths.tolist() == [1, 3, 2]
    np.testing.assert_array_equal(data.batch.values, values)
    assert read(path)["token"].tolist() == [0, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("dtype", ["datetime64[D]", "int32", "bool", "float32"])
def test_names_of_other_types(tmp_path: Path, dtype) -> None:
    path = tmp_path / "p.parquet"
    names = np.arange(2).astype(dtype)
    write_predictions(path, [PredictedPart(np.ones((2, 1), dtype=np.float32), names=names)])
    back = pq.read_table(path).column("sequence").to_numpy()
    np.testing.assert_array_equal(back, names)


def test_rows_are_gathered_in_groups_and_never_all_held(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(prediction_tables, "GROUP_ROWS", 10)
    path = tmp_path / "p.parquet"
    assert write_predictions(path, (PredictedPart(np.ones((4, 1))) for _ in range(7))) == 28
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sizes == [12, 12, 4]
    assert pq.read_table(path).column("sequence").to_pylist() == list(range(28))


def test_a_large_part_is_divided_into_groups(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(prediction_tables, "GROUP_ROWS", 10)
    path = tmp_path / "p.parquet"
    parts = [PredictedPart(np.arange(35.0)[:, None], np.array([30, 5])), PredictedPart(
        np.arange(35.0, 44.0)[:, None], np.array([9])
    )]  # fmt: skip
    assert write_predictions(path, parts) == 44
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sizes == [11, 12, 12, 9]
    found = pq.read_table(path)
    assert found.column("sequence").to_pylist() == [0] * 30 + [1] * 5 + [2] * 9
    assert found.column("token").to_pylist() == [*range(30), *range(5), *range(9)]
    assert found.column("prediction_0").to_pylist() == list(range(44))


def failing() -> Iterator[PredictedPart]:
    yield PredictedPart(np.ones((2, 1)))
    raise RuntimeError("no more")


@pytest.mark.parametrize("name", ["p.parquet", "p.csv"])
def test_a_part_that_fails_leaves_the_earlier_file(tmp_path: Path, name, monkeypatch) -> None:
    monkeypatch.setattr(prediction_tables, "GROUP_ROWS", 1)
    path = tmp_path / name
    write_predictions(path, [PredictedPart(HARD)])
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="no more"):
        write_predictions(path, failing())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [name]


BAD_PARTS = {
    "none": ([], "no predictions"),
    "other outputs": ([PredictedPart(np.ones((1, 1))), PredictedPart(HARD)], "same columns"),
    "other names": (
        [PredictedPart(HARD), PredictedPart(HARD, names=np.array(["a", "b", "c"]))],
        "same columns",
    ),
    "too few names": ([PredictedPart(HARD, names=np.array([1]))], "as many names"),
    "lengths": ([PredictedPart(HARD, np.array([1, 1]))], "one row per token"),
    "one axis": ([PredictedPart(np.ones(3))], "must have shape"),
}


@pytest.mark.parametrize("case", BAD_PARTS)
def test_parts_that_make_no_table_are_refused(tmp_path: Path, case) -> None:
    parts, words = BAD_PARTS[case]
    with pytest.raises(InvalidInput, match=words):
        write_predictions(tmp_path / "p.csv", parts)
    assert not list(tmp_path.iterdir())


def test_names_of_files_say_the_format(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"suffixes \.parquet"):
        write_predictions(tmp_path / "p.txt", [PredictedPart(HARD)])
    with pytest.raises(InvalidInput, match="does not exist"):
        write_predictions(tmp_path / "absent" / "p.csv", [PredictedPart(HARD)])
