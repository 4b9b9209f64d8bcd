"""Dask's workers give the bits of one process, whoever of them dies, and leave nothing behind."""

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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dask
import dask.array
import distributed
import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from polyattn.errors import ClusterFailed, FileFormatError, InvalidInput, InvalidType

pytestmark = pytest.mark.xdist_group("cluster")
KINDS = (pa.Moments, pa.TriangularFactor)
WHERE = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
NAMES = {"sequence": "who", "tokens": list("abc"), "targets": ["y", "z"]}


@contextlib.contextmanager
def cluster(n_workers, **options):
    """A client of so many processes of one thread each."""
    for name in ("distributed.scheduler", "distributed.nanny", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with (
        # A worker that was killed is not called for half a minute, as Dask would by default.
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),
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


def part(i, before=None):
    """Data of other sizes in each part, so that units change on the way."""
    if before is not None:
        before(i)
    rng = np.random.default_rng(i)
    return rng.standard_normal((12, 4, 3)) * 10.0 ** rng.integers(-3, 3), rng.random((12, 4, 2))


def delayed(count, before=None):
    """A source whose parts are made where they are needed."""
    made = dask.delayed(part)
    return pa.scan([made(i, before, dask_key_name=f"part-{i}") for i in range(count)])


def made_of(i):
    X, Y = part(i)
    return X, Y, np.random.default_rng(i).uniform(0.5, 2, len(X))


def all_items(count):
    return map(made_of, range(count))


def n_tasks(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def assert_nothing_left(client):
    for _ in range(400):
        if n_tasks(client) == 0:
            return
        gc.collect()  # an error that was raised holds what it was about
        time.sleep(0.05)
    pytest.fail("the scheduler still knows tasks")


def sources(folder, count):
    rng = np.random.default_rng(0)
    X, Y, w = (np.concatenate(each) for each in zip(*all_items(count), strict=True))
    for i, (x, y, own) in enumerate(all_items(count)):
        np.savez(folder / f"{i:03}.npz", X=x, Y=y, weights=own)
    table = pd.DataFrame(np.concatenate([X, Y], axis=2).reshape(-1, 5), columns=list("abcyz"))
    table["who"] = np.repeat(rng.permutation(len(X)), 4)
    table.to_parquet(folder / "t.parquet", row_group_size=100)
    yield "delayed", delayed(count)
    yield "one part", pa.scan([(X, Y)])
    yield "arrays", pa.scan(X, Y, w, chunk_bytes=3000)
    yield "files", pa.scan(str(folder / "*.npz"), chunk_bytes=1500)
    yield "table", pa.scan(folder / "t.parquet", **NAMES, chunk_bytes=4000)
    yield "function", pa.scan(partial(all_items, count))
    yield "iterator", pa.scan(all_items(count))  # in a file that only this process can read
    yield "dask array", pa.scan(*(dask.array.from_array(each, chunks=20) for each in (X, Y)))


def squared_too(tokens):
    return np.concatenate([tokens, tokens**2], axis=1)


OWN = (
    {},
    {"bias": True, "decay": (0.5, 1.0)},
    {"key": squared_too},
    {"skip": True, "key": np.eye(3)},
)


def test_whatever_holds_sequences_gives_the_bits_of_one_process(client, tmp_path):
    for number, (name, source) in enumerate(sources(tmp_path, 5)):
        kind, form = KINDS[number % 2], pa.Form(mode="causal", **OWN[number % len(OWN)])
        one = kind(3, 2, form=form).update(source)
        assert kind(3, 2, form=form).update(source, client=client) == one, name
        assert one.n_sequences == 60
    assert_nothing_left(client)


def test_another_order_of_the_sums_has_other_bits():
    """So that equal bits mean something."""
    parts = list(all_items(70))
    one, other = (pa.Moments(3, 2, "causal").update(pa.scan(each)) for each in (parts, parts[::-1]))
    assert np.any(pa.fit(statistics=one).coef != pa.fit(statistics=other).coef)


def assert_same_fit(one, many):
    np.testing.assert_array_equal(one.coef, many.coef)
    assert (one.risk, one.ridge, str(one.outcome)) == (many.risk, many.ridge, str(many.outcome))


OPTIONS = (
    {}, {"solver": "iterative", "ridge": 1e6}, {"solver": "dual", "ridge": 1.0},
    *(pytest.param(each, marks=pytest.mark.slow) for each in ({"ridge": "loo"}, {"solver": "direct"})),
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
    X = np.random.default_rng(0).standard_normal((240, 4, 3))
    nearly = X.copy()
    nearly[..., 2] = X[..., 0] + 1e-4 * X[..., 2]  # moments leave doubt: another pass is needed
    for data in (X, nearly):
        source = pa.scan(data, chunk_bytes=4000)
        one, many = pa.certify(source), pa.certify(source, client=client)
        for name in ("digest", "lambda_min", "method"):
            assert getattr(many, name) == getattr(one, name)
    assert one.method != pa.certify(pa.scan(X)).method
    targets = pa.scan(nearly, nearly[..., :2, 0], chunk_bytes=4000)
    assert_same_fit(pa.fit(targets), pa.fit(targets, client=client))


def seen(folder, i):
    time.sleep(0.02)
    (Path(folder) / str(i)).touch()


def spoil(i):
    time.sleep(0.02)
    if i == 90:
        raise RuntimeError("part 90 is gone")


# A clock by which half a minute, after which a checkpoint is written, passes within a tenth of a
# second; for the main thread alone, since the threads of Dask measure time, too.
CHILD = """
import sys, threading, time
real, main = time.monotonic, threading.main_thread()
time.monotonic = lambda: real() * (300 if threading.current_thread() is main else 1)
import distributed, polyattn as pa, test_workers as here
path, address = sys.argv[1:]
client = distributed.Client(address) if address else None
source = here.delayed(140, here.spoil)
pa.Moments(3, 2, "causal").update(source, checkpoint=path, client=client)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True), (True, True)])
def test_a_checkpoint_goes_on_behind_an_error_with_workers_or_without(
    first, then, client, tmp_path
):
    path, parts = tmp_path / "sums.safetensors", tmp_path / "parts"
    parts.mkdir()
    command = [sys.executable, "-c", CHILD, str(path), client.scheduler.address if first else ""]
    done = subprocess.run(command, env=WHERE, capture_output=True, text=True, check=False)
    assert "part 90 is gone" in done.stderr
    assert_nothing_left(client)
    found = pa.Moments(3, 2, "causal").update(
        delayed(140, partial(seen, str(parts))), checkpoint=path, client=client if then else None
    )
    assert found == pa.Moments(3, 2, "causal").update(delayed(140))
    assert len(list(parts.iterdir())) < 120


def kill_once(folder, i):
    """Kills the process that reads part 63, the first time that one does."""
    marker = Path(folder) / "killed"
    if i == 63 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_changes_nothing(client, tmp_path):
    source = delayed(80, partial(kill_once, str(tmp_path)))
    many = pa.Moments(3, 2, "causal").update(source, client=client)
    assert many == pa.Moments(3, 2, "causal").update(delayed(80))
    assert (tmp_path / "killed").exists()
    assert_nothing_left(client)


def test_errors_arrive_and_little_is_in_flight_and_all_is_cancelled(client):
    known, sums = [], pa.Moments(3, 2, "causal")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sums.update, delayed(200, spoil), client=client)
        while not running.done():
            known.append(n_tasks(client))
            time.sleep(0.05)
    with pytest.raises(RuntimeError, match="part 90"):
        running.result()
    del running  # whose error holds what it was about
    assert 1 <= max(known) < 100
    assert_nothing_left(client)


def test_a_damaged_shard_and_a_name_that_comes_again_change_no_sums(client, tmp_path):
    paths = [tmp_path / f"{number}.npz" for number in range(3)]
    for number, path in enumerate(paths):
        np.savez(path, **dict(zip("XY", part(number), strict=True)))
    shards = pa.scan(paths, chunk_bytes=500)
    os.truncate(paths[1], paths[1].stat().st_size - 100)
    frame = pd.DataFrame({"who": np.repeat(np.arange(40), 3), **dict.fromkeys("abcyz", 1.0)})
    frame.loc[117:, "who"] = 7
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=30)
    table = pa.scan(tmp_path / "t.parquet", **NAMES, chunk_bytes=100)
    sums = pa.Moments(3, 2, "causal").update(*part(9))
    before = sums.copy()
    for source, error, word in (
        (shards, FileFormatError, r"1\.npz"), (table, InvalidInput, "twice")
    ):  # fmt: skip
        with pytest.raises(error, match=word):
            sums.update(source, client=client)
        assert sums == before
        assert_nothing_left(client)


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
        assert pa.Moments(3, 2, "causal").update(source, client=other) == one.copy().update(source)
    with pytest.raises(InvalidInput, match="not connected"):
        one.update(source, client=other)


@pytest.mark.slow
def test_a_worker_killed_in_each_of_several_runs_changes_nothing():
    """At random moments, of sums and of the passes of an iteration, of parts and of arrays."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60_000, 4, 3))
    arrays = pa.scan(X, X[:, -1] * X[:, :1, 0], chunk_bytes=X.nbytes // 20)
    parts = delayed(200, lambda _: time.sleep(0.02))
    runs = (
        lambda **client: pa.Moments(3, 2, "causal").update(parts, **client),
        lambda **client: pa.fit(arrays, solver="iterative", ridge=1.0, **client).coef.tolist(),
    )
    expected = [run() for run in runs]
    with cluster(3) as client:
        for run, wanted in [*zip(runs, expected, strict=True)] * 4:
            pid = next(iter(all_there(client, 3).run(os.getpid).values()))
            timer = threading.Timer(rng.uniform(0.1, 1.5), os.kill, (pid, signal.SIGKILL))
            timer.start()
            assert run(client=client) == wanted
            timer.join()


@pytest.mark.slow
def test_a_part_that_kills_its_workers_is_given_up(client):
    source = delayed(4, lambda i: i == 2 and os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(ClusterFailed, match="died"):
        pa.Moments(3, 2, "causal").update(source, client=client)


SERVER = """
import sys, time, test_workers as here
with here.cluster(2, scheduler_port=int(sys.argv[1])):
    time.sleep(600)
"""


def started(port):
    """A scheduler and two workers in a group of processes, that can be killed together."""
    command = [sys.executable, "-c", SERVER, str(port)]
    return subprocess.Popen(command, env=WHERE, stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_changes_nothing(tmp_path):
    """All that was held is gone; what workers had done is done again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running, one = [started(port)], pa.Moments(3, 2, "causal")
    address, source = f"tcp://127.0.0.1:{port}", delayed(140, partial(seen, str(tmp_path)))
    try:
        with distributed.Client(address, timeout="60s") as client, ThreadPoolExecutor(1) as pool:
            client.wait_for_workers(2)
            many = pool.submit(one.copy().update, source, client=client)
            while not (tmp_path / "30").exists() and not many.done():
                time.sleep(0.02)
            assert not many.done()
            os.killpg(running[0].pid, signal.SIGKILL)
            running.append(started(port))
            assert many.result() == one.update(delayed(140))
    finally:
        for each in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
