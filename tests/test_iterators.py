"""Iterators, which come once, as sources: the same as a list of their items, on the disk."""

import errno
import gc
import os
import resource
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.files import nameless
from polyattn.sources import kept_items
from source_cases import sent

RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((40, 5, 2)), RNG.standard_normal((40, 2)), RNG.uniform(size=40)
PARTS = [slice(0, 7), slice(7, 8), slice(8, 40)]
RAGGED = [X[i, : 1 + i % 5] for i in range(40)]

KINDS = {
    "pairs": [(X[p], Y[p]) for p in PARTS],
    "weights": [(X[p], Y[p], W[p]) for p in PARTS],
    "tokens alone": [X[p] for p in PARTS],
    "ragged": [(RAGGED[p], Y[p]) for p in PARTS],
    "one target per token": [(X[p], X[p]) for p in PARTS],
    "ragged targets": [(RAGGED[p], RAGGED[p]) for p in PARTS],
    "a number per sequence": [(X[p], Y[p, 0]) for p in PARTS],
    "float32": [(X[p].astype(np.float32), Y[p]) for p in PARTS],
    "swapped bytes": [(X[p].astype(">f8"), Y[p].astype(">f4")) for p in PARTS],
    "integers": [(np.rint(9 * X[p]).astype(np.int16), Y[p]) for p in PARTS],
    "large integers": [((1 << 60) + np.rint(9 * X[p]).astype(np.int64), Y[p]) for p in PARTS],
    "Fortran": [(np.asfortranarray(X[p]), np.asfortranarray(Y[p])) for p in PARTS],
    "slices": [(X[p, ::2], Y[p][:, ::-1]) for p in PARTS],
    "equal items": [(X[:9], Y[:9])] * 3,
    "ids": [
        (pa.SequenceBatch.from_ids(np.abs(np.rint(2 * X[p, :, 0])).astype(int), 9), Y[p])
        for p in PARTS
    ],
}  # fmt: skip


def assert_same_content(one, other):
    for name in ("batch", "targets", "weights", "context"):
        mine, yours = getattr(one, name), getattr(other, name)
        if isinstance(yours, pa.SequenceBatch):
            assert isinstance(mine, pa.SequenceBatch)
            np.testing.assert_array_equal(mine.offsets, yours.offsets)
            mine, yours = mine.values, yours.values
        assert type(mine) is type(yours)
        if yours is not None:
            assert mine.dtype == yours.dtype
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(yours))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_source_as_a_list(kind):
    items = KINDS[kind]
    listed, once = pa.scan(lambda: items), pa.scan(iter(items))
    assert (once.n_dims, once.n_outputs, once.n_context_dims, once.n_bytes) == (
        listed.n_dims, listed.n_outputs, listed.n_context_dims, listed.n_bytes,
    )  # fmt: skip
    modes = ("causal",) if "per token" in kind or "ragged targets" in kind else ("last",)
    for mode in modes:
        assert once.n_outputs_in(mode) == listed.n_outputs_in(mode)
        # Any order, and again and again.
        for at in (2, 0, 1, 2):
            mine, yours = once.chunks[at], listed.chunks[at]
            assert mine.identity == yours.identity
            assert_same_content(mine.read(mode), yours.read(mode))
            assert_same_content(mine.read_inputs(), yours.read_inputs())
            assert_same_content(sent(mine)[0].read(mode), yours.read(mode))
            assert sent(mine)[0].identity == yours.identity


@pytest.mark.parametrize("kind", ["pairs", "weights", "ragged", "float32", "Fortran", "slices"])
@pytest.mark.parametrize("solver", ["auto", "iterative"])
def test_fits_have_the_same_bits(kind, solver):
    items = KINDS[kind]
    one, other = (pa.fit(pa.scan(each), solver=solver) for each in (iter(items), items))
    np.testing.assert_array_equal(one.coef, other.coef)
    assert one.risk == other.risk


def test_other_calls_take_one():
    items = KINDS["pairs"]
    result = pa.fit(pa.scan(iter(items)))
    assert pa.certify(pa.scan(zip(*zip(*items, strict=True), strict=True))).verdict == (
        pa.certify(pa.scan(items)).verdict
    )
    np.testing.assert_array_equal(
        result.predict(pa.scan(map(np.asarray, KINDS["tokens alone"]))), result.predict(X)
    )
    # What was counted is known by its content.
    sums = pa.Moments(2, 2).update(pa.scan(items))
    with pytest.raises(InvalidInput, match="already counted"):
        sums.update(pa.scan(iter(items)))


def test_an_interrupted_pass_goes_on_with_another_iterator(tmp_path):
    path, items = tmp_path / "sums.safetensors", KINDS["pairs"]
    first = pa.fit(pa.scan(iter(items)), checkpoint=path).coef
    np.testing.assert_array_equal(pa.fit(pa.scan(iter(items)), checkpoint=path).coef, first)
    with pytest.raises(InvalidInput):
        pa.fit(pa.scan(iter(items[:2])), checkpoint=path)


def test_arrays_may_be_used_again_by_the_generator():
    buffer = np.empty((7, 5, 2))

    def filling():
        for value in range(3):
            buffer[:] = value
            yield buffer, buffer[:, 0]

    found = [chunk.read("last").batch.values for chunk in pa.scan(filling()).chunks]
    assert [set(values.ravel()) for values in found] == [{0.0}, {1.0}, {2.0}]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ((X[:, :, :1], Y), InvalidInput, "item 1 has n_dims = 1, and item 0 has 2"),
        (X, InvalidInput, "item 1 has n_outputs = 0"),
        ((X, Y[:3]), InvalidInput, "in item 1: X has 40 sequences but Y has 3"),
        ((X[0], Y), InvalidInput, "in item 1: X must have shape"),
        ((X, Y, W, W), InvalidInput, "item 1 must be"),
        ((np.full((2, 2, 2), np.nan), Y[:2]), InvalidInput, "in item 1: .*NaN"),
        (("text", Y), InvalidType, "in item 1"),
        ((X, np.array([object()] * 40)), InvalidType, "in item 1: Y"),
    ],
)
def test_a_wrong_item_is_named(wrong, error, words):
    with pytest.raises(error, match=words):
        pa.scan(iter([(X, Y), wrong]))


def test_errors_of_the_generator_come_through_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))

    def breaking():
        yield X, Y
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError, match="the network is gone"):
        pa.scan(breaking())
    source = pa.scan(iter(KINDS["pairs"]))
    chunk = source.chunks[0]
    assert list(tmp_path.iterdir()) == []
    del source
    assert chunk.read("last").batch.n_dims == 2
    del chunk
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_full_disk_is_said(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match=r"item 2 of the iterator.*TMPDIR") as caught:
            pa.scan(iter(KINDS["pairs"]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.ENOSPC
    # It is also looked at before: others need the disk, too.
    monkeypatch.setattr(kept_items, "LEFT_FREE", 1 << 60)
    with pytest.raises(OSError, match="No space left on device: item 0"):
        pa.scan(iter(KINDS["pairs"]))
    pa.scan(KINDS["pairs"])


def test_memory_is_that_of_one_item():
    def items(count):
        for i in range(count):
            yield np.full((1000, 25, 4), float(i)), np.full((1000, 1), float(i))

    peaks = []
    for count in (2, 20):
        tracemalloc.start()
        source = pa.scan(items(count))
        pa.Moments(4, 1).update(source)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("reads_at_a_place", [True, False])
def test_threads_that_read_at_once(monkeypatch, reads_at_a_place):
    if not reads_at_a_place:
        monkeypatch.delattr(nameless.os, "preadv", raising=False)
    source = pa.scan((np.full((50, 3, 2), float(i)), np.full(50, float(i))) for i in range(20))

    def read(_):
        return all(
            np.all(chunk.read("last").batch.values == at) for at, chunk in enumerate(source.chunks)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(20)))
