"""Parquet and Arrow tables: however they are divided, they hold what pandas finds in the whole."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyattn.errors import (
    FileFormatError,
    InvalidInput,
    InvalidType,
    MissingExtra,
    PolyattnError,
)
from polyattn.sequences import SequenceBatch
from polyattn.sources import tables
from polyattn.sources.open_tables import open_tables
from source_cases import sent
from table_cases import NAMES, assert_same, expected, frames, held, read_all

MODES = st.sampled_from(["last", "causal", "full"])
LIMITS = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write_parquet(path: Path, table: pa.Table, n_rows: int = 1000) -> Path:
    pq.write_table(table, path, row_group_size=n_rows)
    return path


def write_arrow(path: Path, table: pa.Table, n_rows: int = 1000) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=n_rows)
    return path


WRITERS = {".parquet": write_parquet, ".arrow": write_arrow}


@LIMITS
@given(
    frame=frames(),
    mode=MODES,
    suffix=st.sampled_from(list(WRITERS)),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    n_rows=st.integers(1, 30),
    chunk_bytes=st.integers(1, 3000),
)
def test_any_division_into_files_and_groups_holds_what_pandas_finds(
    tmp_path: Path, frame, mode, suffix, cuts, n_rows, chunk_bytes
) -> None:
    borders = sorted({0, len(frame), *(cut % (len(frame) + 1) for cut in cuts)})
    paths = []
    for i, (first, stop) in enumerate(pairwise(borders)):
        part = pa.Table.from_pandas(frame[first:stop], preserve_index=False)
        paths.append(WRITERS[suffix](tmp_path / f"{i}{suffix}", part, n_rows))
    source = open_tables(paths, **NAMES, chunk_bytes=chunk_bytes)
    assert (source.n_dims, source.n_outputs, source.n_context_dims) == (2, 1, None)
    assert_same(held(source, mode), expected(frame, mode))
    ranges = [chunk.identity for chunk in source.chunks]
    assert len(set(ranges)) == len(ranges)
    assert sum(each.stop - each.first for each in ranges) == len(frame)


def test_the_comparison_sees_a_lost_row_and_a_divided_sequence(tmp_path: Path) -> None:
    frame = one_frame()
    wanted = expected(frame, "last")
    for wrong in (frame.drop(index=3), frame.assign(who=[*frame["who"][:-1], 99])):
        path = write_parquet(tmp_path / "x.parquet", pa.Table.from_pandas(wrong), 4)
        with pytest.raises(AssertionError):
            assert_same(held(open_tables(path, **NAMES), "last"), wanted)


def one_frame(lengths: tuple[int, ...] = (5, 1, 7)) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = sum(lengths)
    return pd.DataFrame(
        {
            "who": np.repeat(np.arange(len(lengths)) + 10, lengths),
            "when": np.arange(n)[::-1],
            "a": rng.normal(size=n),
            "b": rng.integers(-9, 9, size=n),
            "y": rng.normal(size=n),
            "w": np.repeat(1.5 + np.arange(len(lengths)), lengths),
        }
    )


def arrow_table(**columns: object) -> pa.Table:
    table = pa.Table.from_pandas(one_frame(), preserve_index=False)
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else pa.array(values)
        table = table.set_column(table.column_names.index(name), name, array)
    return table


def test_a_sequence_over_many_row_groups_leaves_chunks_without_any(tmp_path: Path) -> None:
    frame = one_frame((3, 50, 2))
    path = write_parquet(tmp_path / "x.parquet", pa.Table.from_pandas(frame), 4)
    source = open_tables(path, **NAMES, chunk_bytes=1)
    read = [chunk.read("last") for chunk in source.chunks]
    assert sum(data is None for data in read) > 10
    assert_same(held(source, "last"), expected(frame, "last"))


def test_chunks_are_read_alone_in_another_process(tmp_path: Path) -> None:
    frame = one_frame((3, 5, 2, 9))
    table = pa.Table.from_pandas(frame)
    paths = [
        write_parquet(tmp_path / "0.parquet", table[:7], 3),
        write_parquet(tmp_path / "1.parquet", table[7:], 3),
    ]
    source = open_tables(paths, **NAMES, chunk_bytes=100)
    arrived = [sent(chunk) for chunk in reversed(source.chunks)]
    assert max(n_bytes for _, n_bytes in arrived) < 3000
    found = [chunk.read("last") for chunk, _ in arrived]
    names = [name for data in reversed(found) if data is not None for name in data.names]
    assert names == [10, 11, 12, 13]


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    "names",
    [
        pa.array(["a", "b", "c"]),
        pa.array(["a", "b", "c"], pa.large_string()),
        pa.array(["a", "b", "c"]).dictionary_encode(),
        pa.array([1, 2, 2**62 + 1]),
        pa.array([1, 2, 2**64 - 1], pa.uint64()),
        pa.array([-1, 2, 3], pa.int8()),
        pa.array([b"x", b"x\0", b""]),
        pa.array([0.5, 1.5, 2.5]),
        pa.array([True, False, True]),
        pa.array([decimal.Decimal("0.10"), decimal.Decimal("0.20"), decimal.Decimal("0.30")]),
        pa.array([dt.date(2020, 1, day) for day in (1, 2, 3)]),
        pa.array([1, 2, 3], pa.timestamp("ns")),
        pa.array([1, 2, 3], pa.timestamp("us", tz="UTC")),
    ],
    ids=lambda array: str(array.type)[:20],
)
def test_names_of_any_type_are_told_apart(tmp_path: Path, suffix, names) -> None:
    table = arrow_table(who=names.take(pa.array(np.repeat(np.arange(3), (5, 1, 7)))))
    path = WRITERS[suffix](tmp_path / f"x{suffix}", table, 3)
    source = open_tables(path, **NAMES, chunk_bytes=200)
    assert len(source.chunks) > 2
    found = [data for data in (chunk.read("last") for chunk in source.chunks) if data]
    assert [len(each) for data in found for each in data.batch] == [5, 1, 7]
    together = np.concatenate([data.names for data in found])
    assert together.dtype == found[0].names.dtype
    plain = tables.plain_table(pa.table({"n": names})).column("n")
    wanted = plain.combine_chunks().to_numpy(zero_copy_only=False)
    assert together.tolist() == wanted.tolist()


def test_names_by_integers_of_two_types(tmp_path: Path) -> None:
    columns = {"sequence": "who", "tokens": "a"}
    for one, other, lengths in (
        (pa.array([1, 2**63 + 5], pa.uint64()), pa.array([-1, 1], pa.int64()), [1, 1, 1, 1]),
        (pa.array([-1, -1], pa.int64()), pa.array([2**64 - 1], pa.uint64()), [2, 1]),
        (pa.array([3, 3], pa.uint64()), pa.array([3, 4], pa.int8()), [3, 1]),
        (pa.array([300], pa.int16()), pa.array([44], pa.uint8()), [1, 1]),
    ):
        paths = [
            write_parquet(
                tmp_path / f"{i}.parquet", pa.table({"who": names, "a": [1.0] * len(names)})
            )
            for i, names in enumerate((one, other))
        ]
        found = [chunk.read_inputs() for chunk in open_tables(paths, **columns).chunks]
        assert [n for data in found if data for n in data.batch.lengths.tolist()] == lengths
    half = pa.table({"who": pa.array(np.ones(2, np.float16)), "a": [1.0, 2.0]})
    with pytest.raises(InvalidType, match="halffloat"):
        open_tables(write_parquet(tmp_path / "half.parquet", half), **columns)


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [
        (pa.float64(), pa.float64(), np.float64),
        (pa.float32(), pa.float32(), np.float32),
        (pa.float32(), pa.float64(), np.float64),
        (pa.int8(), pa.int64(), np.int64),
        (pa.uint16(), pa.uint16(), np.uint16),
        (pa.bool_(), pa.bool_(), np.bool_),
        (pa.bool_(), pa.int32(), np.int32),
        (pa.int64(), pa.float32(), np.float64),
        (pa.uint64(), pa.int64(), np.float64),
    ],
)
def test_types_of_numbers_stay_or_meet_exactly(tmp_path: Path, a, b, dtype) -> None:
    ones = np.ones(13)
    path = write_parquet(
        tmp_path / "x.parquet", arrow_table(a=pa.array(ones).cast(a), b=pa.array(ones).cast(b))
    )
    data = open_tables(path, **NAMES).chunks[0].read("last")
    assert data.batch.values.dtype == dtype
    assert np.all(data.batch.values == 1)


def test_large_integers_stay_or_are_refused(tmp_path: Path) -> None:
    large = np.full(13, 2**53 + 1)
    path = write_parquet(tmp_path / "x.parquet", arrow_table(a=large))
    whole = {**NAMES, "tokens": ["a", "b"]}
    data = open_tables(path, **whole).chunks[0].read("last")
    assert data.batch.values.dtype == np.int64
    assert np.all(data.batch.values[:, 0] == 2**53 + 1)
    mixed = {**NAMES, "tokens": ["a", "w"]}
    with pytest.raises(InvalidInput, match=r"'a'.*9007199254740993"):
        open_tables(path, **mixed).chunks[0].read("last")


def test_integers_of_one_file_meet_floats_of_the_next(tmp_path: Path) -> None:
    names = {"sequence": "who", "tokens": ["a"]}
    for large, fits in ((2**53, True), (2**53 + 1, False)):
        first = write_parquet(tmp_path / "0.parquet", pa.table({"who": [1, 1], "a": [1, large]}))
        second = write_parquet(
            tmp_path / "1.parquet",
            pa.table({"who": pa.array([1, 2], pa.int32()), "a": [0.5, 1.5]}),
        )
        chunk = open_tables([first, second], **names).chunks[0]
        if fits:
            np.testing.assert_array_equal(chunk.read("last").batch.values, [[1], [2**53], [0.5]])
        else:
            with pytest.raises(InvalidInput, match="9007199254740993"):
                chunk.read("last")


BAD_TABLES = {
    "no value in a token": ({"a": [1.0] * 7 + [None] * 6}, {}, InvalidInput, "'12', row 1.*'a'"),
    "NaN": ({"a": [1.0] * 7 + [np.nan] * 6}, {}, InvalidInput, "'12', row 1.*'a' holds nan"),
    "infinity": ({"a": [1.0] * 12 + [-np.inf]}, {}, InvalidInput, "'12', row 6.*'a' holds -inf"),
    "no target": ({"y": [None] + [1.0] * 12}, {}, InvalidInput, "'10', row 0.*'y'"),
    "target NaN": ({"y": [np.nan] + [1.0] * 12}, {}, InvalidInput, "'10', row 0.*'y'"),
    "no name": ({"who": [None] + [1] * 12}, {}, InvalidInput, "'who' has no value"),
    "NaN as a name": ({"who": [np.nan] + [1.0] * 12}, {}, InvalidInput, "'who' must name"),
    "empty name": ({"who": [""] + ["a"] * 12}, {}, InvalidInput, "'who' must name"),
    "no order": ({"when": [None, *range(12)]}, {}, InvalidInput, "'10', row 0.*'when'"),
    "order NaN": ({"when": [np.nan, *range(12)]}, {}, InvalidInput, "'when' holds nan"),
    "equal order": ({"when": [5, 4, 3, 4, *range(9)]}, {}, InvalidInput, "'10'.*'when' is '4'"),
    "weights differ": ({"w": [*range(13)]}, {}, InvalidInput, "'10'.*same in all"),
    "weight missing": ({"w": [None] + [1.0] * 12}, {}, InvalidInput, "'w' has no value"),
    "order of texts": ({"when": [str(i) for i in range(13)]}, {}, InvalidType, "order must"),
    "token of texts": ({"a": ["1"] * 13}, {}, InvalidType, "'a' must hold real numbers"),
    "token of times": ({"a": pa.array([1] * 13, pa.timestamp("s"))}, {}, InvalidType, "'a'"),
    "decimals": ({"a": [decimal.Decimal("0.1")] * 13}, {}, InvalidType, "decimal128"),
    "names of lists": ({"who": [[1]] * 13}, {}, InvalidType, "sequence must"),
    "misspelt": ({}, {"weight": "When"}, InvalidInput, "no column 'When'. Did you mean 'when'"),
    "absent": ({}, {"order": "zzz"}, InvalidInput, "no column 'zzz'. Its columns"),
    "no sequence": ({}, {"sequence": None}, InvalidInput, "give sequence="),
    "no tokens": ({}, {"tokens": []}, InvalidInput, "at least one column"),
    "token twice": ({}, {"tokens": ["a", "a"]}, InvalidInput, "'a' twice"),
    "no name of a column": ({}, {"tokens": [3]}, InvalidType, "names of columns"),
    "order as a number": ({}, {"order": 3}, InvalidType, "name of a column"),
    "no bytes": ({}, {"chunk_bytes": 0}, InvalidInput, "chunk_bytes"),
    "mode": ({}, {}, InvalidInput, "mode must be"),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("case", BAD_TABLES)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, case, suffix) -> None:
    columns, names, error, words = BAD_TABLES[case]
    path = WRITERS[suffix](tmp_path / f"x{suffix}", arrow_table(**columns))
    mode = "first" if case == "mode" else "last"
    with pytest.raises(error, match=words):
        read_all(open_tables(path, **{**NAMES, **names}), mode)


def test_targets_that_are_not_used_may_be_missing(tmp_path: Path) -> None:
    # Sorted by "when", the first row of each sequence is its last token.
    targets = [1.0, None, None, None, np.nan, 2.0, 3.0, *[None] * 6]
    path = write_parquet(tmp_path / "x.parquet", arrow_table(y=targets))
    chunk = open_tables(path, **NAMES).chunks[0]
    assert chunk.read("last").targets.tolist() == [[1.0], [2.0], [3.0]]
    with pytest.raises(InvalidInput, match=r"'10', row 1.*'y'"):
        chunk.read("causal")


def test_inputs_are_read_without_the_targets(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", arrow_table(y=[None] * 13))
    data = open_tables(path, **NAMES).chunks[0].read_inputs()
    assert data.targets is None
    assert data.names.tolist() == [10, 11, 12]


def test_orders_are_numbers_or_times_and_none_keeps_the_rows(tmp_path: Path) -> None:
    when = [5, 3, 9]
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.date32(), pa.date64(), pa.time32("s"),
                 pa.time64("ns"), pa.timestamp("us"), pa.duration("ms")):  # fmt: skip
        # Days in milliseconds, so that a date64 is a whole day.
        numbers = np.array(when) * (86_400_000 if kind == pa.date64() else 1)
        table = pa.table({"who": [1] * 3, "when": pa.array(numbers).cast(
            pa.int32() if kind in (pa.date32(), pa.time32("s")) else pa.int64()
        ).cast(kind), "a": when})  # fmt: skip
        path = write_parquet(tmp_path / "x.parquet", table)
        names = {"sequence": "who", "order": "when", "tokens": "a"}
        data = open_tables(path, **names).chunks[0].read("last")
        assert data.batch.values.tolist() == [[3], [5], [9]], kind
        unsorted = open_tables(path, **{**names, "order": None}).chunks[0].read("last")
        assert unsorted.batch.values.tolist() == [[5], [3], [9]]
        assert data.targets is None
        assert data.weights is None


LISTS = {
    "two columns": ({"a": [[1, 2], [3]], "b": [[4, 5], [6]]}, ["a", "b"]),
    "one of tokens": ({"t": [[[1, 4], [2, 5]], [[3, 6]]]}, ["t"]),
    "fixed tokens": (
        {"t": pa.array([[[1, 4], [2, 5]], [[3, 6]]], pa.list_(pa.list_(pa.int64(), 2)))}, ["t"]
    ),
    "large lists": (
        {"t": pa.array([[[1, 4], [2, 5]], [[3, 6]]], pa.large_list(pa.large_list(pa.int64())))},
        ["t"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("case", LISTS)
def test_lists_are_one_sequence_per_row(tmp_path: Path, case, suffix) -> None:
    columns, tokens = LISTS[case]
    table = pa.table(
        {**columns, "y": [7.0, 8.0], "z": [[1.0, 2.0], [3.0]], "w": [1, 2], "who": ["p", "q"]}
    )
    path = WRITERS[suffix](tmp_path / f"x{suffix}", table, 1)
    names = {"sequence": "who", "tokens": tokens, "weight": "w"}
    source = open_tables(path, **names, targets=["y"], chunk_bytes=1)
    assert (source.n_dims, source.n_outputs) == (2, 1)
    data = [chunk.read("last") for chunk in source.chunks]
    assert [each.batch.values.tolist() for each in data] == [[[1, 4], [2, 5]], [[3, 6]]]
    assert [each.targets.tolist() for each in data] == [[[7.0]], [[8.0]]]
    assert [(*each.names, *each.weights) for each in data] == [("p", 1), ("q", 2)]
    with pytest.raises(InvalidInput, match="one target per token"):
        source.chunks[0].read("causal")
    per_token = open_tables(path, **names, targets=["z"], chunk_bytes=1)
    assert per_token.chunks[0].read("last").targets.tolist() == [[2.0]]
    targets = per_token.chunks[0].read("full").targets
    assert isinstance(targets, SequenceBatch)
    assert targets.values.tolist() == [[1.0], [2.0]]


def test_vectors_of_equal_length_in_lists(tmp_path: Path) -> None:
    tokens = np.arange(24.0).reshape(2, 4, 3)
    kind = pa.list_(pa.list_(pa.float64(), 3), 4)
    path = write_parquet(tmp_path / "x.parquet", pa.table({"t": pa.array(tokens.tolist(), kind)}))
    source = open_tables(path, tokens="t", targets="t")
    data = source.chunks[0].read("full")
    assert (source.n_dims, source.n_outputs, data.names) == (3, 3, None)
    np.testing.assert_array_equal(data.batch.values.reshape(2, 4, 3), tokens)
    np.testing.assert_array_equal(data.targets.values.reshape(2, 4, 3), tokens)


BAD_LISTS = {
    "unequal": ({"a": [[1.0, 2.0]], "b": [[1.0]]}, ["a", "b"], {}, InvalidInput, "unequal lengths"),
    "empty": ({"a": [[]]}, ["a"], {}, InvalidInput, "no tokens"),
    "missing list": ({"a": [None, [1.0]]}, ["a"], {}, InvalidInput, "'a' has no value"),
    "missing entry": ({"a": [[1.0, None]]}, ["a"], {}, InvalidInput, "token 1.*'a' has no value"),
    "NaN": ({"a": [[1.0], [2.0, np.nan]]}, ["a"], {}, InvalidInput, "row 1.*token 1"),
    "ragged": ({"t": [[[1.0], [1.0, 2.0]]]}, ["t"], {}, InvalidInput, "token 1.*2 coordinates"),
    "missing vector": ({"t": [[[1.0], None]]}, ["t"], {}, InvalidInput, "token 1"),
    "mixed": ({"t": [[1.0]], "a": [1.0]}, ["t", "a"], {}, InvalidType, "one column of lists"),
    "texts": ({"t": [["x"]]}, ["t"], {}, InvalidType, "real numbers"),
    "too deep": ({"t": [[[[1.0]]]]}, ["t"], {}, InvalidType, "too deep"),
    "order": ({"t": [[1.0]], "o": [1]}, ["t"], {"order": "o"}, InvalidInput, "leave order="),
    "targets": (
        {"t": [[1.0]], "y": [[1.0, 2.0]]}, ["t"], {"targets": "y"}, InvalidInput, "2 targets"
    ),
    "NaN target": (
        {"t": [[1.0]], "y": [np.nan]}, ["t"], {"targets": "y"}, InvalidInput, "'y' holds nan"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_LISTS)
def test_lists_that_cannot_be_used_are_refused(tmp_path: Path, case) -> None:
    columns, tokens, names, error, words = BAD_LISTS[case]
    path = write_parquet(tmp_path / "x.parquet", pa.table(columns))
    with pytest.raises(error, match=words):
        open_tables(path, tokens=tokens, **names).chunks[0].read("last")


@pytest.mark.parametrize("suffix", WRITERS)
def test_broken_and_foreign_files_are_named(tmp_path: Path, suffix) -> None:
    whole = WRITERS[suffix](tmp_path / f"whole{suffix}", arrow_table()).read_bytes()
    path = tmp_path / f"x{suffix}"
    for content in (b"", b"who,a\n1,2\n", whole[:-7], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=f"x{suffix}.*cannot be read"):
            open_tables(path, **NAMES)
    WRITERS[suffix](path, arrow_table()[:0])
    with pytest.raises(InvalidInput, match="no rows"):
        open_tables(path, **NAMES)
    other = arrow_table().append_column("a", pa.array([1] * 13))
    WRITERS[suffix](path, other)
    with pytest.raises(FileFormatError, match="2 columns called 'a'"):
        open_tables(path, **NAMES)


def test_paths_that_make_no_table_are_refused(tmp_path: Path) -> None:
    one = write_parquet(tmp_path / "x.parquet", arrow_table())
    arrow_file = write_arrow(tmp_path / "x.arrow", arrow_table())
    (tmp_path / "link.parquet").symlink_to(one)
    (tmp_path / "x.txt").write_text("who\n1\n")
    for paths, error, words in (
        ([], InvalidType, "one file or a list"),
        (3, InvalidType, "one file or a list"),
        ([one, tmp_path / "link.parquet"], InvalidInput, "given twice"),
        ([one, arrow_file], InvalidInput, "one suffix"),
        (tmp_path / "x.txt", InvalidInput, "suffixes .parquet"),
        (tmp_path / "absent.parquet", FileNotFoundError, "absent"),
    ):
        with pytest.raises(error, match=words):
            open_tables(paths, **NAMES)
    texts = pa.array([str(i) for i in range(13)])
    other = write_parquet(tmp_path / "y.parquet", arrow_table(who=texts))
    with pytest.raises(FileFormatError, match="'who' names sequences by int64"):
        open_tables([one, other], **NAMES)
    lists = write_parquet(tmp_path / "z.parquet", arrow_table(a=[[1.0]] * 13, b=[[1.0]] * 13))
    with pytest.raises(FileFormatError, match="one format"):
        open_tables([one, lists], **NAMES)


def test_a_file_that_changes_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = write_parquet(tmp_path / "x.parquet", arrow_table())
    chunk = open_tables(path, **NAMES).chunks[0]
    assert chunk.read("last") is not None
    write_parquet(path, arrow_table(a=np.zeros(13)))
    with pytest.raises(FileFormatError, match="changed since it was listed"):
        chunk.read("last")
    chunk = open_tables(path, **NAMES).chunks[0]
    iter_batches = pq.ParquetFile.iter_batches

    def touched(*given, **named):
        os.utime(path, ns=(1, 1))
        return iter_batches(*given, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", touched)
    with pytest.raises(FileFormatError, match="changed while it was read"):
        chunk.read("last")
    path.unlink()
    with pytest.raises(FileFormatError, match="is gone"):
        chunk.read("last")


def test_a_sequence_over_too_many_files_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "MOST_PARTS", 2)
    table = pa.table({"who": [1, 1], "a": [1.0, 2.0]})
    paths = [write_parquet(tmp_path / f"{i}.parquet", table) for i in range(4)]
    with pytest.raises(InvalidInput, match="goes on over 2 parts"):
        open_tables(paths, sequence="who", tokens="a").chunks[0].read("last")
    data = open_tables(paths[:2], sequence="who", tokens="a").chunks[0].read("last")
    assert len(data.batch.values) == 4


def test_only_the_named_columns_are_read(tmp_path: Path, monkeypatch) -> None:
    path = write_parquet(tmp_path / "x.parquet", arrow_table())
    asked = []
    iter_batches = pq.ParquetFile.iter_batches

    def watched(self, *given, columns, **named):
        asked.append(columns)
        return iter_batches(self, *given, columns=columns, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    open_tables(path, sequence="who", tokens="a").chunks[0].read("last")
    assert {name for columns in asked for name in columns} == {"who", "a"}


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", arrow_table())
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import polyattn\n"
        "from polyattn.sources.open_tables import open_tables\n"
        "from polyattn.errors import MissingExtra\n"
        "try:\n"
        f"    open_tables({str(path)!r}, sequence='who', tokens='a')\n"
        "except MissingExtra as error:\n"
        "    assert 'polyattn[arrow]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('read without pyarrow')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert issubclass(MissingExtra, PolyattnError)
