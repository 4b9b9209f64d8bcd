"""What public calls do not reach of reading in parts: files that change meanwhile, caches, sums."""

from __future__ import annotations

import itertools
import os

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
from polyattn.sources import names as names_module
from polyattn.sources import parquet, shards
from polyattn.sources.names import SequenceNames
from polyattn.sources.parquet_rows import KeptReaders
from polyattn.stats import moment_sums, moments, triangular_factor
from polyattn.stats.moment_sums import ExplicitSums, PairedSums

pytestmark = pytest.mark.kernel

# Files that change while they are read ------------------------------------------------------


def replace(path, state):
    """Another file of the same size and time."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.rename(path)


def touch(path, state):
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("kind", "change"), [("stored", replace), ("packed", touch), ("table", replace)]
)
def test_a_change_while_a_file_is_read_is_refused(tmp_path, monkeypatch, kind, change):
    X = np.random.default_rng(0).standard_normal((50, 3, 2))
    path, options = tmp_path / ("a.parquet" if kind == "table" else "a.npz"), {}
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


# Sums ---------------------------------------------------------------------------------------

ENGINES = (ExplicitSums, PairedSums)


@pytest.mark.parametrize(("d", "mode"), [(1, "last"), (2, "causal"), (3, "last"), (5, "full")])
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


# What was counted ---------------------------------------------------------------------------

KINDS_OF_NAMES = (st.integers(-20, 60), st.text("ab", max_size=3), st.sampled_from([0.25, 0.5, 2]))


@given(
    st.one_of(*(st.lists(st.lists(each, min_size=1, max_size=6), max_size=6) for each in KINDS_OF_NAMES)),
    st.integers(0, 6),
)  # fmt: skip
def test_names_are_refused_where_and_only_where_they_repeat(chunks, cut):
    """Against a set; of one process that is restarted, and of two that put theirs together."""
    every = [name for chunk in chunks for name in chunk]
    repeats = len(set(every)) < len(every)
    names, parts = SequenceNames(), (SequenceNames(), SequenceNames())

    def restarted():
        nonlocal names
        for chunk in chunks:
            names.add(np.array(chunk))
            names = SequenceNames.restored(names.metadata(), names.arrays()["names"])

    def together():
        for at, chunk in enumerate(chunks):
            parts[at >= cut].add(np.array(chunk))
        parts[0].absorb(parts[1])

    for add in (restarted, together):
        if repeats:
            with pytest.raises(InvalidInput, match="twice"):
                add()
        else:
            add()


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
    source, real = pa.scan(np.ones((4, 3, 2))), workers.software
    options = {"processes": False, "dashboard_address": ":0", "threads_per_worker": 1}
    for n_workers, word in ((1, "numpy"), (1, "BLAS"), (0, "workers")):
        count = itertools.count()
        monkeypatch.setattr(workers, "software", lambda w=word, c=count: real() | {w: str(next(c))})
        with (
            distributed.LocalCluster(n_workers=n_workers, **options) as some,
            distributed.Client(some) as client,
            pytest.raises(InvalidInput, match=word),
        ):
            pa.Moments(2).update(source, client=client)
