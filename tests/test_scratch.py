"""Summaries in a scratch file: the same bits, nothing left behind, a full disk loses nothing."""

import errno
import os
import resource
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import polyattn as pa
from polyattn.solve import iterative, planning, rereading, solving
from polyattn.solve.iterative import solve_iterative
from polyattn.stats import row_groups
from polyattn.stats import rows as rows_module
from polyattn.stats import scratch as scratch_module
from polyattn.stats.rows import Rows
from polyattn.stats.scratch import ScratchFile, scratch_fits

FORMS = {
    "last": pa.Form(),
    "causal": pa.Form(mode="causal", bias=True, intercept=True),
    "full": pa.Form(mode="full", skip=True),
}


@pytest.fixture(autouse=True)
def few_in_memory(monkeypatch):
    """Summaries do not fit into memory, and are made some rows at a time."""
    monkeypatch.setattr(rows_module, "KEPT_NUMBERS", 0)
    monkeypatch.setattr(row_groups, "GROUP_NUMBERS", 60)
    monkeypatch.setattr(iterative, "kept_numbers", lambda: 1)
    monkeypatch.setattr(solving, "kept_numbers", lambda: 1)


def rows_of(form: pa.Form, weighted: bool = False) -> Rows:
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 3)) for n in rng.integers(1, 40, 12)]
    rows = len(X) if form.mode == "last" else sum(map(len, X))
    Y = rng.standard_normal((rows, 2))
    if form.mode != "last":
        Y = np.split(Y, np.cumsum([len(x) for x in X])[:-1])
    weights = rng.uniform(0.5, 2, len(X)) if weighted else None
    return Rows.build(X, Y, form, weights)


def arrays(rows: Rows) -> list[np.ndarray]:
    return [
        array for block in rows.blocks()
        for array in (np.array([block.first, block.stop]), block.sums, block.queries, block.targets)
    ]  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_pass_has_the_same_blocks(form, weighted):
    rows = rows_of(FORMS[form], weighted)
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        expected, first = arrays(rows), arrays(kept)
        assert scratch.is_whole
        assert scratch.n_bytes == rows.summary_bytes
        for found in (first, arrays(kept), arrays(kept)):
            assert len(found) == len(expected) > 4
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_tokens_are_read_once_and_the_bits_are_the_same(monkeypatch):
    rows = rows_of(FORMS["causal"])
    read, before = [], Rows.read_blocks

    def counting(self, *given):
        read.append(self.n_rows)
        return before(self, *given)

    monkeypatch.setattr(Rows, "read_blocks", counting)
    with ScratchFile() as scratch:
        found = solve_iterative(rows.with_scratch(scratch), 0.0)
    assert sum(read) == rows.n_rows
    expected = solve_iterative(rows, 0.0)
    assert sum(read) > 5 * rows.n_rows
    np.testing.assert_array_equal(found.theta, expected.theta)
    assert found.note == expected.note


def test_parts_and_other_scales_do_not_read_the_file_of_the_whole():
    rows = rows_of(FORMS["last"])
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        arrays(kept)
        part = kept.part(3, 9)
        assert next(block.first for block in part.blocks()) == 3
        doubled = kept.with_exponents(kept.token_exponent + 1, kept.target_exponent)
        np.testing.assert_array_equal(next(doubled.blocks()).sums * 4.0, next(rows.blocks()).sums)


def test_a_pass_that_stops_early_leaves_no_half_file():
    rows = rows_of(FORMS["last"])
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        groups = kept.groups()
        next(groups)
        # A second pass at the same time does not write.
        assert len(list(kept.groups())) > 2
        assert not scratch.is_whole
        groups.close()
        expected = arrays(rows)
        for _ in range(2):
            for one, other in zip(arrays(kept), expected, strict=True):
                np.testing.assert_array_equal(one, other)
        assert scratch.is_whole


@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_full_disk_loses_nothing(monkeypatch, after):
    rows = rows_of(FORMS["causal"])
    true, count = ScratchFile._write, []

    def full(self, array):
        count.append(1)
        if len(count) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return true(self, array)

    monkeypatch.setattr(ScratchFile, "_write", full)
    expected = solve_iterative(rows, 1.0)
    with ScratchFile() as scratch:
        found = solve_iterative(rows.with_scratch(scratch), 1.0)
        assert scratch.is_failed
    assert len(count) == after + 1
    np.testing.assert_array_equal(found.theta, expected.theta)


def test_what_the_system_refuses_to_write_is_not_lost():
    """Files may not grow beyond a limit: the write fails as on a full disk."""
    rows = rows_of(FORMS["causal"])
    expected, before = arrays(rows), resource.getrlimit(resource.RLIMIT_FSIZE)
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        resource.setrlimit(resource.RLIMIT_FSIZE, (rows.summary_bytes // 2, before[1]))
        try:
            found = [arrays(kept) for _ in range(2)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert scratch.is_failed
        assert not scratch.is_whole
    for some in found:
        assert all(map(np.array_equal, some, expected))


def test_no_file_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = rows_of(FORMS["last"])

    def interrupted(scratch):
        with scratch:
            arrays(rows.with_scratch(scratch))
            assert list(tmp_path.iterdir()) == []
            raise KeyboardInterrupt

    scratch = ScratchFile()
    with pytest.raises(KeyboardInterrupt):
        interrupted(scratch)
    assert list(tmp_path.iterdir()) == []
    # Rows that are read afterwards make their summaries again.
    assert len(arrays(rows.with_scratch(scratch))) == len(arrays(rows))


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="threads wait for each other then")
def test_a_read_is_not_led_astray_by_others(monkeypatch):
    """Another thread, or a fork, may move the position at any time."""
    rows = rows_of(FORMS["last"])
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        expected = arrays(kept)

        class Moved:
            """The file, whose position is moved after each seek."""

            def fileno(self):
                return file.fileno()

            def seek(self, offset):
                file.seek(offset)
                file.seek(8)

            def readinto(self, view):
                return file.readinto(view)

        file = scratch._file
        monkeypatch.setattr(scratch, "_file", Moved())
        found = arrays(kept)
        monkeypatch.setattr(scratch, "_file", file)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_file_that_was_shortened_is_an_error():
    rows = rows_of(FORMS["last"])
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        arrays(kept)
        os.truncate(scratch._file.fileno(), 100)
        with pytest.raises(OSError, match="ended too soon"):
            arrays(kept)


def test_a_fit_takes_a_file_where_that_is_faster_and_fits(monkeypatch):
    used: list[int] = []

    class Counting(ScratchFile):
        def __enter__(self):
            used.append(1)
            return super().__enter__()

    monkeypatch.setattr(rereading, "ScratchFile", Counting)
    monkeypatch.setattr(rereading, "scratch_fits", lambda n_bytes: n_bytes < 10**6)
    rng = np.random.default_rng(0)
    long, short = rng.standard_normal((30, 400, 3)), rng.standard_normal((30, 1, 3))
    Y = rng.standard_normal((30, 1))
    fit = partial(pa.fit, solver="iterative", ridge=1.0)
    fit(short, Y)
    assert used == []
    with_file = fit(long, Y)
    assert used == [1]
    monkeypatch.setattr(rereading, "scratch_fits", lambda _: False)
    np.testing.assert_array_equal(fit(long, Y).coef, with_file.coef)
    assert used == [1]


def test_space_on_the_disk_is_asked_for(monkeypatch):
    monkeypatch.setattr(scratch_module, "_is_in_memory", lambda _: False)
    free = os.statvfs(tempfile.gettempdir())
    assert scratch_fits(1)
    assert not scratch_fits(free.f_bavail * free.f_frsize)
    monkeypatch.setattr(scratch_module, "_is_in_memory", lambda _: True)
    assert not scratch_fits(1)


@pytest.mark.parametrize(
    ("mounts", "is_in_memory"),
    [
        ("disk / ext4 rw 0 0\n", False),
        ("disk / ext4 rw 0 0\nnone /scratch tmpfs rw 0 0\n", True),
        ("none / tmpfs rw 0 0\ndisk /scratch ext4 rw 0 0\n", False),
        ("disk / ext4 rw 0 0\nnone /scrat tmpfs rw 0 0\n", False),
        ("disk / ext4 rw 0 0\ndisk /scratch ext4 rw 0 0\nnone /scratch ramfs rw 0 0\n", True),
    ],
)
def test_a_disk_in_memory_is_seen(monkeypatch, tmp_path, mounts, is_in_memory):
    (tmp_path / "mounts").write_text(mounts)
    monkeypatch.setattr(scratch_module, "Path", lambda _: tmp_path / "mounts")
    assert scratch_module._is_in_memory("/scratch/inside") == is_in_memory


def test_memory_does_not_grow_with_the_file(monkeypatch):
    monkeypatch.setattr(row_groups, "GROUP_NUMBERS", 1 << 16)
    rng = np.random.default_rng(0)
    rows = Rows.build(rng.standard_normal((400, 50, 16)), np.ones((400, 50)), FORMS["causal"])
    with ScratchFile() as scratch:
        kept = rows.with_scratch(scratch)
        list_of = [len(blocks) for blocks in kept.groups()]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            assert [len(blocks) for blocks in kept.groups()] == list_of
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert 1024 * grown < scratch_bytes(rows) / 4


def scratch_bytes(rows: Rows) -> int:
    assert planning.size_of(rows.layout, rows.n_rows, 1).n_summaries * 8 == rows.summary_bytes
    return rows.summary_bytes


def test_threads_that_read_at_once_get_their_own_arrays():
    with ScratchFile() as scratch:
        assert scratch.begin()
        for at in range(200):
            scratch.add([(50 * at, 50 * (at + 1), (np.full((3, 50), float(at)),))])
        scratch.end(is_whole=True)

        def read(_):
            return [
                bool(np.all(arrays[0] == at))
                for _ in range(10)
                for at, [(_, _, arrays)] in enumerate(scratch.groups())
            ]

        with ThreadPoolExecutor(4) as pool:
            assert all(map(all, pool.map(read, range(4))))
