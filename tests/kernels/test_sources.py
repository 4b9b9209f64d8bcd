"""What public calls do not reach of reading in parts: files that change meanwhile, caches, sums."""

from __future__ import annotations

import errno
import itertools
import json
import os
from fractions import Fraction

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from polyattn.cluster import workers
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.features import sequence_sums, summaries
from polyattn.sources import kept_items, parquet, shards
from polyattn.sources import names as names_module
from polyattn.sources.contents import Contents
from polyattn.sources.names import SequenceNames
from polyattn.sources.parquet_rows import KeptReaders, RowReader
from polyattn.sources.source import ChunkIdentity
from polyattn.stats import checkpoint, moment_sums, moments, triangular_factor
from polyattn.stats.moment_sums import ExplicitSums, PairedSums

pytestmark = pytest.mark.kernel

# Files that change while they are read ------------------------------------------------------


def append(path, _):
    with path.open("ab") as file:
        file.write(b"x")


def replace(path, state):
    """Another file of the same size and time."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.rename(path)


def touch(path, state):
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [append, replace, touch])
@pytest.mark.parametrize("kind", ["stored", "packed", "table"])
def test_a_change_while_a_file_is_read_is_refused(tmp_path, monkeypatch, kind, change):
    X = np.random.default_rng(0).standard_normal((50, 3, 2))
    path = tmp_path / ("a.parquet" if kind == "table" else "a.npz")
    options = {}
    if kind == "table":
        rows = {"id": np.repeat(np.arange(50), 3), "a": X[..., 0].ravel(), "b": X[..., 1].ravel()}
        pq.write_table(arrow.table(rows), path)
        options = {"sequence": "id", "tokens": ["a", "b"]}
    else:
        (np.savez_compressed if kind == "packed" else np.savez)(path, X=X)
    source = pa.scan(path, **options, chunk_bytes=1000)
    pa.Moments(2).update(source)  # the control: without a change it is read
    state = path.stat()
    owner, name = {
        "stored": (shards, "read_range"), "packed": (shards, "read_arrays"),
        "table": (pq.ParquetFile, "iter_batches"),
    }[kind]  # fmt: skip
    real = getattr(owner, name)

    def reading(*given, **named):
        found = real(*given, **named)
        change(path, state)
        return found

    monkeypatch.setattr(parquet, "READERS", KeptReaders(0))
    monkeypatch.setattr(owner, name, reading)
    with pytest.raises(FileFormatError, match=path.name):
        pa.Moments(2).update(source)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "LARGEST_SHARE", np.inf)
    X, path = np.random.default_rng(0).standard_normal((60, 3, 2)), tmp_path / "state"
    read, real, calls = [], os.fsync, []

    def items():
        for at in range(6):
            read.append(at)
            yield X[10 * at : 10 * at + 10]

    def full(handle):
        calls.append(handle)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    source = pa.scan(items)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="state"):
            pa.Moments(2).update(source, checkpoint=path)
    assert [*tmp_path.iterdir()] == [path]
    assert pa.Moments(2).update(source, checkpoint=path) == pa.Moments(2).update(source)
    monkeypatch.setattr(kept_items, "LEFT_FREE", 1 << 60)
    with pytest.raises(OSError, match="item 0"):  # others need the disk, too
        pa.scan(items())


# Rows of Parquet files ----------------------------------------------------------------------


def test_rows_are_decoded_once_and_a_chunk_at_a_time(tmp_path, monkeypatch):
    made = []

    class Counted(RowReader):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(parquet, "RowReader", Counted)
    monkeypatch.setattr(parquet, "READERS", KeptReaders(4))
    rng, names = np.random.default_rng(0), np.repeat(np.arange(4_000), 100)
    columns = {"id": names, **{name: rng.standard_normal(len(names)) for name in "xy"}}
    pq.write_table(arrow.table(columns), tmp_path / "t.parquet", use_dictionary=False)
    sizes = []

    def decoded(keep, chunk_bytes):
        monkeypatch.setattr(parquet, "READERS", KeptReaders(keep))
        source = pa.scan(
            tmp_path / "t.parquet", sequence="id", tokens=["x", "y"], chunk_bytes=chunk_bytes
        )
        made.clear()
        before, n_sequences = arrow.total_allocated_bytes(), 0
        for chunk in source.chunks:
            data = chunk.read_inputs()
            sizes.append(arrow.total_allocated_bytes() - before)
            n_sequences += len(data.batch)
        assert n_sequences == 4_000
        return len(made), len(source.chunks)

    readers, n_chunks = decoded(4, 1 << 19)
    assert n_chunks > 15
    # Of the one large row group some batches, buffers and pages are in memory: not 10 MB of it.
    assert max(sizes) < 6 << 20
    assert readers < n_chunks < decoded(0, 1 << 19)[0]


# Sums ---------------------------------------------------------------------------------------

ENGINES = (ExplicitSums, PairedSums)


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_both_ways_to_add_products_agree_wherever_blocks_end(monkeypatch, tmp_path, d, mode):
    rng = np.random.default_rng(d)
    X = [rng.integers(-3, 4, (1 + i % 4, d)).astype(float) for i in range(60)]
    psi = oracle.design(X, {"mode": mode})
    Y = rng.integers(-3, 4, (len(psi), 2)).astype(float)
    given_Y = Y if mode == "last" else np.split(Y, np.cumsum([len(x) for x in X])[:-1])
    for engine, small in itertools.product(ENGINES, (1, 7, 10_000)):
        monkeypatch.setattr(moments, "make_sums", engine)
        for module, name, value in (
            (moment_sums, "TILE_HEIGHT", small), (moment_sums, "TILE_WIDTH", 1 + small),
            (moment_sums, "EXPLICIT_NUMBERS", small * psi.shape[1]),
            (summaries, "MIN_BLOCK_ROWS", small), (summaries, "BLOCK_NUMBERS", 1),
            (sequence_sums, "TOKEN_BLOCK", 8), (triangular_factor, "BLOCK_NUMBERS", 8 * small),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, value)
        made = pa.Moments(d, 2, mode).update(X, given_Y)
        made.save(tmp_path / engine.__name__)
        np.testing.assert_array_equal(made.gram, psi.T @ psi)
        np.testing.assert_array_equal(made.cross, psi.T @ Y)
        factor = pa.fit(statistics=pa.TriangularFactor(d, 2, mode).update(X, given_Y), ridge=1.0)
        expected = pa.fit(statistics=made, ridge=1.0)
        np.testing.assert_allclose(factor.coef, expected.coef, atol=1e-9)
    for reader, writer in itertools.product(ENGINES, ENGINES):
        monkeypatch.setattr(moments, "make_sums", reader)
        loaded = pa.load(tmp_path / writer.__name__)
        np.testing.assert_array_equal(loaded.update(X, given_Y).gram, 2 * psi.T @ psi)


def twice(rng):
    """Five sequences twice over, with p = 6: their features have rank 5."""
    X = rng.integers(-(2**20), 2**20, (5, 3, 2)) * 2.0**-20
    return np.concatenate([X, X])


def test_what_is_left_of_a_sum_is_the_rest_and_proves_no_more():
    """Noise of what was taken out makes singular sums look definite; certificates know of it."""
    for seed, scale in itertools.product(range(6), (3.0, 4.0)):
        rng = np.random.default_rng(seed)
        large = pa.Moments(2, 1).update(
            scale * rng.standard_normal((40, 3, 2)), rng.standard_normal(40), chunk="b"
        )
        open_one = pa.Moments(2, 1).update(twice(rng), rng.standard_normal(10), chunk="a")
        left = (open_one + large) - large
        np.testing.assert_allclose(left.gram, open_one.gram, atol=1e-8)
        assert pa.certify(statistics=left).verdict == "undecided"
        assert pa.fit(statistics=left).rank == 5
        good = pa.Moments(2, 1).update(
            rng.standard_normal((40, 3, 2)), rng.standard_normal(40), chunk="a"
        )
        assert pa.certify(statistics=(good + large) - large).identifiable
        assert (good - good).n_rows == 0
        for call in (lambda g=good, b=large: g - b, lambda x=left, b=large: x - b):
            with pytest.raises(InvalidInput, match="'b'"):
                call()
        huge = pa.Moments(2, 1).update(
            30.0 * rng.standard_normal((40, 3, 2)), np.ones(40), chunk="c"
        )
        with pytest.raises(InvalidInput, match="share"):
            (good + huge) - huge


# What was counted ---------------------------------------------------------------------------

RANGES = st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 6)).map(
    lambda each: ChunkIdentity(each[0], "1", each[1], each[1] + each[2])
)


def members(identities):
    return {(each.source, at) for each in identities for at in range(each.first, each.stop)}


@given(st.lists(RANGES, max_size=12), st.lists(RANGES, max_size=6))
def test_contents_are_the_set_of_what_was_added(chunks, others):
    found = []
    for given_chunks in (chunks, others):
        contents, known = Contents(), set()
        for chunk in given_chunks:
            if members([chunk]) & known:
                with pytest.raises(InvalidInput, match="already counted"):
                    contents.add(chunk)
            else:
                contents.add(chunk)
                known |= members([chunk])
            assert members(contents.identities()) == known
            changed = chunk._replace(fingerprint="2", first=50, stop=51)
            with pytest.raises(InvalidInput, match="changed"):
                contents.copy().add(changed)
        plain = json.loads(json.dumps(contents.to_metadata()))
        assert Contents.from_metadata(plain) == contents
        found.append((contents, known))
    (one, mine), (other, theirs) = found
    if mine & theirs:
        with pytest.raises(InvalidInput, match="already counted"):
            one.union(other)
    else:
        assert members(one.union(other).identities()) == mine | theirs


GOOD = {"source": "a", "fingerprint": "1", "ranges": [[0, 2], [5, 7]]}
BAD_RANGES = (
    [], [[2, 2]], [[3, 2]], [[5, 7], [0, 2]], [[0, 5], [4, 7]], [[0, 5], [5, 7]], [[-1, 5]],
    [[0, 1, 2]], [[0, 1.5]], [[0, 2**70]],
)  # fmt: skip


def test_hostile_records_of_what_was_counted_are_refused():
    assert Contents.from_metadata({"unnamed": False, "sources": [GOOD]})
    for bad in (
        [], {"unnamed": 1, "sources": []}, {"unnamed": False}, {"unnamed": False, "sources": [], "size": 3},
        *({"unnamed": False, "sources": [GOOD | {"ranges": each}]} for each in BAD_RANGES),
        {"unnamed": False, "sources": [GOOD, GOOD]}, {"unnamed": False, "sources": [GOOD | {"source": 3}]},
    ):  # fmt: skip
        with pytest.raises(FileFormatError, match="contents"):
            Contents.from_metadata(bad)


KINDS_OF_NAMES = (
    st.integers(-20, 60),
    st.text("ab", max_size=3),
    st.integers(0, 9).map(lambda x: x / 4),
)


@given(
    st.one_of(*(st.lists(st.lists(each, min_size=1, max_size=6), max_size=6) for each in KINDS_OF_NAMES)),
    st.integers(0, 6),
)  # fmt: skip
def test_names_are_refused_where_and_only_where_they_repeat(chunks, cut):
    """Against a set; of one process that is restarted, and of two that put theirs together."""
    seen, repeats = set(), False
    names, parts = SequenceNames(), (SequenceNames(), SequenceNames())
    for chunk in chunks:
        repeats = bool(set(chunk) & seen) or len(set(chunk)) < len(chunk)
        if repeats:
            with pytest.raises(InvalidInput, match="twice"):
                names.add(np.array(chunk))
            break
        seen |= set(chunk)
        names.add(np.array(chunk))
        names = SequenceNames.restored(names.metadata(), names.arrays()["names"])
    try:
        for at, chunk in enumerate(chunks):
            parts[at >= cut].add(np.array(chunk))
        parts[0].absorb(parts[1])
    except InvalidInput:
        assert repeats
    else:
        assert not repeats


def test_growing_names_need_no_memory(monkeypatch):
    monkeypatch.setattr(names_module, "MOST_KEPT", 10)
    names = SequenceNames()
    for first in range(0, 100, 4):
        names.add(np.arange(first, first + 4))
    assert names.arrays()["names"].size <= 10
    with pytest.raises(InvalidInput, match="7"):
        names.add(np.array([300, 7]))


# Clusters -----------------------------------------------------------------------------------


def test_workers_of_other_software_and_none_at_all_are_refused(monkeypatch):
    import distributed

    monkeypatch.setattr(workers, "PATIENCE_SECONDS", 0.2)
    source, count = pa.scan(np.ones((4, 3, 2))), itertools.count()
    options = {"processes": False, "dashboard_address": ":0", "threads_per_worker": 1}
    with (
        distributed.LocalCluster(n_workers=1, **options) as some,
        distributed.Client(some) as client,
    ):
        assert pa.Moments(2).update(source, client=client) == pa.Moments(2).update(source)
        for name in ("numpy", "polyattn", "BLAS"):
            real = workers.software
            with monkeypatch.context() as patch:
                patch.setattr(
                    workers, "software", lambda r=real, n=name: r() | {n: str(next(count))}
                )
                with pytest.raises(InvalidInput, match=name):
                    pa.Moments(2).update(source, client=client)
    with (
        distributed.LocalCluster(n_workers=0, **options) as none,
        distributed.Client(none) as client,
        pytest.raises(InvalidInput, match="workers"),
    ):
        pa.Moments(2).update(source, client=client)


def test_forgotten_sums_are_within_their_bound_of_rational_ones():
    """Weights are products of the factors, which float64 rounds."""
    rng, stats, X, w = np.random.default_rng(3), pa.Moments(2), [], []
    for _ in range(12):
        x = rng.integers(-(2**20), 2**20, (4, 3, 2)) * 2.0**-20
        stats.update(x, forget=0.7)
        w = [Fraction(0.7) * each for each in w] + [Fraction(1)] * 4
        X.extend(x)
    psi = oracle.design(X, {})
    exact = psi.T @ (np.array([float(each) for each in w])[:, None] * psi)
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.all(np.abs(stats.gram - exact) <= 100 * oracle.EPS * size)
