"""CSV tables: wherever the bytes are divided, they hold what pandas finds in the whole file."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.sources import csv
from polyattn.sources.open_tables import open_tables
from table_cases import NAMES, assert_same, expected, frames, held, read_all

LIMITS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@LIMITS
@given(
    frame=frames(),
    mode=st.sampled_from(["last", "causal", "full"]),
    cuts=st.lists(st.integers(0, 200), max_size=3),
    chunk_bytes=st.integers(20, 2000),
    few_bytes=st.sampled_from([5, 64, 1 << 16]),
    ends=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([0, 1, 2]),
    last_break=st.booleans(),
    blank=st.sampled_from(["", "\n", "\r\n\n"]),
)
def test_any_division_into_files_and_bytes_holds_what_pandas_finds(
    tmp_path: Path, frame, mode, cuts, chunk_bytes, few_bytes, ends, quoting, last_break, blank
) -> None:
    borders = sorted({0, len(frame), *(cut % (len(frame) + 1) for cut in cuts)})
    paths = []
    for i, (first, stop) in enumerate(pairwise(borders)):
        text = frame[first:stop].to_csv(index=False, lineterminator=ends, quoting=quoting)
        text = text + blank if last_break else text.removesuffix(ends)
        paths.append(tmp_path / f"{i}.csv")
        paths[-1].write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "FEW_BYTES", few_bytes)
        source = open_tables(paths, **NAMES, chunk_bytes=chunk_bytes)
        found = held(source, mode)
    assert_same(found, expected(frame, mode))
    sizes = sum(chunk.identity.stop - chunk.identity.first for chunk in source.chunks)
    headers = [path.read_bytes().index(b"\n") + 1 for path in paths]
    assert sizes == sum(path.stat().st_size for path in paths) - sum(headers)


def test_the_comparison_sees_a_divided_sequence(tmp_path: Path, monkeypatch) -> None:
    frame = pd.DataFrame({"who": [1] * 30, "when": range(30), "a": 0.5, "b": 1, "y": 2.0, "w": 1})
    path = tmp_path / "x.csv"
    frame.to_csv(path, index=False)
    source = open_tables(path, **NAMES, chunk_bytes=100)
    assert len(source.chunks) > 2
    assert_same(held(source, "last"), expected(frame, "last"))
    # Without a look at the row before, each chunk would begin a sequence.
    monkeypatch.setattr(csv.CsvPart, "row_before", lambda *_: None)
    with pytest.raises(AssertionError):
        assert_same(held(source, "last"), expected(frame, "last"))


def text_file(tmp_path: Path, text: str | bytes, name: str = "x.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def tokens_of(path: Path, **names: object) -> np.ndarray:
    given = {"sequence": "who", "tokens": ["a"], **names}
    return open_tables(path, **given).chunks[0].read("last").batch.values


def test_names_are_texts_as_they_stand(tmp_path: Path) -> None:
    path = text_file(tmp_path, 'who,a\n07,1\n7,2\n7.0,3\nNA,4\n ,5\n"q,""",6\n')
    data = open_tables(path, sequence="who", tokens="a").chunks[0].read("last")
    assert data.names.tolist() == ["07", "7", "7.0", "NA", " ", 'q,"']
    assert data.batch.values.dtype == np.int64


def test_tabs_byte_order_marks_and_other_columns_of_one_name(tmp_path: Path) -> None:
    path = text_file(tmp_path, b"\xef\xbb\xbfwho\tx\tx\ta\n1\tq\tq\t2.5\n", "x.tsv")
    assert tokens_of(path).tolist() == [[2.5]]


def test_integers_are_never_rounded(tmp_path: Path) -> None:
    large = 2**53 + 1
    assert tokens_of(text_file(tmp_path, f"who,a\n1,{large}\n1,-3\n")).tolist() == [[large], [-3]]
    for kept in (f"{2**53}", "1e300", f"{large}.0", "123456789012345678901e-3"):
        values = tokens_of(text_file(tmp_path, f"who,a\n1,{kept}\n1,0.5\n"))
        assert values.tolist() == [[float(kept)], [0.5]]
    for text in (f"{large}", f"-{large}", f"{2**64 + 1}"):
        path = text_file(tmp_path, f"who,a\n1,0.5\n1,{text}\n")
        with pytest.raises(InvalidInput, match=f"'a'.*{text}"):
            tokens_of(path)


def test_integers_before_a_border_meet_floats_behind_it(tmp_path: Path) -> None:
    path = text_file(tmp_path, "who,a\n1,1\n1,2\n1,3.5\n1,4\n2,5\n")
    source = open_tables(path, sequence="who", tokens="a", chunk_bytes=5)
    values = [data.batch.values.ravel().tolist() for data in read_some(source)]
    assert values == [[1.0, 2.0, 3.5, 4.0], [5]]
    large = 2**53 + 1
    path = text_file(tmp_path, f"who,a\n1,{large}\n1,3.5\n")
    source = open_tables(path, sequence="who", tokens="a", chunk_bytes=5)
    with pytest.raises(InvalidInput, match=str(large)):
        read_all(source)


def read_some(source) -> list:
    return [data for data in (chunk.read("last") for chunk in source.chunks) if data is not None]


def test_orders_are_numbers_or_dates(tmp_path: Path) -> None:
    for text in ("who,o,a\n1,10,1\n1,9,2\n", "who,o,a\n1,2020-02-01,1\n1,2020-01-31,2\n"):
        assert tokens_of(text_file(tmp_path, text), order="o").tolist() == [[2], [1]]
    path = text_file(tmp_path, "who,o,a\n1,10,1\n1,x,2\n")
    with pytest.raises(InvalidType, match="order must be"):
        tokens_of(path, order="o")


BAD_FILES = {
    "empty": ("", FileFormatError, "is empty"),
    "blank": ("\n\n", FileFormatError, "is empty"),
    "header only": ("who,a\n", InvalidInput, "no rows"),
    "header and blanks": ("who,a\r\n\r\n\n", InvalidInput, "no rows"),
    "missing column": ("who,A\n1,2\n", InvalidInput, "no column 'a'"),
    "column twice": ("who,a,a\n1,2,3\n", FileFormatError, "2 columns called 'a'"),
    "short line": ("who,a\n1,2\n3\n", FileFormatError, "x.csv.*Expected 2 columns, got 1"),
    "long line": ("who,a\n1,2\n3,4,5\n", FileFormatError, "x.csv.*Expected 2 columns, got 3"),
    "cut off": ("who,a,b\n1,2,3\n1,2", FileFormatError, "Expected 3 columns, got 2"),
    "no value": ("who,a\n1,2\n1,\n", InvalidInput, "'1', row 1.*'a' has no value"),
    "nan": ("who,a\n1,2\n1,nan\n", InvalidInput, "'1', row 1.*'a' has no value"),
    "all missing": ("who,a\n1,\n1,\n", InvalidInput, "'1', row 0.*'a' has no value"),
    "infinity": ("who,a\n1,2\n1,inf\n", InvalidInput, "'1', row 1.*'a' holds inf"),
    "no name": ("who,a\n,2\n", InvalidInput, "'who' must name"),
    "text": ("who,a\n1,2\n1,x\n", InvalidType, "'a' must hold real numbers"),
    "comma": ('who,a\n1,"2,5"\n', InvalidType, "'a' must hold real numbers"),
    "date": ("who,a\n1,2020-01-01\n", InvalidType, "'a' must hold real numbers"),
    "line break": ('who,a,t\n1,2,"x\ny"\n', FileFormatError, "at byte 15 has a quotation mark"),
    "line break in the header": ('who,a,"t\n"\n1,2,3\n', FileFormatError, "first line"),
    "open quote": ('who,a\n1,2\n"1,2\n', FileFormatError, "at byte 10 has a quotation mark"),
    "carriage returns": ("who,a\r1,2\r", FileFormatError, "carriage returns"),
    "utf-16": ("who,a\n1,2\n".encode("utf-16"), FileFormatError, "UTF-8"),
    "latin-1": ("who,a\n\xe9,2\n".encode("latin-1"), FileFormatError, "invalid UTF8"),
    "binary": (bytes(range(256)) * 9, InvalidInput, "no column 'who'"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_broken_files_are_refused_by_name(tmp_path: Path, case) -> None:
    text, error, words = BAD_FILES[case]
    path = text_file(tmp_path, text)
    with pytest.raises(error, match=words):
        read_all(open_tables(path, sequence="who", tokens=["a"]))


def test_a_file_needs_a_column_that_names_the_sequence(tmp_path: Path) -> None:
    path = text_file(tmp_path, "who,a\n1,2\n")
    with pytest.raises(InvalidInput, match="give sequence="):
        open_tables(path, tokens=["a"])


def test_a_quoted_line_break_is_found_wherever_the_bytes_are_divided(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i},t\n" for i in range(20))
    path = text_file(tmp_path, f'who,a,t\n{lines}99,1,"x\n\ny,z\n"\n{lines}')
    for chunk_bytes in (1, 5, 9, 50, 1000):
        source = open_tables(path, sequence="who", tokens=["a"], chunk_bytes=chunk_bytes)
        with pytest.raises(FileFormatError, match="quotation mark"):
            read_all(source)


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = text_file(tmp_path, "who,a\n1,2\n")
    chunk = open_tables(path, sequence="who", tokens=["a"]).chunks[0]
    assert chunk.read("last") is not None
    with path.open("a") as file:
        file.write("2,3\n")
    with pytest.raises(FileFormatError, match="changed since it was listed"):
        chunk.read("last")
    os.truncate(path, 8)
    with pytest.raises(FileFormatError, match="changed"):
        chunk.read("last")
