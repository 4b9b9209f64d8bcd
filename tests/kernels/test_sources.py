"""What public calls do not reach of reading in parts: files that change meanwhile, and names."""

import itertools
import os

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.cluster import workers
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.sources import names as names_module
from polyattn.sources import parquet, shards
from polyattn.sources.names import SequenceNames
from polyattn.sources.parquet_rows import KeptReaders
from polyattn.stats.gather import add_stretch

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    ("name", "save", "owner", "reader"),
    [
        ("a.npz", np.savez, shards, "read_range"),
        ("b.npz", np.savez_compressed, shards, "read_arrays"),
        ("c.parquet", None, pq.ParquetFile, "iter_batches"),
    ],
)
def test_a_change_while_a_file_is_read_is_refused(tmp_path, monkeypatch, name, save, owner, reader):
    X, path, columns = np.random.default_rng(0).standard_normal((50, 3, 2)), tmp_path / name, {}
    if save is None:
        rows = {"id": np.repeat(np.arange(50), 3), "a": X[..., 0].ravel(), "b": X[..., 1].ravel()}
        pq.write_table(arrow.table(rows), path)
        columns = {"sequence": "id", "tokens": ["a", "b"]}
    else:
        save(path, X=X)
    source = pa.scan(path, **columns, chunk_bytes=1000)
    pa.Moments(2).update(source)  # the control: without a change it is read
    real, state = getattr(owner, reader), path.stat()

    def reading(*given, **named):
        found, other = real(*given, **named), path.with_name("other")
        # Another file of the same content, size and time.
        other.write_bytes(path.read_bytes())
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.rename(path)
        return found

    monkeypatch.setattr(parquet, "READERS", KeptReaders(0))
    monkeypatch.setattr(owner, reader, reading)
    with pytest.raises(FileFormatError, match=name):
        pa.Moments(2).update(source)


KINDS_OF_NAMES = (st.integers(-20, 60), st.text("ab", max_size=3), st.sampled_from([0.25, 0.5, 2]))


@given(
    st.one_of(*(st.lists(st.lists(each, min_size=1, max_size=6), max_size=6) for each in KINDS_OF_NAMES)),
    st.integers(0, 6),
)  # fmt: skip
@example([[1, 2], [2, 3]], 1)  # they grow, but for one that ends a chunk and begins the next
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


def test_a_stretch_added_by_several_tasks_is_one(tmp_path):
    table = arrow.table({"id": np.repeat([*range(20), 0], 2), "a": np.arange(42.0)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    chunks = pa.scan(tmp_path / "a.parquet", sequence="id", tokens="a", chunk_bytes=50).chunks
    begun = add_stretch(pa.Moments(1), chunks[:2])
    assert add_stretch(begun, chunks[2:-1]) == add_stretch(pa.Moments(1), chunks[:-1])
    with pytest.raises(InvalidInput, match="twice"):
        add_stretch(begun, chunks[2:])


def test_growing_names_need_no_memory(monkeypatch):
    monkeypatch.setattr(names_module, "MOST_KEPT", 10)
    names = SequenceNames()
    for first in range(0, 100, 4):
        names.add(np.arange(first, first + 4))
    assert names.arrays()["names"].size <= 10
    with pytest.raises(InvalidInput, match="7"):
        names.add(np.array([300, 7]))


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
