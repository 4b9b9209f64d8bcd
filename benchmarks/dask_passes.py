"""The iteration over shards by two Dask workers: same bits as one process, and how much sooner.

Both sides have one BLAS thread per process.  Workers keep the summaries of their parts, and each
pass sends coefficients and brings sums back; the scheduler is watched as in dask_gather.py.

    python benchmarks/dask_passes.py [--sequences 400000] [--dims 32] [--workers 2]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

# Before numpy is loaded, and for the workers that inherit it.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import psutil
from common import require, verdict
from dask_gather import MOST_GROWTH, N_SHARDS, Watched, cluster, seconds, write_shards

import polyattn as pa
from polyattn.progress import listening

LEAST_SPEED_UP = 1.6


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--sequences", type=int, default=400_000)
    given.add_argument("--dims", type=int, default=32)
    given.add_argument("--workers", type=int, default=2)
    chosen = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = (chosen.sequences, N_SHARDS, chosen.dims)
        source = pa.scan(write_shards(folder / "shards", *sizes))
        few = pa.scan(write_shards(folder / "few", 640, 8, 4))
        start, used = time.perf_counter(), seconds(psutil.Process())
        one = pa.fit(source, solver="iterative")
        alone, used = time.perf_counter() - start, seconds(psutil.Process()) - used
        # The scheduler runs a function of dask_gather.py.
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with cluster(folder, chosen.workers) as (client, process):
            # Processes load their libraries when the first task comes.
            pa.fit(few, solver="iterative", ridge=1.0, client=client)
            watched = Watched(client, process)
            everybody = [psutil.Process(), process]
            everybody += [psutil.Process(pid) for pid in client.run(os.getpid).values()]
            busy = [-seconds(each) for each in everybody]
            start = time.perf_counter()
            with listening(watched):
                many = pa.fit(source, solver="iterative", client=client)
            together = time.perf_counter() - start
            busy = [used + seconds(each) for used, each in zip(busy, everybody, strict=True)]
    print(f"{one.outcome}")
    print(f"  one process {alone:.1f} s, {chosen.workers} workers {together:.1f} s")
    # Where other programs take the cores, these tell more than the clock.
    print(f"  seconds of processors: one process {used:.1f}; client, scheduler, workers", end=" ")
    print(", ".join(f"{each:.1f}" for each in busy))
    print(
        f"  scheduler: {watched.memory[0] / 1e6:.0f} MB, at most {max(watched.memory) / 1e6:.0f} "
        f"MB; at most {watched.n_tasks} tasks of {watched.task_bytes:,} bytes"
    )
    require("the coefficients of both, bit for bit", np.array_equal(one.coef, many.coef))
    require("the words of both", str(one.outcome) == str(many.outcome))
    wanted = f"{chosen.workers} workers at least {LEAST_SPEED_UP}x as fast"
    verdict(f"{wanted}: {alone / together:.2f}x", alone >= LEAST_SPEED_UP * together)
    verdict(f"scheduler memory flat: +{watched.growth / 1e6:.0f} MB", watched.growth <= MOST_GROWTH)


if __name__ == "__main__":
    main()
