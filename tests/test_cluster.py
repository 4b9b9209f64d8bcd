"""Statistics gathered by processes of a Dask cluster, some of which are killed."""

import copy
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise

import dask
import distributed
import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from numpy.testing import assert_array_equal

import polyattn as pa
from cluster_sources import (
    Chunks,
    ComputedChunk,
    FileChunk,
    KillOnce,
    MemoryChunk,
    NamedChunk,
    OnWorkers,
    arrays,
    begin_collecting,
    collect,
    divide_by_zero,
    files_source,
    kill_whoever,
    late_first,
    pretend,
    wait_a_little,
    write_files,
)
from polyattn.cluster import (
    fetching,
    require_workers,
    results_in_order,
    sending,
    unit_tasks,
    workers,
)
from polyattn.errors import ClusterFailed, InvalidInput, InvalidType
from polyattn.progress import listening
from polyattn.solve import whitened_rows
from polyattn.solve.primal import residual_pass
from polyattn.stats import checkpoint, parts
from polyattn.stats.gather import gathered
from polyattn.stats.opening import rows_of_source
from polyattn.stats.passes import folded, of_parts

pytestmark = pytest.mark.xdist_group("cluster")


def quiet():
    for name in ("distributed.scheduler", "distributed.nanny", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@pytest.fixture(scope="module")
def client():
    """Two processes of one thread each."""
    quiet()
    with (
        # A worker that was killed is not called for half a minute, as Dask would by default.
        dask.config.set({
            "distributed.logging.distributed": "critical",
            "distributed.comm.timeouts.connect": "5s",
        }),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
            memory_limit="1GiB", silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        yield client


@pytest.fixture
def some(client):
    """The client, with a process at least."""
    client.wait_for_workers(1)
    return client


@pytest.fixture
def both(client):
    """The client, with two processes there again after a test that killed one."""
    return all_there(client, 2)


def all_there(client, n_workers):
    """The client, with so many processes."""
    try:
        client.wait_for_workers(n_workers, timeout=15)
    except TimeoutError:  # Dask's nannies do not always start a new one
        client.cluster.scale(len(client.cluster.worker_spec) + 1)
        client.wait_for_workers(n_workers, timeout=60)
    return client


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of 300 files."""
    return write_files(tmp_path_factory.mktemp("chunks"), 300)


def kill_when(share, pids):
    """A listener that kills one of some processes once such a share is done; the others live."""

    def kill(done, total):
        if pids and done > share * total:
            os.kill(pids.pop(), signal.SIGKILL)
            pids.clear()

    return kill


def tasks_of(client):
    """The keys of ours that the scheduler knows, and the bytes of each task."""

    def known(dask_scheduler):
        from distributed.protocol.serialize import serialize

        ours = [t for k, t in dask_scheduler.tasks.items() if "polyattn" in str(k)]
        sizes = [sum(memoryview(f).nbytes for f in serialize(t.run_spec)[1]) for t in ours]
        return dict(zip((str(t.key) for t in ours), sizes, strict=True))

    return client.run_on_scheduler(known)


def eventually(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


@pytest.mark.parametrize("n_chunks", [1, 3, 70])
@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_workers_give_the_bits_of_one_process(some, files, kind, n_chunks):
    source = files_source(files, n_chunks)
    empty = kind(3, 2)
    one, many = gathered(empty, source), gathered(empty, source, client=some)
    assert many == one
    assert many.n_sequences == 12 * n_chunks
    assert empty.n_rows == 0


def test_another_order_of_the_chunks_gives_other_bits(files):
    """Negative control: the order of the sums is seen in their bits."""
    source = files_source(files, 70)
    other = Chunks(source.chunks[::-1])
    assert gathered(pa.Moments(3, 2), source) != gathered(pa.Moments(3, 2), other)


@pytest.mark.parametrize(
    "form",
    [
        pa.Form(mode="causal", bias=True, decay=(0.5, 1.0)),
        pa.Form(mode="full", skip=True, intercept=True),
        pa.Form(key=lambda tokens: np.concatenate([tokens, tokens**2], axis=1)),
    ],
    ids=["causal", "full", "function"],
)
def test_forms_travel(some, files, form):
    source = files_source(files, 5)
    empty = pa.Moments(3, 2, form=form)
    many = gathered(empty, source, client=some)
    assert many == gathered(empty, source)
    assert many.form is empty.form


def test_a_worker_that_dies_changes_nothing(both, files, tmp_path):
    """Killed at its work, with sums in its memory."""
    source = files_source(files, 140, KillOnce(("063.npz",), tmp_path))
    many = gathered(pa.Moments(3, 2), source, client=both)
    assert many == gathered(pa.Moments(3, 2), files_source(files, 140))
    assert [path.name for path in tmp_path.iterdir()] == ["063.npz"]


def test_results_lost_from_the_memory_of_workers_are_made_again(both, files):
    source = files_source(files, 140, wait_a_little)
    pids = list(both.run(os.getpid).values())
    with listening(kill_when(0.3, pids)):
        many = gathered(pa.Moments(3, 2), source, client=both)
    assert not pids
    assert many == gathered(pa.Moments(3, 2), files_source(files, 140))


def test_arrays_in_memory_are_sent_and_sent_again(both):
    chunks = [MemoryChunk(*arrays(i, 400, 20)[:2], i) for i in range(70)]
    assert sending.bytes_to_send(chunks[0]) > sending.REFERENCE_BYTES
    source = Chunks(chunks)
    pids = list(both.run(os.getpid).values())
    with listening(kill_when(0.3, pids)):
        many = gathered(pa.Moments(3, 2), source, client=both)
    assert not pids
    assert many == gathered(pa.Moments(3, 2), source)


def test_arrays_that_nobody_has_are_sent_again(some, monkeypatch):
    """A worker may die as it receives them, and the scheduler believes that it has them."""
    source = Chunks([MemoryChunk(*arrays(i, 400, 20)[:2], i) for i in range(2)])
    monkeypatch.setattr(fetching, "NEWS_SECONDS", 0.2)
    forgotten = []

    def forget(keys, dask_scheduler):
        for key in keys:
            task = dask_scheduler.tasks[key]
            for worker in list(task.who_has):
                dask_scheduler.remove_replica(task, worker)

    def send_and_forget(*arguments):
        sent = sending.send(*arguments)
        if not forgotten:
            forgotten.extend(each.key for each in sent)
            some.run_on_scheduler(forget, forgotten)
        return sent

    monkeypatch.setattr(fetching, "send", send_and_forget)
    many = gathered(pa.Moments(3, 2), source, client=some)
    assert len(forgotten) == 1
    assert many == gathered(pa.Moments(3, 2), source)


def test_a_function_that_cannot_travel_is_refused_in_words(some):
    lock = threading.Lock()

    def pairs():
        with lock:
            yield arrays(0, 30, 4)[:2]

    with pytest.raises(InvalidInput, match=r"cannot be sent to the workers .*lock.* when it is"):
        gathered(pa.Moments(3, 2, "causal"), pa.scan(pairs), client=some)


def test_items_of_an_iterator_are_sent(some):
    """They lie in a file that only this process can read."""
    pairs = [arrays(i, 30, 4)[:2] for i in range(5)]
    many = gathered(pa.Moments(3, 2, "causal"), pa.scan(iter(pairs)), client=some)
    assert many == gathered(pa.Moments(3, 2, "causal"), pa.scan(pairs))


@pytest.mark.parametrize("form", [pa.Form(), pa.Form(mode="causal", key=np.eye(3)[:, :2] / 3)])
def test_where_arrays_begin_in_memory_changes_nothing(form):
    """What comes from another process begins anywhere, and was multiplied in another order."""
    X, Y, _ = arrays(0, 400, 20)
    memory = np.empty(X.nbytes + 1, np.uint8)
    shifted = memory[1:].view(np.float64).reshape(X.shape)
    shifted[:] = X
    assert not shifted.flags.aligned
    Y = Y[:, -1] if form.mode == "last" else Y
    one, other = (pa.Moments(3, 2, form=form).update(each, Y) for each in (X, shifted))
    assert one == other


def test_parts_of_collections_are_computed_on_the_workers(some):
    parts = [dask.delayed(lambda i: (*arrays(i)[:2],), pure=False)(i) for i in range(7)]
    source = Chunks([ComputedChunk(part, i) for i, part in enumerate(parts)])
    many = gathered(pa.Moments(3, 2, "causal"), source, client=some)
    assert many == gathered(pa.Moments(3, 2, "causal"), source)
    assert source.chunks[0].part is parts[0]


def test_an_error_in_a_file_arrives_and_the_rest_is_cancelled(some, files, tmp_path):
    source = files_source(files, 140, wait_a_little)
    bad = write_files(tmp_path, 1) / "000.npz"
    X, Y, weights = arrays(0)
    X[3, 1, 2] = np.nan
    np.savez(bad, X=X, Y=Y, weights=weights)
    source.chunks[50] = FileChunk(str(bad), 1)
    with pytest.raises(InvalidInput, match=r"000\.npz holds NaN"):
        gathered(pa.Moments(3, 2), source, client=some)
    assert eventually(lambda: not tasks_of(some)), tasks_of(some)


def test_an_interrupt_cancels_what_is_in_flight(some, files):
    source = files_source(files, 140, wait_a_little)
    seen = []

    def interrupt(done, total):
        seen.append(tasks_of(some))
        if done > total / 4:
            raise KeyboardInterrupt

    with listening(interrupt), pytest.raises(KeyboardInterrupt):
        gathered(pa.Moments(3, 2), source, client=some)
    assert any(seen)
    assert eventually(lambda: not tasks_of(some)), tasks_of(some)


def test_what_is_in_flight_is_bounded(some, files):
    """Tasks are few and small however many chunks there are, and progress counts all bytes."""
    source = files_source(files, 300)
    seen, progress = [], []

    def look(done, total):
        progress.append((done, total))
        if len(progress) % 10 == 0:
            seen.append(tasks_of(some))

    with listening(look):
        gathered(pa.Moments(3, 2), source, client=some)
    # Two stretches of five chunks for each of two threads: three tasks each.
    assert 1 <= max(map(len, seen)) <= 4 * 3
    assert max(max(each.values(), default=0) for each in seen) < 10_000
    assert progress == sorted(progress)
    assert progress[-1] == (source.n_bytes, source.n_bytes)
    assert eventually(lambda: not tasks_of(some)), tasks_of(some)


def test_several_threads_in_one_process(files):
    source = files_source(files, 70)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=3, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        many = gathered(pa.Moments(3, 2), source, client=client)
    assert many == gathered(pa.Moments(3, 2), source)
    with pytest.raises(InvalidInput, match="not connected"):
        gathered(pa.Moments(3, 2), source, client=client)


def test_only_a_client_is_taken(files):
    with pytest.raises(InvalidType, match=r"client must be a distributed\.Client; got 'tcp:"):
        gathered(pa.Moments(3, 2), files_source(files, 1), client="tcp://somewhere")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"numpy": "1.0"}, "has numpy 1.0, and this process"),
        ({"polyattn": "0.0"}, "has polyattn 0.0, and this process"),
        ({"BLAS": "of another processor"}, r"has BLAS .* OPENBLAS_CORETYPE"),
    ],
)
def test_other_software_is_refused(some, files, changed, words):
    other = workers.software() | changed
    address = next(iter(some.nthreads()))
    some.run(pretend, other, workers=[address])
    try:
        with pytest.raises(InvalidInput, match=words):
            gathered(pa.Moments(3, 2), files_source(files, 2), client=some)
    finally:
        some.run(pretend, None, workers=[address])
    gathered(pa.Moments(3, 2), files_source(files, 2), client=some)


def test_a_worker_of_other_software_that_joins_late_is_refused(some, files):
    source = files_source(files, 4)
    known = require_workers(some)
    some.run(pretend, workers.software() | {"BLAS": "another"})
    try:
        with pytest.raises(InvalidInput, match="a worker has BLAS another, and the others"):
            list(results_in_order(known, [source.chunks], begin_collecting, collect))
    finally:
        some.run(pretend, None)
    [result] = results_in_order(known, [source.chunks], begin_collecting, collect)
    assert result == [chunk.path for chunk in source.chunks]


def test_links_are_fixed_by_the_chunks():
    sizes = [5, sending.LINK_BYTES, 7, 8] + [1] * 200
    chunks = [FileChunk(str(i), size) for i, size in enumerate(sizes)]
    cut = sending.links(chunks)
    assert [len(link) for link in cut] == [1, 1, 64, 64, 64, 10]
    assert [chunk for link in cut for chunk in link] == chunks


@pytest.mark.parametrize(("memory", "expected"), [(None, 2), (8000, 2), (7999, 1), (2000, 1)])
def test_results_must_fit_the_memory_of_workers(memory, expected):
    those = workers.Workers(None, {}, 2, memory, True)
    assert workers.require_memory(those, 1000) == expected


def test_too_little_memory_is_refused():
    those = workers.Workers(None, {}, 2, 1999, True)
    with pytest.raises(
        InvalidInput, match="needs about 2 KB for each of its threads, and has 1 KB"
    ):
        workers.require_memory(those, 1000)


def test_a_cluster_without_workers_is_refused(files, monkeypatch):
    """Before the work, and during it."""
    monkeypatch.setattr(workers, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(fetching, "NEWS_SECONDS", 0.1)
    source = files_source(files, 4)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        with pytest.raises(InvalidInput, match="client has no workers"):
            gathered(pa.Moments(3, 2), source, client=client)
        those = workers.Workers(client, workers.software(), 1, None, True)
        with pytest.raises(ClusterFailed, match=r"no workers for 0\.2 seconds"):
            list(results_in_order(those, [source.chunks], begin_collecting, collect))


def test_sums_are_right(some, files):
    """Against the arrays in memory, all at once."""
    source = files_source(files, 9)
    many = gathered(pa.Moments(3, 2), source, client=some)
    X, Y, weights = (np.concatenate(each) for each in zip(*map(arrays, range(9)), strict=True))
    once = pa.Moments(3, 2).update(X, Y[:, -1], weights)
    scale = np.abs(once.gram).max()
    assert_array_equal(np.abs(many.gram - once.gram) <= 1e-12 * scale, True)
    assert many.n_rows == once.n_rows == len(X)


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True), (True, True)])
def test_a_checkpoint_goes_on_with_workers_and_without(
    some, files, tmp_path, monkeypatch, first, then
):
    """One process is interrupted within a stretch, which it would not finish otherwise."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "LARGEST_SHARE", 1e9)
    source, path = files_source(files, 140), tmp_path / "gathered.safetensors"

    def interrupt(done, total):
        if done > total / 4:
            raise KeyboardInterrupt

    with listening(interrupt), pytest.raises(KeyboardInterrupt):
        pa.Moments(3, 2).update(source, checkpoint=path, client=some if first else None)
    seen = []
    with listening(lambda *each: seen.append(each)):
        resumed = pa.Moments(3, 2).update(source, checkpoint=path, client=some if then else None)
    assert resumed == pa.Moments(3, 2).update(source)
    assert seen[0][0] > source.n_bytes / 8
    assert seen[-1] == (source.n_bytes, source.n_bytes)
    # What is finished is recognised.
    assert pa.Moments(3, 2).update(source, checkpoint=path, client=some) == resumed


def test_a_sequence_in_two_stretches_is_refused(some):
    """Names that two workers have seen, each of them once."""
    chunks = [NamedChunk(*arrays(i)[:2], i, np.arange(12) + 12 * i) for i in range(4)]
    assert pa.Moments(3, 2).update(Chunks(chunks), client=some).n_sequences == 48
    chunks[3] = replace(chunks[3], names=np.arange(12) + 7)
    with pytest.raises(InvalidInput, match="there twice"):
        pa.Moments(3, 2).update(Chunks(chunks), client=some)


def test_a_chunk_twice_is_refused(some, files):
    chunks = files_source(files, 4).chunks
    with pytest.raises(InvalidInput, match="already counted"):
        pa.Moments(3, 2).update(Chunks([*chunks, chunks[1]]), client=some)


def test_a_client_is_for_a_source(some):
    X, Y, _ = arrays(0)
    with pytest.raises(InvalidInput, match="client are for a source"):
        pa.Moments(3, 2).update(X, Y[:, -1], client=some)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [2, 4])
def test_a_worker_killed_in_each_of_ten_runs(files, n_workers):
    """At random moments, whatever it is at."""
    rng = np.random.default_rng(n_workers)
    source = files_source(files, 300, wait_a_little)
    one = gathered(pa.Moments(3, 2), files_source(files, 300))
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        for _ in range(10):
            processes = all_there(client, n_workers)
            pids = [int(rng.choice(list(processes.run(os.getpid).values())))]
            with listening(kill_when(rng.uniform(0.0, 0.9), pids)):
                many = gathered(pa.Moments(3, 2), source, client=client)
            assert not pids
            assert many == one


def test_fit_and_certify_give_what_one_process_gives(some, files):
    source = files_source(files, 30)
    one, many = pa.fit(source), pa.fit(source, client=some)
    assert_array_equal(one.coef, many.coef)
    assert str(one.outcome) == str(many.outcome)
    unweighted = files_source(files, 30, with_weights=False)
    one, many = pa.certify(unweighted), pa.certify(unweighted, client=some)
    assert str(many) == str(one)
    assert many.digest == one.digest


def test_fit_and_certify_take_a_client_with_a_source_alone(some, files):
    X, Y, _ = arrays(0)
    for call in (lambda: pa.fit(X, Y[:, -1], client=some), lambda: pa.certify(X, client=some)):
        with pytest.raises(InvalidInput, match="the chunks of a source"):
            call()
    with pytest.raises(InvalidInput, match="loss='logistic' is computed in one process"):
        pa.fit(files_source(files, 3), loss="logistic", ridge=1.0, client=some)


@pytest.fixture
def parts_of_rows(monkeypatch):
    """Small data have several parts, and are whitened in single precision."""
    monkeypatch.setattr(parts, "PART_NUMBERS", 200)
    monkeypatch.setattr(whitened_rows, "LEAST_NUMBERS", 1)


def assert_same_fit(one, many):
    assert_array_equal(one.coef, many.coef)
    assert (one.risk, one.ridge, str(one.outcome)) == (many.risk, many.ridge, str(many.outcome))
    if one.ridge_path is not None:
        assert_array_equal(one.ridge_path.errors, many.ridge_path.errors)


@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "iterative", "ridge": 1e15},
        {"mode": "causal", "ridge": "loo"},
        {"mode": "full", "solver": "primal"},
        {"solver": "direct"},
        {"solver": "dual", "ridge": 1.0},
    ],
    ids=lambda each: "-".join(str(value) for value in each.values()),
)
def test_passes_give_the_bits_of_one_process(some, files, options):
    """The client reads nothing but what a solver gathers in one place."""
    reads = list if options.get("solver") in ("direct", "dual") else OnWorkers(os.getpid())
    one = pa.fit(files_source(files, 20), **options)
    many = pa.fit(files_source(files, 20, reads), client=some, **options)
    assert_same_fit(one, many)
    assert eventually(lambda: not tasks_of(some)), tasks_of(some)


def nearly_dependent(n_chunks):
    """Sequences whose moments leave doubt: further passes are needed."""
    chunks = []
    for i in range(n_chunks):
        X = np.random.default_rng(i).standard_normal((30, 4, 3))
        X[..., 2] = X[..., 0] + 1e-4 * X[..., 2]
        chunks.append(MemoryChunk(X, X[..., :2], i))
    return Chunks(chunks)


@pytest.mark.usefixtures("parts_of_rows")
def test_certificates_and_refinement_of_nearly_dependent_features(some):
    source = nearly_dependent(12)
    one, many = pa.certify(source), pa.certify(source, client=some)
    assert one.method == "triangular"
    assert str(many) == str(one)
    assert (many.digest, many.rounding, many.lambda_min) == (
        one.digest, one.rounding, one.lambda_min,
    )  # fmt: skip
    assert str(copy.deepcopy(many)) == str(one)
    assert_same_fit(pa.fit(source), pa.fit(source, client=some))


@pytest.mark.usefixtures("parts_of_rows")
def test_results_of_parts_come_in_order_whoever_is_first(both, files, tmp_path):
    """The first part waits for another; folded in another order, sums would have other bits."""
    require_workers(both)  # both have read their modules
    rows = rows_of_source(files_source(files, 16), pa.Form(), client=both)
    assert len(rows.parts) == 8
    values = [1.0, 0.0, 1e17, -1e17, 0.0, 0.0, 0.0, 0.0]
    places = dict(zip((part.base for part in rows.parts), values, strict=True))
    found = list(of_parts(rows, late_first, places, tmp_path / "there"))
    assert [value for value, _ in found] == values
    times = [at for _, at in found]
    assert times[0] > min(times)
    another = [*values[2:], *values[:2]]
    [total], [other] = (folded([value] for value in order) for order in (values, another))
    assert (total, other) == (0.0, 1.0)


@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize("kind", ["files", "arrays"])
def test_a_worker_that_dies_between_passes_changes_nothing(both, files, kind):
    """What it held is made again, from files or from arrays that are sent again."""
    source = files_source(files, 16)
    if kind == "arrays":
        source = Chunks([MemoryChunk(*arrays(i, 400, 20)[:2], i) for i in range(8)])
    here = rows_of_source(source, pa.Form())
    rows = rows_of_source(source, pa.Form(), client=both)
    theta = np.ones((here.n_features, 2))
    wanted = residual_pass(theta, here)
    assert_array_equal(residual_pass(theta, rows)[0], wanted[0])
    os.kill(next(iter(both.run(os.getpid).values())), signal.SIGKILL)
    gradient, power = residual_pass(theta, rows)
    assert_array_equal(gradient, wanted[0])
    assert power == wanted[1]


def test_passes_send_little_and_forget(some, tmp_path):
    """No task grows with the sequences, and what workers hold goes with the rows."""
    source = files_source(write_files(tmp_path, 4, n_sequences=20_000, n_tokens=2), 4)
    rows = rows_of_source(source, pa.Form(), client=some)
    assert len(rows.parts) == 1
    residual_pass(np.ones((rows.n_features, 2)), rows)
    sizes = tasks_of(some)
    assert sizes
    assert max(sizes.values()) < 20_000
    del rows
    assert eventually(lambda: not tasks_of(some)), tasks_of(some)


@pytest.mark.usefixtures("parts_of_rows")
def test_an_error_in_a_pass_arrives(some, files):
    rows = rows_of_source(files_source(files, 8), pa.Form(), client=some)
    with pytest.raises(ZeroDivisionError):
        list(of_parts(rows, divide_by_zero))
    residual_pass(np.ones((rows.n_features, 2)), rows)
    assert eventually(lambda: len(tasks_of(some)) <= len(rows.parts))


@pytest.mark.slow
@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize("n_workers", [2, 4])
def test_a_worker_killed_in_each_of_ten_iterations(files, n_workers):
    """At random moments of the passes."""
    rng = np.random.default_rng(n_workers)
    options = {"solver": "iterative", "ridge": 1.0}
    one = pa.fit(files_source(files, 40), **options)
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        for _ in range(10):
            processes = all_there(client, n_workers)
            pids = [int(rng.choice(list(processes.run(os.getpid).values())))]
            left = [int(rng.integers(50, 400))]

            def kill(*_, left=left, pids=pids):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(pids.pop(), signal.SIGKILL)

            with listening(kill):
                many = pa.fit(files_source(files, 40), client=client, **options)
            assert not pids
            assert_same_fit(one, many)


@pytest.mark.slow
def test_a_chunk_that_kills_its_workers_is_given_up(both, files):
    source = files_source(files, 4)
    source.chunks[2] = replace(source.chunks[2], before=kill_whoever)
    with pytest.raises(ClusterFailed, match="given up after the workers that ran it had died"):
        gathered(pa.Moments(3, 2), source, client=both)


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
            command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *options]
            self.running.append(
                subprocess.Popen([*command, "--no-dashboard"], env=where, stderr=subprocess.DEVNULL)
            )

    def kill(self):
        for each in self.running:
            each.kill()
            each.wait()
        self.running.clear()


@pytest.fixture
def processes(tmp_path):
    some = Processes(tmp_path)
    some.start()
    yield some
    some.kill()


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_changes_nothing(processes, files):
    source, killed = files_source(files, 140, wait_a_little), []

    def restart(done, total):
        if not killed and done > total / 3:
            killed.append(done)
            processes.kill()
            processes.start()

    with distributed.Client(processes.address, timeout="60s") as client:
        client.wait_for_workers(2)
        with listening(restart):
            many = gathered(pa.Moments(3, 2), source, client=client)
    assert killed
    assert many == gathered(pa.Moments(3, 2), files_source(files, 140))


@pytest.mark.slow
@pytest.mark.usefixtures("parts_of_rows")
def test_a_scheduler_that_is_restarted_between_passes_changes_nothing(processes, files):
    """All that was held is gone; workers read their files again."""
    options, seen = {"solver": "iterative", "ridge": 1.0}, []

    def restart(*_):
        seen.append(1)
        if len(seen) == 150:
            processes.kill()
            processes.start()

    with distributed.Client(processes.address, timeout="60s") as client:
        client.wait_for_workers(2)
        with listening(restart):
            many = pa.fit(files_source(files, 40), client=client, **options)
    assert len(seen) > 160
    assert_same_fit(pa.fit(files_source(files, 40), **options), many)


@pytest.mark.slow
def test_without_its_scheduler_a_call_ends_and_another_goes_on(
    processes, both, files, tmp_path, monkeypatch
):
    monkeypatch.setattr(workers, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    source, path = files_source(files, 140, wait_a_little), tmp_path / "gathered.safetensors"

    def kill(done, total):
        if done > total / 3:
            processes.kill()

    with distributed.Client(processes.address, timeout="60s") as client:
        client.wait_for_workers(2)
        with listening(kill), pytest.raises(ClusterFailed, match="checkpoint=PATH"):
            pa.Moments(3, 2).update(source, checkpoint=path, client=client)
        client.close(timeout=1)
    seen = []
    with listening(lambda *each: seen.append(each)):
        many = pa.Moments(3, 2).update(source, checkpoint=path, client=both)
    assert seen[0][0] > source.n_bytes / 5
    assert many == pa.Moments(3, 2).update(files_source(files, 140))


def test_arrays_that_were_sent_begin_where_others_do():
    """What Dask sends beside its objects begins anywhere, and is multiplied in another order."""
    odd = np.frombuffer(bytes(8 * 100 + 1), offset=1)
    assert not odd.flags.aligned
    for thing in (unit_tasks.Given(len, (odd, {"theta": odd})), unit_tasks.Parts([odd])):
        header, frames = serialize(thing)
        joined = b"x" + b"".join(bytes(frame) for frame in frames)
        ends = 1 + np.cumsum([0, *(memoryview(frame).nbytes for frame in frames)])
        cut = [memoryview(joined)[a:b] for a, b in pairwise(ends.tolist())]
        same = deserialize(header, cut)
        found = same.parts if isinstance(thing, unit_tasks.Parts) else [*same.arguments[0][:1]]
        assert all(each.flags.aligned for each in found)
        assert_array_equal(found[0], odd)
