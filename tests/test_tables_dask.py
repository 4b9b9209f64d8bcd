"""Dask's arrays, frames and delayed parts hold what they hold as a whole."""

from __future__ import annotations

import subprocess
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyattn.errors import InvalidInput, InvalidType
from polyattn.sources.dask_collections import array_source, delayed_source
from polyattn.sources.dask_frames import frame_source
from polyattn.sources.open_collections import open_collection
from source_cases import sent
from table_cases import NAMES, assert_same, expected, frames, held, read_all

RNG = np.random.default_rng(5)
X, Y, W = RNG.normal(size=(11, 4, 3)), RNG.normal(size=(11, 2)), RNG.random(11)


def frame_in_partitions(frame: pd.DataFrame, borders: list[int]) -> dd.DataFrame:
    """Partitions that end at these rows; some may be empty."""
    pieces = [
        dask.delayed(frame[a:b]) for a, b in zip([0, *borders], [*borders, len(frame)], strict=True)
    ]
    return dd.from_delayed(pieces, meta=frame[:0], verify_meta=False)


@settings(max_examples=20, deadline=None)
@given(
    frame=frames(),
    mode=st.sampled_from(["last", "full"]),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    indexed=st.booleans(),
)
def test_any_partitions_hold_what_pandas_finds(frame, mode, cuts, indexed) -> None:
    borders = sorted(cut % (len(frame) + 1) for cut in cuts)
    given_frame = frame.set_index("who") if indexed else frame
    source = frame_source(frame_in_partitions(given_frame, borders), **NAMES)
    assert (source.n_dims, source.n_outputs, source.n_context_dims) == (2, 1, None)
    assert_same(held(source, mode), expected(frame, mode))


def test_the_comparison_sees_a_divided_sequence() -> None:
    frame = pd.DataFrame({"who": [1] * 9, "when": range(9), "a": 0.5, "b": 1, "y": 2.0, "w": 1})
    source = frame_source(frame_in_partitions(frame, [2, 5]), **NAMES)
    assert [chunk.read("last") is None for chunk in source.chunks] == [False, True, True]
    assert_same(held(source, "last"), expected(frame, "last"))
    for chunk in source.chunks:
        object.__setattr__(chunk, "before", None)
    with pytest.raises(AssertionError):
        assert_same(held(source, "last"), expected(frame, "last"))


def test_a_part_is_computed_elsewhere_and_handed_over() -> None:
    frame = pd.DataFrame({"who": np.arange(400) // 3, "a": np.arange(400.0)})
    lazy = dd.from_pandas(frame, npartitions=8)
    source = frame_source(lazy, sequence="who", tokens="a")
    again = frame_source(lazy, sequence="who", tokens="a")
    assert [chunk.identity for chunk in source.chunks] == [c.identity for c in again.chunks]
    # A chunk is sent with its own tasks: without the rows of all others.
    arrived = [sent(chunk) for chunk in source.chunks]
    assert max(n_bytes for _, n_bytes in arrived) < 16_000
    values = dask.compute(*(chunk.part for chunk, _ in arrived), scheduler="threads")
    found = [
        chunk.read_from(value, "last") for (chunk, _), value in zip(arrived, values, strict=True)
    ]
    names = np.concatenate([data.names for data in found])
    np.testing.assert_array_equal(names, np.arange(134))
    np.testing.assert_array_equal(
        np.concatenate([data.batch.values for data in found])[:, 0], frame["a"]
    )


def test_arrays_are_read_block_by_block() -> None:
    lazy = da.from_array(X, chunks=(4, 2, 3))
    targets = da.from_array(Y, chunks=(3, 1))
    source = array_source(lazy, targets, da.from_array(W, chunks=5))
    assert (source.n_dims, source.n_outputs, source.n_context_dims) == (3, 2, None)
    identities = [chunk.identity for chunk in source.chunks]
    assert [(each.first, each.stop) for each in identities] == [(0, 4), (4, 8), (8, 11)]
    assert {each.source for each in identities} == {f"dask array {lazy.name}"}
    data = [chunk.read("last") for chunk in source.chunks]
    np.testing.assert_array_equal(np.concatenate([d.batch.values for d in data]), X.reshape(-1, 3))
    np.testing.assert_array_equal(np.concatenate([d.targets for d in data]), Y)
    np.testing.assert_array_equal(np.concatenate([d.weights for d in data]), W)
    assert source.n_bytes == X.nbytes + Y.nbytes + W.nbytes
    with pytest.raises(InvalidInput, match="one target per token"):
        source.chunks[0].read("causal")


def test_targets_per_token_and_none() -> None:
    lazy = da.from_array(X, chunks=(4, 4, 3))
    source = array_source(lazy, lazy)
    np.testing.assert_array_equal(source.chunks[2].read("causal").targets, X[8:])
    assert (source.n_outputs, array_source(lazy).n_outputs) == (3, 0)
    assert array_source(lazy).chunks[0].read("full").targets is None
    assert array_source(lazy, da.from_array(W)).n_outputs == 1


def test_delayed_pairs_are_parts() -> None:
    whole = [dask.delayed((X[:5], Y[:5])), (dask.delayed(X[5:]), dask.delayed(Y[5:]))]
    source = delayed_source(whole)
    assert (source.n_dims, source.n_outputs) == (3, 2)
    data = [chunk.read("last") for chunk in source.chunks]
    np.testing.assert_array_equal(np.concatenate([d.batch.values for d in data]), X.reshape(-1, 3))
    np.testing.assert_array_equal(np.concatenate([d.targets for d in data]), Y)
    assert [c.identity for c in delayed_source(whole).chunks] == [c.identity for c in source.chunks]
    ragged = delayed_source([dask.delayed(([X[0], X[1][:2]], [X[0], X[1][:2]]))])
    assert ragged.n_outputs == 3
    assert ragged.chunks[0].read("full").batch.lengths.tolist() == [4, 2]
    assert delayed_source([(dask.delayed(X), None)]).n_outputs == 0


def test_any_collection_is_opened_by_its_kind() -> None:
    lazy = da.from_array(X, chunks=(4, 4, 3))
    frame = pd.DataFrame({"who": [1, 1], "a": [1.0, 2.0], "y": [np.nan, np.nan]})
    columns = {"sequence": "who", "tokens": "a", "targets": "y"}
    lazy_frame = dd.from_pandas(frame, npartitions=1)
    pair = dask.delayed((X, Y))
    assert len(open_collection(lazy, lazy).chunks) == 3
    assert open_collection(pair).n_outputs == 2
    assert len(open_collection([pair, (dask.delayed(X), dask.delayed(Y))]).chunks) == 2
    source = open_collection(lazy_frame, **columns)
    assert source.chunks[0].read_inputs().batch.values.tolist() == [[1.0], [2.0]]
    with pytest.raises(InvalidInput, match="'y' has no value"):
        source.chunks[0].read("last")
    for make, words in (
        (lambda: open_collection(lazy, context=lazy), "leave out context"),
        (lambda: open_collection(lazy, tokens="a"), "leave out tokens"),
        (lambda: open_collection(lazy_frame, lazy, **columns), "leave out Y"),
        (lambda: open_collection(pair, Y), "leave out Y"),
        (lambda: open_collection(lazy_frame, tokens="a"), "give sequence="),
    ):
        with pytest.raises(InvalidInput, match=words):
            make()


def test_collections_that_cannot_be_used_are_refused() -> None:
    lazy = da.from_array(X, chunks=(4, 4, 3))
    unknown = lazy[lazy[:, 0, 0] > 0]
    one = dask.delayed((X, Y))
    other = dask.delayed((X, Y[:, :1]))
    for make, error, words in (
        (lambda: array_source(X), InvalidType, "dask arrays"),
        (lambda: array_source(lazy, Y), InvalidType, "dask arrays"),
        (lambda: array_source(unknown), InvalidInput, "compute_chunk_sizes"),
        (lambda: array_source(lazy, lazy[:3]), InvalidInput, "one known number"),
        (lambda: array_source(lazy[0]), InvalidInput, "X must have shape"),
        (lambda: array_source(lazy[:, :0]), InvalidInput, "none of them 0"),
        (lambda: delayed_source([]), InvalidType, "list of delayed pairs"),
        (lambda: delayed_source([X]), InvalidType, r"parts\[0\]"),
        (lambda: delayed_source([dask.delayed(X)]), InvalidType, "a pair"),
        (lambda: delayed_source([one, one]), InvalidInput, "twice"),
        (lambda: delayed_source([one, other]).chunks[1].read("last"), InvalidInput, "has 1"),
        (
            lambda: delayed_source([one, dask.delayed((X[:, :, :2], Y))]).chunks[1].read("last"),
            InvalidInput,
            "3 coordinates",
        ),
        (lambda: frame_source(X, sequence="who", tokens="a"), InvalidType, "dask.dataframe"),
        (lambda: frame_source(one, sequence="who", tokens="a"), InvalidType, "dask.dataframe"),
        (lambda: open_collection(X), InvalidType, "dask arrays"),
    ):
        with pytest.raises(error, match=words):
            make()


BAD_FRAMES = {
    "missing": ({"a": [1.0, np.nan]}, {}, InvalidInput, "partition 0.*'1', row 1.*'a'"),
    "text": ({"a": ["x", "y"]}, {}, InvalidType, "'a' must hold real numbers"),
    "mixed": ({"a": np.array([1, "y"], dtype=object)}, {}, InvalidType, "'a'"),
    "order": ({"o": [1, 1]}, {"order": "o"}, InvalidInput, "two rows"),
    "absent": ({}, {"tokens": "A"}, InvalidInput, "no column 'A'"),
    "no rows": ({"who": [], "a": [], "o": []}, {}, InvalidInput, "no rows"),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_frames_that_cannot_be_used_are_refused(case) -> None:
    columns, names, error, words = BAD_FRAMES[case]
    whole = pd.DataFrame({"who": [1, 1], "a": [1.0, 2.0], "o": [1, 2], **columns})
    lazy = frame_in_partitions(whole, [])
    with pytest.raises(error, match=words):
        read_all(frame_source(lazy, **{"sequence": "who", "tokens": "a", **names}))


def test_without_dask_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "from polyattn.sources.dask_collections import array_source\n"
        "from polyattn.errors import MissingExtra\n"
        "try:\n"
        "    array_source(None)\n"
        "except MissingExtra as error:\n"
        "    assert 'polyattn[dask]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('made without dask')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
