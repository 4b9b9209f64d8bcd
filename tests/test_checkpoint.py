"""Checkpoints: interrupted anywhere, the same call goes on and ends in the same bits."""

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.records import Record, read_record, write_record
from polyattn.form import Form
from polyattn.progress import listening
from polyattn.stats import checkpoint as checkpoint_module
from source_cases import (
    EmptyChunk,
    ListSource,
    MemoryChunk,
    file_source,
    memory_source,
    write_shards,
)
from statistics_cases import KINDS

both_kinds = pytest.mark.parametrize("make", KINDS)


@pytest.fixture
def often(monkeypatch):
    """A file after every chunk."""
    monkeypatch.setattr(checkpoint_module, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_module, "LARGEST_SHARE", np.inf)


class Interrupted(MemoryChunk):
    """A chunk at which the process is interrupted, once."""

    def read(self, mode):
        if self.n_reads == 0:
            self.n_reads += 1
            raise KeyboardInterrupt
        return super().read(mode)


def named(at, first, count):
    """Names in an order that has to be remembered."""
    return np.arange(first, first + count)[::-1] + 10_000 * at


def with_interruption(source, at):
    chunk = source.chunks[at]
    other = Interrupted("memory", chunk.X, chunk.Y, chunk.weights, first=chunk.identity.first)
    other.more = chunk.more
    source.parts[at] = other
    return source


@pytest.mark.usefixtures("often")
@both_kinds
@pytest.mark.parametrize("n_chunks", [5, 70])
def test_interrupted_at_any_chunk_it_ends_in_the_same_bits(make, n_chunks, tmp_path):
    whole = make(2, 1).update(memory_source(n_chunks, names=named))
    for at in range(1, n_chunks, 1 if n_chunks < 9 else 31):
        path = tmp_path / f"{at}.safetensors"
        source = with_interruption(memory_source(n_chunks, names=named), at)
        stats = make(2, 1)
        with pytest.raises(KeyboardInterrupt):
            stats.update(source, checkpoint=path)
        assert stats == make(2, 1)
        seen = []
        with listening(lambda done, _, seen=seen: seen.append(done)):
            assert stats.update(source, checkpoint=path) == whole
        # What was done before is reported once, then every chunk.
        assert len(seen) == 1 + n_chunks - at
        # Of the chunks before, only the first one was read again: it shows what is read.
        assert [chunk.n_reads for chunk in source.chunks[1:at]] == [1] * (at - 1)


@both_kinds
def test_the_file_of_a_finished_run_gives_the_result_at_once(make, tmp_path):
    """Seldom written: only at the end."""
    source, path = memory_source(9), tmp_path / "state"
    whole = make(2, 1).update(source, checkpoint=path)
    again = memory_source(9)
    assert make(2, 1).update(again, checkpoint=path) == whole
    assert [chunk.n_reads for chunk in again.chunks] == [1] + [0] * 8


@pytest.mark.usefixtures("often")
def test_what_was_there_before_is_not_in_the_file(tmp_path):
    """The sum over the source is made by itself: the file fits whatever it is added to."""
    source, path = with_interruption(memory_source(5), 3), tmp_path / "state"
    X, Y = np.ones((3, 2, 2)), np.ones(3)
    stats = pa.Moments(2, 1).update(X, Y)
    with pytest.raises(KeyboardInterrupt):
        stats.update(source, checkpoint=path)
    assert stats == pa.Moments(2, 1).update(X, Y)
    expected = pa.Moments(2, 1).update(X, Y).update(memory_source(5))
    assert stats.update(source, checkpoint=path) == expected


@pytest.mark.usefixtures("often")
def test_empty_chunks_are_counted_as_done(tmp_path):
    def source():
        full = memory_source(4).chunks
        return ListSource([EmptyChunk("e", 0), full[0], EmptyChunk("e", 1), *full[1:]], 2, 1)

    whole = pa.Moments(2, 1).update(source())
    for at in (1, 3, 4, 5):
        path, stopped = tmp_path / str(at), with_interruption(source(), at)
        with pytest.raises(KeyboardInterrupt):
            pa.Moments(2, 1).update(stopped, checkpoint=path)
        assert pa.Moments(2, 1).update(stopped, checkpoint=path) == whole
        assert pa.Moments(2, 1).update(source(), checkpoint=path) == whole
    empty = ListSource([EmptyChunk("e", 0)], 2, 1)
    with pytest.raises(InvalidInput, match="holds no sequence"):
        pa.Moments(2, 1).update(empty, checkpoint=tmp_path / "empty")


@pytest.mark.usefixtures("often")
def test_forms_and_contexts(tmp_path):
    rng = np.random.default_rng(0)
    form = Form(mode="causal", decay=[0.5, 0.9], value=[1], key=[0, 1], skip=True)
    X, Z = rng.standard_normal((6, 4, 3)), rng.standard_normal((6, 4, 2))

    def source():
        attended = [pa.SequenceBatch.from_array(Z[i : i + 2]) for i in (0, 2, 4)]
        chunks = [
            MemoryChunk("a", X[2 * i : 2 * i + 2], first=2 * i, context=each)
            for i, each in enumerate(attended)
        ]
        return ListSource(chunks, 3, n_context_dims=2)

    made = pa.Moments(3, form=form, n_context_dims=2)
    whole = made.empty().update(source())
    broken = source()
    broken.chunks[2].X = X[4:] * np.nan
    with pytest.raises(InvalidInput, match="NaN"):
        made.empty().update(broken, checkpoint=tmp_path / "state")
    assert read_record(tmp_path / "state").metadata["n_done"] == 2
    assert made.empty().update(source(), checkpoint=tmp_path / "state") == whole


def test_a_form_that_no_file_can_hold_is_refused_at_once(tmp_path):
    source = memory_source(3, e=0)
    with pytest.raises(InvalidInput, match="function"):
        pa.Moments(2, form=Form(key=np.exp)).update(source, checkpoint=tmp_path / "state")
    assert [chunk.n_reads for chunk in source.chunks[1:]] == [0, 0]


def test_a_checkpoint_is_for_sources(tmp_path):
    with pytest.raises(InvalidInput, match="for a source"):
        pa.Moments(2).update(np.ones((2, 3, 2)), checkpoint=tmp_path / "state")


# Files that do not fit ----------------------------------------------------------------------------


def changed(source):
    chunk = source.chunks[0]
    chunk.identity = chunk.identity._replace(fingerprint="2")
    source.parts[1:] = []
    return source


def read_otherwise(source):
    source.chunks[0].weights = 2.0 * source.chunks[0].weights
    return source


def other_end(source):
    last = source.chunks[-1]
    last.identity = last.identity._replace(stop=last.identity.stop + 1)
    return source


UNFIT = {
    "kind": (pa.TriangularFactor(2, 1), memory_source, "is of 'moments', and not of 'triangular"),
    "mode": (pa.Moments(2, 1, bias=True), memory_source, "another form.*bias is False"),
    "outputs": (pa.Moments(2), memory_source, "other sizes: its n_outputs is 1, and 0 here"),
    "fewer": (pa.Moments(2, 1), lambda _: memory_source(4), "it has 6 chunks, and these are 4"),
    "gone": (
        pa.Moments(2, 1),
        lambda _: ListSource([MemoryChunk("b", [np.ones((2, 2))], np.ones((1, 1)))], 2, 1),
        "'memory' is in it, and not among these",
    ),
    "changed": (pa.Moments(2, 1), lambda n: changed(memory_source(n)), "'memory' has changed"),
    "undone": (pa.Moments(2, 1), lambda n: other_end(memory_source(n)), "does not hold yet"),
    "weights": (pa.Moments(2, 1), lambda n: read_otherwise(memory_source(n)), "in another way"),
}  # fmt: skip


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", UNFIT)
def test_a_checkpoint_of_something_else_is_refused_and_kept(name, tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        pa.Moments(2, 1).update(with_interruption(memory_source(6), 4), checkpoint=path)
    before = path.read_bytes()
    stats, make_source, words = UNFIT[name]
    with pytest.raises(InvalidInput, match=f"(?s){words}.*[Nn]ame another file"):
        stats.copy().update(make_source(6), checkpoint=path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_a_checkpoint_of_another_release_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "state"
    monkeypatch.setattr(checkpoint_module, "__version__", "0.0.1")
    pa.Moments(2, 1).update(memory_source(3), checkpoint=path)
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match=r"written by polyattn '0.0.1'.*remove this one"):
        pa.Moments(2, 1).update(memory_source(3), checkpoint=path)


def test_other_files_are_refused_and_kept(tmp_path):
    pa.Moments(2, 1).save(tmp_path / "sums")
    (tmp_path / "text").write_text("notes")
    (tmp_path / "empty").touch()
    for name, words in (
        ("sums", "holds a 'moments', not a 'checkpoint'"),
        ("text", "not a polyattn file"),
        ("empty", "not a polyattn file"),
    ):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(FileFormatError, match=words):
            pa.Moments(2, 1).update(memory_source(3), checkpoint=tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(InvalidInput, match=r"state\.safetensors"):
        pa.Moments(2, 1).update(memory_source(3), checkpoint=tmp_path / "state.npz")
    with pytest.raises(InvalidInput, match="does not exist"):
        pa.Moments(2, 1).update(memory_source(3), checkpoint=tmp_path / "none" / "state")
    with pytest.raises(InvalidInput, match="folder"):
        pa.Moments(2, 1).update(memory_source(3), checkpoint=tmp_path)


def test_a_checkpoint_is_not_loaded_as_statistics(tmp_path):
    pa.Moments(2, 1).update(memory_source(3), checkpoint=tmp_path / "state")
    with pytest.raises(FileFormatError, match=r"is the checkpoint of a sum.*goes on from there"):
        pa.load(tmp_path / "state")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state"
    pa.Moments(2, 1).update(memory_source(3), checkpoint=path)
    good = path.read_bytes()
    for bad in (good[:-9], good[: len(good) // 2], good[:-1] + bytes([good[-1] ^ 1]), b""):
        path.write_bytes(bad)
        with pytest.raises(FileFormatError, match=r"truncated|damaged|polyattn file"):
            pa.Moments(2, 1).update(memory_source(3), checkpoint=path)
        assert path.read_bytes() == bad


# How arrays and metadata are changed: fields that are replaced, and arrays that are left out.
FORGED = {
    "nothing": ({}, ()),
    "more chunks": ({"n_done": 99}, ()),
    "fewer chunks": ({"n_done": 2}, ()),
    "sums without words": ({"total": None}, ()),
    "words without sums": ({}, ("total.gram",)),
    "no names": ({}, ("names",)),
    "names": ({"names": {"first": "a"}}, ()),
    "field": ({"more": 1}, ()),
    "contents": ({"total": {"contents": {"unnamed": True, "sources": []}}}, ()),
    "another array": ({}, ("total.x",)),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused(name, tmp_path):
    """Files with a good digest whose content is wrong."""
    path = tmp_path / "state"
    whole = pa.Moments(2, 1).update(memory_source(5), checkpoint=path)
    record = read_record(path)
    fields, left_out = FORGED[name]
    arrays = {key: array for key, array in record.arrays.items() if key not in left_out}
    if name == "another array":
        arrays["total.x"] = np.ones(2)
    if name == "contents":
        fields = {"total": record.metadata["total"] | fields["total"]}
    write_record(Record(record.kind, arrays, record.metadata | fields), path)
    if name == "nothing":
        assert pa.Moments(2, 1).update(memory_source(5), checkpoint=path) == whole
        return
    with pytest.raises(FileFormatError, match="the checkpoint"):
        pa.Moments(2, 1).update(memory_source(5), checkpoint=path)


# A full disk --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("often")
def test_a_full_disk_leaves_the_last_file(tmp_path, monkeypatch):
    path, whole = tmp_path / "state", pa.Moments(2, 1).update(memory_source(6))
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*still good.*state'"):
        pa.Moments(2, 1).update(memory_source(6), checkpoint=path)
    monkeypatch.undo()
    assert [*tmp_path.iterdir()] == [path]
    monkeypatch.setattr(checkpoint_module, "CHECKPOINT_SECONDS", 0.0)
    assert read_record(path).metadata["n_done"] == 3
    assert pa.Moments(2, 1).update(memory_source(6), checkpoint=path) == whole


def test_a_file_that_may_not_grow(tmp_path):
    """The system refuses to write more than so many bytes: nothing is left but a clear error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"could not be written.*state'"):
            pa.Moments(2, 1).update(memory_source(6), checkpoint=tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.iterdir()] == []


# Killed -------------------------------------------------------------------------------------------

# For every line that comes, a process of its own: importing once is enough.
CHILD = """
import os, sys
import polyattn as pa
from polyattn.stats import checkpoint
from source_cases import file_source
checkpoint.CHECKPOINT_SECONDS, checkpoint.LARGEST_SHARE = 0.0, float("inf")
folder, path, result = sys.argv[1:]
for _ in sys.stdin:
    process = os.fork()
    if process == 0:
        pa.Moments(3, 1).update(file_source(folder, pause=0.01), checkpoint=path).save(result)
        os._exit(0)
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def test_killed_and_begun_again(tmp_path):
    folder, path, result = tmp_path / "shards", tmp_path / "state", tmp_path / "sums"
    folder.mkdir()
    write_shards(folder, 100)
    rng, done, codes = random.Random(0), [0], []  # noqa: S311
    roots = [str(Path(pa.__file__).parents[1]), str(Path(__file__).parent)]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(path), str(result)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as parent:  # fmt: skip
        while not result.exists():
            print("go", file=parent.stdin)
            process = int(parent.stdout.readline())
            if len(codes) < 8:
                time.sleep(rng.uniform(0.01, 0.2))
                with contextlib.suppress(ProcessLookupError):  # it may have ended before
                    os.kill(process, signal.SIGKILL)
            codes.append(int(parent.stdout.readline()))
            done.append(read_record(path).metadata["n_done"] if path.exists() else 0)
        parent.stdin.close()
    # They were killed on the way, and what was done was not lost.
    assert codes.count(-signal.SIGKILL) >= 2
    assert codes[-1] == 0
    assert done == sorted(done)
    assert done[-1] == 100
    assert pa.Moments.load(result) == pa.Moments(3, 1).update(file_source(folder))
    # What killed processes left behind is removed.
    assert {each.name for each in tmp_path.iterdir()} == {"shards", "state", "sums"}


@pytest.mark.usefixtures("often")
def test_a_shard_that_changes_is_noticed(tmp_path):
    write_shards(tmp_path, 6)
    path, source = tmp_path / "state", file_source(tmp_path)
    shutil.copy(tmp_path / "0001.npz", tmp_path / "0004.npz")
    stats = pa.Moments(3, 1)
    with pytest.raises(InvalidInput, match=r"0004\.npz' has changed"):
        stats.update(source, checkpoint=path)
    assert stats == pa.Moments(3, 1)
    # Looked at anew it is other data.
    with pytest.raises(InvalidInput, match="other data"):
        stats.update(file_source(tmp_path), checkpoint=path)
