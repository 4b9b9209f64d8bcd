"""Dask's workers give the bits of one process, whoever of them dies, and leave nothing behind."""

from __future__ import annotations

import _thread
import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import dask
import dask.array
import distributed
import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from polyattn.errors import ClusterFailed, InvalidInput, InvalidType

pytestmark = pytest.mark.xdist_group("cluster")
KINDS = (pa.Moments, pa.TriangularFactor)


@contextlib.contextmanager
def cluster(n_workers, **options):
    """A client of so many processes of one thread each."""
    quiet = {
        # A worker that was killed is not called for half a minute, as Dask would by default.
        "distributed.logging.distributed": "critical", "distributed.comm.timeouts.connect": "5s",
    }  # fmt: skip
    for name in ("distributed.scheduler", "distributed.nanny", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(
            n_workers=n_workers, dashboard_address=":0", silence_logs=logging.CRITICAL,
            **{"threads_per_worker": 1, "memory_limit": "1GiB"} | options,
        ) as made,
        distributed.Client(made) as client,
    ):  # fmt: skip
        yield client


@pytest.fixture(scope="module")
def two():
    with cluster(2) as client:
        yield client


@pytest.fixture
def client(two):
    """Two processes, there again after a test that killed one."""
    return all_there(two, 2)


def all_there(client, n_workers):
    try:
        client.wait_for_workers(n_workers, timeout=15)
    except TimeoutError:  # Dask's nannies do not always start a new one
        client.cluster.scale(len(client.cluster.worker_spec) + 1)
        client.wait_for_workers(n_workers, timeout=60)
    return client


def part(i, size=12, before=None):
    """Data of other sizes in each part, so that units change on the way."""
    if before is not None:
        before(i)
    rng = np.random.default_rng(i)
    X = rng.standard_normal((size, 4, 3)) * 10.0 ** rng.integers(-3, 3)
    return X, rng.standard_normal((size, 4, 2))


def delayed(count, size=12, before=None, start=0):
    """A source whose parts are made where they are needed."""
    parts = range(start, start + count)
    return pa.scan(
        [dask.delayed(part)(i, size, before, dask_key_name=f"part-{size}-{i}") for i in parts]
    )


def made_of(i, size=12):
    X, Y = part(i, size)
    return X, Y, np.random.default_rng(i).uniform(0.5, 2, size)


def all_items(count):
    return map(made_of, range(count))


def tasks(client):
    """How many tasks the scheduler knows, and the bytes of the largest."""

    def known(dask_scheduler):
        from distributed.protocol.serialize import serialize

        specs = [task.run_spec for task in dask_scheduler.tasks.values()]
        sizes = [sum(memoryview(f).nbytes for f in serialize(each)[1]) for each in specs]
        return len(specs), max(sizes, default=0)

    return client.run_on_scheduler(known)


def assert_nothing_left(client):
    deadline = time.monotonic() + 20
    while tasks(client)[0] and time.monotonic() < deadline:
        gc.collect()  # an error that was raised holds what it was about
        time.sleep(0.05)
    assert tasks(client)[0] == 0


# The same bits ------------------------------------------------------------------------------


def sources(folder, count):
    rng = np.random.default_rng(0)
    X, Y, w = (np.concatenate(each) for each in zip(*all_items(count), strict=True))
    for i in range(count):
        np.savez(
            folder / f"{i:03}.npz", **dict(zip(("X", "Y", "weights"), made_of(i), strict=True))
        )
    table = pd.DataFrame(X.reshape(-1, 3), columns=list("abc")).assign(
        who=np.repeat(rng.permutation(len(X)), 4), y=Y[..., 0].ravel(), z=Y[..., 1].ravel()
    )
    table.to_parquet(folder / "t.parquet", row_group_size=100)
    names = {"sequence": "who", "tokens": list("abc"), "targets": ["y", "z"]}
    yield "delayed", delayed(count)
    yield "arrays", pa.scan(X, Y, w, chunk_bytes=1500)
    yield "files", pa.scan(str(folder / "*.npz"), chunk_bytes=700)
    yield "table", pa.scan(folder / "t.parquet", **names, chunk_bytes=4000)
    yield "function", pa.scan(partial(all_items, count))
    yield "iterator", pa.scan(all_items(count))  # in a file that only this process can read
    yield "dask array", pa.scan(*(dask.array.from_array(each, chunks=9) for each in (X, Y)))


def test_whatever_holds_sequences_gives_the_bits_of_one_process(client, tmp_path):
    for number, (name, source) in enumerate(sources(tmp_path, 5)):
        kind = KINDS[number % 2]
        one = kind(3, 2, "causal").update(source)
        assert kind(3, 2, "causal").update(source, client=client) == one, name
        assert one.n_sequences == 60
    assert_nothing_left(client)


@pytest.mark.parametrize("kind", KINDS)
def test_many_parts_give_the_bits_of_one_process(kind, client):
    for count in (1, 70):
        one = kind(3, 2, "causal").update(delayed(count))
        assert kind(3, 2, "causal").update(delayed(count), client=client) == one
    # So that equal bits mean something: another order of the sums has others.
    parts = list(all_items(70))
    one, other = (kind(3, 2, "causal").update(pa.scan(each)) for each in (parts, parts[::-1]))
    assert np.any(pa.fit(statistics=one).coef != pa.fit(statistics=other).coef)


def squared_too(tokens):
    return np.concatenate([tokens, tokens**2], axis=1)


@pytest.mark.parametrize(
    "form",
    [pa.Form(mode="causal", bias=True, decay=(0.5, 1.0)), pa.Form(mode="full", skip=True, intercept=True),
     pa.Form(mode="causal", key=squared_too), pa.Form(mode="causal", key=np.eye(3)[:, :2] / 3)],
    ids=["decays", "skip", "function", "matrix"],
)  # fmt: skip
def test_forms_travel(form, client):
    source = delayed(5)
    many = pa.Moments(3, 2, form=form).update(source, client=client)
    assert many == pa.Moments(3, 2, form=form).update(source)


def assert_same_fit(one, many):
    np.testing.assert_array_equal(one.coef, many.coef)
    assert (one.risk, one.ridge, str(one.outcome)) == (many.risk, many.ridge, str(many.outcome))


OPTIONS = (
    {}, {"solver": "iterative", "ridge": 1e6}, {"ridge": "loo"}, {"solver": "direct"},
    {"solver": "dual", "ridge": 1.0},
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fits_have_the_bits_of_one_process(options, client):
    """Of several parts of the rows, each of which a worker keeps: 55 sums for each of 42,000."""
    rng = np.random.default_rng(0)
    size = 150 if options.get("solver") == "dual" else 42_000
    X = rng.standard_normal((size, 2, 10)) * np.geomspace(0.01, 100, 10)
    Y = X[:, 0, :1] * X[:, -1, :2] + rng.standard_normal((size, 2))
    source, form = pa.scan(X, Y, chunk_bytes=X.nbytes // 9), pa.Form(query=(0,))
    one = pa.fit(source, form=form, **options)
    assert_same_fit(one, pa.fit(source, form=form, client=client, **options))
    assert_nothing_left(client)


def test_certificates_have_the_bits_of_one_process(client):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((360, 4, 3))
    nearly = X.copy()
    nearly[..., 2] = X[..., 0] + 1e-4 * X[..., 2]  # moments leave doubt: another pass is needed
    for data in (X, nearly):
        source = pa.scan(data, chunk_bytes=2000)
        one, many = pa.certify(source), pa.certify(source, client=client)
        assert str(many) == str(one)
        assert (many.digest, many.lambda_min, many.method) == (
            one.digest,
            one.lambda_min,
            one.method,
        )
    assert one.method != pa.certify(pa.scan(X)).method
    targets = pa.scan(nearly, nearly[..., :2, 0], chunk_bytes=2000)
    assert_same_fit(pa.fit(targets), pa.fit(targets, client=client))


def test_a_checkpoint_goes_on_with_workers_and_without(client, tmp_path):
    source, path = delayed(20), tmp_path / "sums.safetensors"
    whole = pa.Moments(3, 2, "causal").update(source)
    for i, first in enumerate((None, client)):
        for then in (None, client):
            sums = pa.Moments(3, 2, "causal").update(
                source, checkpoint=path.with_stem(f"{i}"), client=first
            )
            assert sums == whole
            again = pa.Moments(3, 2, "causal").update(
                source, checkpoint=path.with_stem(f"{i}"), client=then
            )
            assert again == whole


# Workers that die ---------------------------------------------------------------------------


class KillOnce:
    """Kills the process that reads these parts, the first time that one does."""

    def __init__(self, folder, *parts):
        self.folder, self.parts = folder, parts

    def __call__(self, i):
        marker = Path(self.folder) / str(i)
        if i in self.parts and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_changes_nothing(client, tmp_path):
    many = pa.Moments(3, 2, "causal").update(
        delayed(80, 12, KillOnce(str(tmp_path), 63)), client=client
    )
    assert many == pa.Moments(3, 2, "causal").update(delayed(80))
    assert [path.name for path in tmp_path.iterdir()] == ["63"]
    assert_nothing_left(client)


# What goes wrong ----------------------------------------------------------------------------


def spoil(i):
    if i == 50:
        raise RuntimeError("part 50 is gone")


def test_errors_arrive_and_the_rest_is_cancelled(client, tmp_path):
    with pytest.raises(RuntimeError, match="part 50"):
        pa.Moments(3, 2, "causal").update(delayed(90, 12, spoil), client=client)
    assert_nothing_left(client)
    for i in range(9):
        X, Y, w = made_of(i)
        np.savez(tmp_path / f"{i}.npz", X=X * (np.nan if i == 7 else 1.0), Y=Y[:, -1], weights=w)
    sums = pa.Moments(3, 2).update(np.ones((1, 1, 3)), np.ones((1, 2)))
    before = sums.copy()
    with pytest.raises(InvalidInput, match=r"7\.npz.*NaN"):
        sums.update(pa.scan(str(tmp_path / "*.npz")), client=client)
    assert sums == before
    assert_nothing_left(client)


def mark(path, i):
    time.sleep(0.02)
    if i == 30:
        Path(path).touch()


def test_an_interrupt_cancels_and_what_is_in_flight_is_little(client, tmp_path):
    marker, seen = tmp_path / "marker", []

    def watch():
        while not marker.exists():
            seen.append(tasks(client))
            time.sleep(0.02)
        _thread.interrupt_main()

    watching = threading.Thread(target=watch)
    source = delayed(200, 12, partial(mark, str(marker)))
    watching.start()
    with pytest.raises(KeyboardInterrupt):
        pa.Moments(3, 2, "causal").update(source, client=client)
    watching.join()
    assert 1 <= max(count for count, _ in seen) < 100
    assert max(size for _, size in seen) < 30_000
    assert_nothing_left(client)


def test_names_of_sequences_are_looked_at_among_all_workers(client, tmp_path):
    frame = pd.DataFrame({"who": np.repeat(np.arange(200), 3), "a": 1.0})
    for last in (199, 7):
        frame.loc[597:, "who"] = last
        frame.to_parquet(tmp_path / "t.parquet", row_group_size=30)
        source = pa.scan(tmp_path / "t.parquet", sequence="who", tokens="a", chunk_bytes=100)
        if last == 199:
            assert pa.Moments(1).update(source, client=client).n_sequences == 200
        else:
            with pytest.raises(InvalidInput, match="twice"):
                pa.Moments(1).update(source, client=client)


def test_what_workers_cannot_do_is_refused(client):
    source, lock = delayed(3), threading.Lock()
    X, Y, _ = made_of(0)

    def locked():
        with lock:
            yield X, Y

    one = pa.Moments(3, 2, "causal")
    for call, error, word in (
        (lambda: one.update(source, client="tcp://somewhere"), InvalidType, "client"),
        (lambda: one.update(X, Y, client=client), InvalidInput, "client"),
        (lambda: pa.fit(X, Y[:, -1], client=client), InvalidInput, "source"),
        (lambda: pa.certify(X, client=client), InvalidInput, "source"),
        (lambda: pa.fit(source, mode="causal", loss="logistic", ridge=1.0, client=client),
         InvalidInput, "logistic"),
        (lambda: one.update(pa.scan(locked), client=client), InvalidInput, "lock"),
    ):  # fmt: skip
        with pytest.raises(error, match=word):
            call()
    with cluster(1, threads_per_worker=3, processes=False) as other:
        whole = pa.Moments(3, 2, "causal").update(source)
        assert pa.Moments(3, 2, "causal").update(source, client=other) == whole
    with pytest.raises(InvalidInput, match="not connected"):
        one.update(source, client=other)


# Slow: again and again ----------------------------------------------------------------------


def wait_a_little(_):
    time.sleep(0.02)


@contextlib.contextmanager
def killed_at(client, seconds):
    """One of the workers is killed after so long."""
    pids = list(client.run(os.getpid).values())
    timer = threading.Timer(seconds, os.kill, (pids[0], signal.SIGKILL))
    timer.start()
    yield
    timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [2, 4])
def test_a_worker_killed_in_each_of_several_runs_changes_nothing(n_workers):
    """At random moments, of sums and of the passes of an iteration, of parts and of arrays."""
    rng = np.random.default_rng(n_workers)
    source = delayed(200, 12, wait_a_little)
    one = pa.Moments(3, 2, "causal").update(delayed(200))
    X = rng.standard_normal((60_000, 4, 3))
    arrays = pa.scan(X, X[:, -1] * X[:, :1, 0], chunk_bytes=X.nbytes // 20)
    options = {"solver": "iterative", "ridge": 1.0}
    fit = pa.fit(arrays, **options)
    with cluster(n_workers) as client:
        for _ in range(4):
            with killed_at(all_there(client, n_workers), rng.uniform(0.1, 1.5)):
                assert pa.Moments(3, 2, "causal").update(source, client=client) == one
            with killed_at(all_there(client, n_workers), rng.uniform(0.1, 1.5)):
                assert_same_fit(fit, pa.fit(arrays, client=client, **options))


def kill_whoever(i):
    if i == 2:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_part_that_kills_its_workers_is_given_up(client):
    with pytest.raises(ClusterFailed, match="died"):
        pa.Moments(3, 2, "causal").update(delayed(4, 12, kill_whoever), client=client)


class Processes:
    """A scheduler and two workers in processes of their own, that can be killed together."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.folder, self.running = f"tcp://127.0.0.1:{self.port}", folder, []

    def start(self):
        scheduler = ["scheduler", "--host", "127.0.0.1", "--port", str(self.port)]
        worker = ["worker", self.address, "--nthreads", "1", "--no-nanny"]
        worker += ["--local-directory", str(self.folder)]
        where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for name, *options in (scheduler, worker, worker):
            command = [
                sys.executable,
                "-m",
                f"distributed.cli.dask_{name}",
                *options,
                "--no-dashboard",
            ]
            self.running.append(subprocess.Popen(command, env=where, stderr=subprocess.DEVNULL))

    def kill(self):
        for each in self.running:
            each.kill()
            each.wait()
        self.running.clear()

    def restart_at(self, path):
        """Once this file is there."""

        def run():
            while not path.exists():
                time.sleep(0.02)
            self.kill()
            self.start()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_changes_nothing(tmp_path):
    """All that was held is gone; what workers had done is done again."""
    processes = Processes(tmp_path)
    processes.start()
    marker = tmp_path / "marker"
    source = delayed(140, 12, partial(mark, str(marker)))
    try:
        with distributed.Client(processes.address, timeout="60s") as client:
            client.wait_for_workers(2)
            restarting = processes.restart_at(marker)
            many = pa.Moments(3, 2, "causal").update(source, client=client)
            restarting.join()
            assert many == pa.Moments(3, 2, "causal").update(delayed(140))
    finally:
        processes.kill()
