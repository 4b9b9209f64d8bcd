"""Opened sources: numbers that look like an array, and are read in parts."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.certify.digest import digest_sequences
from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch
from polyattn.sources import opened as opened_module
from polyattn.sources.opened import opened
from polyattn.sources.read_array import RecentChunks
from polyattn.sources.source import ChunkData
from polyattn.stats import rows as rows_module
from polyattn.stats.rows import Rows
from source_cases import ListSource, MemoryChunk


def ragged(count=30, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) for n in rng.integers(1, 7, count)]


X = ragged()
WHOLE = SequenceBatch.from_sequences(X)
OPENED = opened(pa.scan(X, chunk_bytes=300), None).batch
N = len(WHOLE.values)


@given(st.integers(-N - 3, N + 3), st.integers(-N - 3, N + 3), st.sampled_from([1, 2, -1, 7]))
def test_slices_are_those_of_the_array(start, stop, step):
    np.testing.assert_array_equal(OPENED.values[start:stop:step], WHOLE.values[start:stop:step])
    np.testing.assert_array_equal(OPENED.values[start:stop, 1], WHOLE.values[start:stop, 1])


@given(st.lists(st.integers(-N, N - 1), max_size=40))
def test_numbers_of_rows_are_those_of_the_array(rows):
    rows = np.array(rows, dtype=np.intp)
    np.testing.assert_array_equal(OPENED.values[rows], WHOLE.values[rows])


@given(st.integers(0, 29), st.integers(1, 30), st.integers(0, 29))
def test_parts_and_chosen_sequences(first, length, one):
    stop = min(first + length, 30)
    for part, same in ((OPENED.part(first, stop), WHOLE.part(first, stop)), (
        OPENED.chosen(np.array([one, first])), WHOLE.chosen(np.array([one, first])),
    )):  # fmt: skip
        np.testing.assert_array_equal(part.values[:], same.values)
        np.testing.assert_array_equal(part.offsets, same.offsets)
        assert part.common_length == same.common_length
    np.testing.assert_array_equal(OPENED[one], WHOLE[one])
    # A part of a part, which is not read before it is sliced.
    inner = OPENED.part(first, stop).part(0, 1)
    np.testing.assert_array_equal(inner.values[:], WHOLE.part(first, first + 1).values)


def test_it_is_never_read_as_a_whole():
    for read in (np.asarray, np.abs, list, lambda each: each * 2.0, lambda each: each[5]):
        with pytest.raises(TypeError, match=r"read in parts|unsupported operand"):
            read(OPENED.values)
    with pytest.raises(IndexError):
        OPENED.values[np.array([N])]
    assert OPENED.values.shape == WHOLE.values.shape
    assert OPENED.values.nbytes == WHOLE.values.nbytes
    assert OPENED.place((7, 1)) == WHOLE.place((7, 1))
    assert digest_sequences(OPENED) == digest_sequences(WHOLE)


def test_moved_numbers_are_the_same_however_they_are_read():
    moved = OPENED.values.moved(np.array([0.5, 0.0, 0.25]), 11)
    whole = moved[:]
    np.testing.assert_allclose(np.abs(whole / WHOLE.values - 1.0), [[0.5, 0.0, 0.25]] * N)
    assert 0.3 < np.mean(whole[:, 0] > WHOLE.values[:, 0] * 1.0) < 0.7
    np.testing.assert_array_equal(moved[5:50], whole[5:50])
    np.testing.assert_array_equal(moved.between(5, 50)[3:9], whole[8:14])
    np.testing.assert_array_equal(moved[np.array([9, 2])], whole[[9, 2]])
    assert not np.array_equal(OPENED.values.moved(np.full(3, 0.5), 12)[:], whole)


def test_few_chunks_are_kept_and_each_is_read_once_at_a_time():
    reads, lock = [], threading.Lock()

    def read(number):
        with lock:
            reads.append(number)
        return {"tokens": np.full((1, 1), number)}

    recent = RecentChunks(read, 2, 1 << 20)
    for number in (0, 1, 0, 1, 2, 1, 0):
        assert recent.content(number)["tokens"][0, 0] == number
    assert reads == [0, 1, 2, 0]
    assert len(recent._recent) == 2
    reads.clear()
    copied = copy.deepcopy(recent)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(copied.content, [5] * 64))
    assert reads == [5]


def test_large_chunks_are_kept_by_bytes_and_two_of_them_always():
    def read(_):
        return {"tokens": np.zeros(1000), "targets": np.zeros(250)}

    for n_bytes, kept in ((0, 2), (20_000, 2), (39_999, 3), (40_000, 4), (10**9, 5)):
        recent = RecentChunks(read, 5, n_bytes)
        for number in range(20):
            recent.content(number)
        assert list(recent._recent) == list(range(20))[-kept:], n_bytes
    # One thread keeps its own chunk and the next.
    recent = RecentChunks(read, 1, 10**9)
    for number in range(3):
        recent.content(number)
    assert list(recent._recent) == [2]


def counted_source(n_sequences, with_targets):
    """Twelve chunks, and how often all of them were read since that was asked last."""
    rng = np.random.default_rng(0)
    Y = np.zeros((n_sequences, 4, 1)) if with_targets == "per token" else np.zeros((n_sequences, 1))
    chunks = [
        chunk(f"chunk {i}", rng.standard_normal((n_sequences, 4, 2)), Y if with_targets else None)
        for i in range(12)
    ]

    def n_reads():
        count = sum(each.n_reads for each in chunks)
        for each in chunks:
            each.n_reads = 0
        return count

    return ListSource(chunks, 2, int(bool(with_targets))), n_reads


@pytest.mark.parametrize("mode", ["last", "causal"])
@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("kept", [False, True])
def test_a_pass_over_rows_reads_each_chunk_once(mode, n_threads, kept, monkeypatch):
    chunk_bytes = 700 * 4 * 2 * 8
    source, n_reads = counted_source(700, "per token" if mode == "causal" else "last")
    monkeypatch.setattr(opened_module, "RECENT_BYTES", 0)
    monkeypatch.setattr(opened_module, "TOGETHER_BYTES", chunk_bytes // 2)
    monkeypatch.setattr(rows_module, "KEPT_NUMBERS", 10**6 if kept else 0)
    with threadpool_limits(n_threads):
        rows = Rows.build(source, None, pa.Form(mode=mode))
        assert rows.keeps_summaries is kept
        assert n_reads() == 12
        assert sum(block.stop - block.first for block in rows.blocks()) == rows.n_rows
        assert n_reads() == 12
        # Of parts of many chunks, queries are read once more when the sums are done.
        monkeypatch.setattr(opened_module, "TOGETHER_BYTES", 100 * chunk_bytes)
        list(replace(rows).blocks())
        assert n_reads() > 12 or mode == "causal"


def test_a_certificate_reads_a_source_three_times():
    source, n_reads = counted_source(20, None)
    assert pa.certify(source).verdict == "identifiable"
    # To look at all of it, for the sums and for the digest; and once at the first chunk alone.
    assert n_reads() in (3 * 12, 3 * 12 + 1)


def test_a_failed_read_can_be_tried_again():
    failing = [True]

    def read(number):
        if failing.pop() if failing else False:
            raise OSError("once")
        return {"tokens": np.zeros((number, 1))}

    recent = RecentChunks(read, 2, 1 << 20)
    with pytest.raises(OSError, match="once"):
        recent.content(3)
    assert len(recent.content(3)["tokens"]) == 3


def test_threads_read_neighbouring_parts():
    batch = opened(pa.scan(X, chunk_bytes=200), None).batch
    ranges = [(i % (N - 9), i % (N - 9) + 9) for i in range(0, 2000, 7)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: batch.values[slice(*each)], ranges))
    for (start, stop), part in zip(ranges, found, strict=True):
        np.testing.assert_array_equal(part, WHOLE.values[start:stop])


def chunk(name, X, Y=None, **more):
    return MemoryChunk(name, X, Y, **more)


def test_chunks_of_different_types():
    ints, floats = [np.arange(6).reshape(3, 2)], [np.full((2, 2), 0.5, dtype=np.float32)]
    batch = opened(ListSource([chunk("a", ints), chunk("b", floats)], 2), None).batch
    together = SequenceBatch.from_sequences([*ints, *floats])
    assert batch.values.dtype == together.values.dtype
    np.testing.assert_array_equal(batch.values[:], together.values)
    large = [np.full((1, 2), 2**53 + 1)]
    with pytest.raises(InvalidInput, match="9007199254740993"):
        opened(ListSource([chunk("a", large), chunk("b", floats)], 2), None)


def test_what_is_refused():
    one, wide = [np.ones((2, 2))], [np.ones((2, 3))]
    for chunks, words in (
        ([chunk("a", one), chunk("b", wide)], "'b' have 3 coordinates"),
        ([chunk("a", one, names=np.array([4])), chunk("b", one, names=np.array([4]))], "twice"),
        ([chunk("a", one), chunk("b", one, context=SequenceBatch.from_sequences(one))], "context"),
    ):
        with pytest.raises(InvalidInput, match=words):
            opened(ListSource(chunks, 2), None)
    with pytest.raises(InvalidInput, match="no targets"):
        opened(ListSource([chunk("a", one)], 2, 1), "last")


def test_a_chunk_of_other_content_is_refused_when_it_is_read_again():
    changing = chunk("shard", [np.ones((2, 2)), np.zeros((1, 2))])
    batch = opened(ListSource([changing], 2), None).batch
    np.testing.assert_array_equal(batch.values[:], [[1, 1], [1, 1], [0, 0]])
    batch.values._chunks._begin()  # nothing is kept any more
    changing.X = [np.ones((1, 2)), np.zeros((2, 2))]
    with pytest.raises(InvalidInput, match="'shard' has changed"):
        batch.values[:]


class Empty(MemoryChunk):
    """A chunk in which no sequence begins."""

    def read(self, mode):  # noqa: ARG002
        return None


def test_chunks_without_sequences_are_passed_over():
    rng = np.random.default_rng(0)
    parts = [(ragged(20, 2, i), rng.standard_normal((20, 1))) for i in range(2)]
    full = [MemoryChunk(f"{i}", *part) for i, part in enumerate(parts)]
    empty = Empty("none", parts[0][0], first=100)
    source = ListSource([empty, full[0], empty, full[1]], 2, 1)
    found = opened(source, "last")
    X, Y = parts[0][0] + parts[1][0], np.concatenate([parts[0][1], parts[1][1]])
    np.testing.assert_array_equal(found.batch.values[:], np.concatenate(X))
    np.testing.assert_array_equal(found.targets[:], Y)
    result = pa.fit(X, Y)
    np.testing.assert_array_equal(result.predict(source), result.predict(X))
    with pytest.raises(InvalidInput, match="holds no sequence"):
        opened(ListSource([empty], 2), None)
    assert isinstance(full[0].read_inputs(), ChunkData)
