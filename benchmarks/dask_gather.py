"""Statistics of shards by two Dask workers: same bits as one process, and how much sooner.

Both sides have one BLAS thread per process.  Scheduler and workers are processes of their own; the
memory of the scheduler, and the bytes of the tasks that it knows, are watched during the run.
Then the same data ten times over, in ten times as many shards: the scheduler must not need more.

    python benchmarks/dask_gather.py [--sequences 1200000] [--workers 2]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Before numpy is loaded, and for the workers that inherit it.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import psutil
from common import require, verdict
from distributed import Client

import polyattn as pa
from polyattn.progress import listening

N_DIMS, N_TOKENS, N_SHARDS = 16, 6, 128
LEAST_SECONDS, LEAST_SPEED_UP = 60.0, 1.6

# Of the scheduler, between the beginning and the end of a run.
MOST_GROWTH = 20e6


class Watched:
    """Largest memory of a process, and of what its tasks are made, while something is done."""

    def __init__(self, client: Client, process: psutil.Process) -> None:
        self.client, self.process = client, process
        self.memory: list[int] = [process.memory_info().rss]
        self.n_tasks = self.task_bytes = 0
        self.next = 0.0

    def __call__(self, done: int, total: int) -> None:
        del done, total
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + 1.0
        self.memory.append(self.process.memory_info().rss)
        n_tasks, largest = self.client.run_on_scheduler(known_tasks)
        self.n_tasks = max(self.n_tasks, n_tasks)
        self.task_bytes = max(self.task_bytes, largest)

    @property
    def growth(self) -> int:
        return max(self.memory) - self.memory[0]


def seconds(process: psutil.Process) -> float:
    """Seconds of processors that a process took so far."""
    times = process.cpu_times()
    return times.user + times.system


def known_tasks(dask_scheduler: Any) -> tuple[int, int]:
    """How many tasks a scheduler knows, and the bytes of the largest."""
    from distributed.protocol.serialize import serialize

    frames = [serialize(task.run_spec)[1] for task in dask_scheduler.tasks.values()]
    sizes = [sum(memoryview(frame).nbytes for frame in each) for each in frames]
    return len(sizes), max(sizes, default=0)


@contextmanager
def cluster(folder: Path, n_workers: int) -> Iterator[tuple[Client, psutil.Process]]:
    """A client of a scheduler and workers in processes of their own, and the scheduler's."""
    place = ["--scheduler-file", str(folder / "scheduler.json")]
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1"]
    worker += ["--nworkers", str(n_workers), "--no-dashboard", "--local-directory", str(folder)]
    # Dask's nannies let malloc ask the system for every larger array anew.
    memory = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
    with (
        open(folder / "log", "wb") as log,
        subprocess.Popen([*scheduler, *place, "--no-dashboard"], stderr=log) as first,
        subprocess.Popen([*worker, *place], stderr=log, env=memory) as second,
    ):
        try:
            with Client(scheduler_file=place[1], timeout="60s") as client:
                client.wait_for_workers(n_workers, timeout=60)
                yield client, psutil.Process(first.pid)
        finally:
            second.terminate()
            first.terminate()


def write_shards(folder: Path, n_sequences: int, n_shards: int, n_dims: int = N_DIMS) -> str:
    """Files of correlated tokens; the pattern of their names."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((n_dims, n_dims)) / n_dims**0.5
    folder.mkdir()
    for at in range(n_shards):
        X = rng.standard_normal((n_sequences // n_shards, N_TOKENS, n_dims)) @ mixing
        np.savez(folder / f"{at:05}.npz", X=X, Y=X[:, -1, :1] + rng.standard_normal((len(X), 1)))
    return str(folder / "*.npz")


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--sequences", type=int, default=1_200_000)
    given.add_argument("--workers", type=int, default=2)
    chosen = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = pa.scan(write_shards(folder / "shards", chosen.sequences, N_SHARDS))
        narrow = pa.scan(write_shards(folder / "many", 10 * N_SHARDS * 8, 10 * N_SHARDS))
        few = pa.scan(write_shards(folder / "few", 64, 8))
        start, used = time.perf_counter(), seconds(psutil.Process())
        one = pa.Moments(N_DIMS, 1).update(source)
        alone, used = time.perf_counter() - start, seconds(psutil.Process()) - used
        with cluster(folder, chosen.workers) as (client, process):
            # Processes load their libraries when the first task comes.
            pa.Moments(N_DIMS, 1).update(few, client=client)
            watched = Watched(client, process)
            everybody = [psutil.Process(), process]
            everybody += [psutil.Process(pid) for pid in client.run(os.getpid).values()]
            busy = [-seconds(each) for each in everybody]
            start = time.perf_counter()
            with listening(watched):
                many = pa.Moments(N_DIMS, 1).update(source, client=client)
            together = time.perf_counter() - start
            busy = [used + seconds(each) for used, each in zip(busy, everybody, strict=True)]
            again = Watched(client, process)
            form = pa.Form(query=range(3), key=range(3), value=range(3))
            with listening(again):
                pa.Moments(N_DIMS, 1, form=form).update(narrow, client=client)
    print(
        f"{one!r}: {8 * one._numbers / 1e6:.0f} MB of sums, {source.n_bytes / 1e6:.0f} MB of data"
    )
    print(f"  one process {alone:.1f} s, {chosen.workers} workers {together:.1f} s")
    # Where other programs take the cores, these tell more than the clock.
    print(f"  seconds of processors: one process {used:.1f}; client, scheduler, workers", end=" ")
    print(", ".join(f"{each:.1f}" for each in busy))
    for words, seen in (("these data", watched), ("ten times the shards", again)):
        print(
            f"  scheduler, {words}: {seen.memory[0] / 1e6:.0f} MB, at most "
            f"{max(seen.memory) / 1e6:.0f} MB; at most {seen.n_tasks} tasks of "
            f"{seen.task_bytes:,} bytes"
        )
    require("the sums of both, bit for bit", one == many)
    verdict(f"a job of at least {LEAST_SECONDS:g} s", alone >= LEAST_SECONDS)
    wanted = f"{chosen.workers} workers at least {LEAST_SPEED_UP}x as fast"
    verdict(f"{wanted}: {alone / together:.2f}x", alone >= LEAST_SPEED_UP * together)
    growth = max(watched.growth, again.growth)
    verdict(f"scheduler memory flat: +{growth / 1e6:.0f} MB", growth <= MOST_GROWTH)


if __name__ == "__main__":
    main()
