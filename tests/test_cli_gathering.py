"""Verbs with workers: a scheduler, a cluster that ends with the verb, and what goes wrong."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from command_endings import parsed, refused
from polyattn.cli import gathering
from polyattn.cli.gathering import uninterrupted
from polyattn.cli.main import cli

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb inside a folder with two shards; returns click's result."""
    monkeypatch.chdir(tmp_path)
    task = pa.data.planted(60, 4, 3, mode="last", random_state=0)
    for i in range(2):
        part = slice(30 * i, 30 * (i + 1))
        np.savez(f"shard-{i}.npz", X=task.X[part], Y=task.Y[part])

    def call(*arguments):
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return call


def test_a_scheduler_that_does_not_answer(run, monkeypatch):
    monkeypatch.setattr(gathering, "ANSWER_SECONDS", 0.5)
    start = time.perf_counter()
    for verb in ("fit", "certify"):
        found = run(verb, "shard-*.npz", "--dask", "tcp://127.0.0.1:9")
        refused(found, "no Dask scheduler answers at 'tcp://127.0.0.1:9' within", "--workers N")
        refused(run(verb, "shard-*.npz", "--dask", "nowhere"), "--dask must be the address")
    assert time.perf_counter() - start < 10


def test_options_that_exclude_each_other(run):
    both = ("--dask", "tcp://127.0.0.1:9", "--workers", "2")
    refused(run("fit", "shard-*.npz", *both), "leave one of them out")
    refused(run("fit", "shard-*.npz", "--workers", "0"), "Usage:", code=2)


def test_data_are_looked_at_before_workers_are_started(run, monkeypatch):
    monkeypatch.setattr(gathering, "cluster", None)  # calling it would be a TypeError
    refused(run("fit", "gone-*.npz", "--workers", "2"), "no file matches")


def test_a_missing_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(run("fit", "shard-*.npz", "--workers", "2"), "pip install 'polyattn[dask]'")


# Real processes


@pytest.fixture(scope="module")
def address():
    """A scheduler with one worker process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0",
        memory_limit="1GiB", silence_logs="CRITICAL",
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address


def without_times(found):
    return {name: value for name, value in found.items() if "seconds" not in name}


def test_a_scheduler_gives_the_answers_of_one_process(run, address):
    fit = ("fit", "shard-*.npz", "--json")
    certify = ("certify", "shard-*.npz", "--json")
    of_workers = ("--dask", address)
    assert without_times(parsed(run(*fit, *of_workers))) == without_times(parsed(run(*fit)))
    assert parsed(run(*certify, *of_workers)) == parsed(run(*certify))
    kept = ("--checkpoint", "run.safetensors")
    again = parsed(run(*fit, *of_workers, *kept))
    assert without_times(again) == without_times(parsed(run(*fit, *kept)))


def test_one_small_file_goes_to_the_workers_too(run, address):
    one = parsed(run("fit", "shard-0.npz", "--json"))
    found = parsed(run("fit", "shard-0.npz", "--dask", address, "--json"))
    assert found["risk"] == pytest.approx(one["risk"], abs=1e-20)
    assert found["rank"] == one["rank"]


def test_an_error_in_a_file_is_the_same_line(run, address):
    with np.load("shard-1.npz") as held:
        X, Y = held["X"], held["Y"]
    X[3, 2, 1] = np.nan
    np.savez("shard-1.npz", X=X, Y=Y)
    alone = run("fit", "shard-*.npz")
    refused(alone, "shard-1.npz", "NaN", "sequence 3, token 2")
    assert run("fit", "shard-*.npz", "--dask", address).stderr == alone.stderr


def test_workers_end_with_the_verb(run):
    expected = without_times(parsed(run("fit", "shard-*.npz", "--json")))
    before = set(multiprocessing.active_children())
    found = without_times(parsed(run("fit", "shard-*.npz", "--workers", "1", "--json")))
    assert found == expected
    assert set(multiprocessing.active_children()) == before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ps") is None, reason="processes are counted by ps")
def test_ctrl_c_leaves_no_process_behind(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(24):
        X, Y = rng.standard_normal((4000, 10, 14)), rng.standard_normal((4000, 2))
        np.savez(tmp_path / f"large-{i:02d}.npz", X=X, Y=Y)
    command = [sys.executable, "-m", "polyattn", "fit", "large-*.npz", "--workers", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        start_new_session=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    # The group has workers, and they are at work.
    interrupt(process, n_processes=4, later=3)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ps") is None, reason="processes are counted by ps")
@pytest.mark.parametrize("n_processes", [2, 3, 4])
def test_ctrl_c_while_workers_start(tmp_path, n_processes):
    """The group has some of its processes, and others are not there yet."""
    X = np.ones((40, 3, 2))
    for i in range(2):
        np.savez(tmp_path / f"small-{i}.npz", X=X, Y=X[:, 0])
    command = [sys.executable, "-m", "polyattn", "fit", "small-*.npz", "--workers", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        start_new_session=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    interrupt(process, n_processes, later=0)


def interrupt(process, n_processes, later):
    """Ctrl-C once there are so many processes: one word, and none of them is left."""
    deadline = time.monotonic() + 60
    while len(group(process.pid)) < n_processes and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(later)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, out, err.strip()) == (1, "", "Aborted!")
    time.sleep(1)
    assert group(process.pid) == []


@pytest.fixture
def heeded_ctrl_c():
    """A shell that runs tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_waits_and_is_not_passed_on():
    """Also to a process that is started meanwhile, which would end with a traceback."""
    asks = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    reached = []

    def start_something():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)  # to this thread, whatever others there are
            command = [sys.executable, "-c", asks]
            child = subprocess.run(command, capture_output=True, text=True, check=True)
            reached.append(child.stdout)

    with pytest.raises(KeyboardInterrupt):
        start_something()
    [blocked] = reached
    assert "SIGINT" in blocked
    # Negative control: behind the block, nothing is held back any more.
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def group(leader):
    """The processes of a group that have not ended."""
    listed = subprocess.run(
        [shutil.which("ps"), "-eo", "pgid=,stat=,pid="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [row[2] for row in rows if row[0] == str(leader) and "Z" not in row[1]]
