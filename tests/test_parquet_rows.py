"""Rows of a Parquet file in ranges: each row group is decoded once, and never all of it at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn
from polyattn.errors import FileFormatError
from polyattn.sources import parquet, parquet_rows
from polyattn.sources.parquet import ParquetPart
from polyattn.sources.parquet_rows import KeptReaders
from polyattn.sources.stamped_files import StampedFile
from table_cases import NAMES, assert_same, expected, frames, held

N_ROWS = 500


@pytest.fixture(scope="module")
def part(tmp_path_factory) -> ParquetPart:
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    table = pa.table({"a": np.arange(N_ROWS), "b": -np.arange(N_ROWS) / 3.0})
    with pq.ParquetWriter(path, table.schema) as writer:
        for first, stop in ((0, 7), (7, 7), (7, 300), (300, 301), (301, N_ROWS)):
            writer.write_table(table.slice(first, stop - first))
    return ParquetPart(StampedFile.found(path), ("a", "b"))


@pytest.fixture(autouse=True)
def readers(monkeypatch) -> list[parquet_rows.RowReader]:
    """Readers that were made in a test, all of small batches, and none kept from another test."""
    made: list[parquet_rows.RowReader] = []

    class Counted(parquet_rows.RowReader):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(parquet, "RowReader", Counted)
    monkeypatch.setattr(parquet, "READERS", KeptReaders(4))
    monkeypatch.setattr(parquet, "BATCH_ROWS", 16)
    return made


RANGES = st.tuples(st.integers(0, N_ROWS - 1), st.integers(1, N_ROWS), st.integers(0, 30))


@given(
    st.lists(RANGES, min_size=1, max_size=12), st.lists(st.sampled_from(["a", "b"]), min_size=12)
)
def test_ranges_in_any_order_are_the_rows(part, ranges, names) -> None:
    for (first, length, kept), name in zip(ranges, names, strict=False):
        stop = min(N_ROWS, first + length)
        rows = np.arange(first, stop)
        found = part.read(first, stop, [name], max(first, stop - kept)).column(name).to_numpy()
        np.testing.assert_array_equal(found, rows if name == "a" else -rows / 3.0)


def test_ranges_one_after_the_other_are_decoded_once(part, readers) -> None:
    for first in range(0, N_ROWS, 37):
        stop = min(first + 37, N_ROWS)
        assert part.read(first, stop, ["a"])["a"].to_pylist() == list(range(first, stop))
        # What comes behind is looked at, and then read.
        assert next(part.rows_from(stop, ["a"]), None) is None or stop < N_ROWS
    assert len(readers) == 1
    assert parquet.READERS._readers == []
    part.read(0, 5, ["a"])
    part.read(400, 410, ["a"])
    assert len(readers) == 3


def test_sequences_that_go_on_behind_a_chunk_are_decoded_once(tmp_path, monkeypatch, readers):
    monkeypatch.setattr(parquet, "FEW_ROWS", 8)
    table = pa.table({"id": np.repeat(np.arange(20), 100), "x": np.arange(2000.0)})
    pq.write_table(table.slice(0, 1150), tmp_path / "a.parquet")
    pq.write_table(table.slice(1150), tmp_path / "b.parquet")
    source = polyattn.scan(tmp_path / "*.parquet", sequence="id", tokens="x", chunk_bytes=61 * 16)
    assert len(source.chunks) == 33
    readers.clear()
    read = [chunk.read_inputs() for chunk in source.chunks]
    values = np.concatenate([data.batch.values for data in read if data is not None])
    np.testing.assert_array_equal(values[:, 0], np.arange(2000.0))
    # One of the numbers and one of the names, and few more where a range begins with a batch.
    assert len(readers) < 10
    assert parquet.READERS._readers == []
    # Where none is kept, each range begins anew.
    monkeypatch.setattr(parquet, "READERS", KeptReaders(0))
    readers.clear()
    for chunk in source.chunks:
        chunk.read_inputs()
    assert len(readers) > 80


def test_few_readers_are_kept_and_those_of_a_file_go_with_its_end(part) -> None:
    for first in (0, 20, 40, 60, 310, 330, 350):
        part.read(first, first + 2, ["b", "a"])
        part.read(first + 1, first + 2, ["a"], keep=first + 1)
    assert len(parquet.READERS._readers) == 4
    part.read(490, N_ROWS, ["b", "a"])
    assert parquet.READERS._readers == []


def test_threads_read_ranges_at_once(part) -> None:
    ranges = [(i * 31 % 480, i * 31 % 480 + 20) for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: part.read(*each, ["a"])["a"].to_pylist(), ranges))
    assert found == [list(range(*each)) for each in ranges]


def test_a_file_that_changes_between_two_ranges_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.arange(100)}), path)
    part = ParquetPart(StampedFile.found(path), ("a",))
    part.read(0, 10, ["a"])
    pq.write_table(pa.table({"a": np.arange(101)}), path)
    with pytest.raises(FileFormatError, match="has changed"):
        part.read(10, 20, ["a"])


@settings(max_examples=10)
@given(frame=frames(), chunk_bytes=st.integers(60, 2000), n_rows=st.integers(20, 200))
def test_chunks_of_any_size_are_the_table(tmp_path_factory, frame, chunk_bytes, n_rows) -> None:
    path = tmp_path_factory.mktemp("chunks") / "t.parquet"
    frame.to_parquet(path, index=False, row_group_size=n_rows)
    source = polyattn.scan(path, **NAMES, chunk_bytes=chunk_bytes)
    assert_same(held(source, "last"), expected(frame, "last"))


def test_of_a_large_row_group_a_chunk_is_in_memory(tmp_path: Path, monkeypatch) -> None:
    """The chunk is decoded in batches, and not with the whole row group (pre_buffer)."""
    monkeypatch.setattr(parquet, "BATCH_ROWS", parquet_rows.BATCH_ROWS)
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(10_000), 100)
    columns = {"id": names, **{name: rng.standard_normal(len(names)) for name in "xy"}}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, use_dictionary=False)
    source = polyattn.scan(path, sequence="id", tokens=["x", "y"], chunk_bytes=1 << 20)
    assert len(source.chunks) == 23
    before, most, n_sequences = pa.total_allocated_bytes(), 0, 0
    for chunk in source.chunks:
        data = chunk.read_inputs()
        most = max(most, pa.total_allocated_bytes() - before)
        n_sequences += len(data.batch)
    assert n_sequences == 10_000
    # Without the table itself, which is gone: some batches, buffers and pages of three columns.
    assert most < 8 << 20
    with pq.ParquetFile(path, pre_buffer=True) as whole:
        batches = whole.iter_batches(100)
        next(batches)
        assert pa.total_allocated_bytes() - before > 15 << 20


def test_a_damaged_file_with_checksums_is_refused(tmp_path):
    """Plain numbers, one bit of which differs: only the checksum of the page tells."""
    path, values = tmp_path / "a.parquet", np.random.default_rng(0).standard_normal(400)
    columns = {"id": np.repeat(np.arange(100), 4), "a": values, "y": np.ones(400)}
    plain = {"compression": "NONE", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.table(columns), path, **plain)
    whole, source = path.read_bytes(), {"sequence": "id", "tokens": ["a"], "targets": ["y"]}
    at = whole.index(values[:8].tobytes())
    polyattn.fit(polyattn.scan(path, **source))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(FileFormatError, match=r"a\.parquet.*(CRC|checksum)"):
        polyattn.fit(polyattn.scan(path, **source))
