"""20 times the data in files, the same peak memory; and how fast they are fitted.

Each measurement is a process of its own, whose largest resident size the system reports as VmHWM
(Linux).  Not ru_maxrss: that of a child begins with the size of the process that started it.  One
child keeps all that it reads, to see that the measurement would notice.
What a fit from files costs is held against reading all chunks and summarising them, and nothing
else; the fastest of REPEATS runs each.
A format is a row of FORMATS: its suffix, and how one shard is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import peak_resident, require, verdict
from numpy.typing import NDArray

import polyattn as pa
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import single_threaded_blas

N_DIMS, N_TOKENS, N_OUTPUTS = 6, 100, 2
SHARD_SEQUENCES, TIMES, REPEATS = 16_384, 20, 3
MOST_BYTES, MOST_GROWTH, LEAST_THROUGHPUT = 300 << 20, 1.10, 0.60

Write = Callable[[Path, NDArray, NDArray], None]
FORMATS: dict[str, tuple[str, Write]] = {
    "npz": (".npz", lambda path, X, Y: np.savez(path, X=X, Y=Y)),
    "npy": (".npy", lambda path, X, _: np.save(path, X)),
}

# Files without targets can be certified, and not fitted.
WORK = {"npz": ("fit", "certify"), "npy": ("certify",)}


def main() -> None:
    print(f"d={N_DIMS} n={N_TOKENS}, {TIMES} shards of {SHARD_SEQUENCES} sequences against one")
    for name in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            small, large = write(name, Path(folder))
            control(small, large)
            for work in WORK[name]:
                compare(name, work, small, large)


def write(name: str, folder: Path) -> tuple[str, str]:
    """Patterns of one shard, and of all."""
    suffix, save = FORMATS[name]
    rng = np.random.default_rng(0)
    layer = pa.data.planted(2, N_TOKENS, N_DIMS, n_outputs=N_OUTPUTS, random_state=0).layer
    for number in range(TIMES):
        X = rng.standard_normal((SHARD_SEQUENCES, N_TOKENS, N_DIMS))
        Y = layer(X)[:, -1] if layer.mode != "last" else layer(X)
        Y = Y + np.std(Y) * rng.standard_normal(Y.shape)
        save(folder / f"part-{number:02d}{suffix}", X, Y)
    return str(folder / f"part-00{suffix}"), str(folder / f"part-*{suffix}")


def control(small: str, large: str) -> None:
    """Whether memory that grows is seen to grow."""
    growth = in_child("keep", large)["bytes"] / in_child("keep", small)["bytes"]
    require(f"what keeps all it reads grows {growth:.1f} times", growth > 3)


def compare(name: str, work: str, small: str, large: str) -> None:
    one = in_child(work, small)
    runs = [(in_child(work, large), in_child("summarise", large)) for _ in range(REPEATS)]
    all_ = max((run for run, _ in runs), key=lambda run: run["bytes"])
    all_["seconds"] = min(run["seconds"] for run, _ in runs)
    alone = min((run for _, run in runs), key=lambda run: run["seconds"])
    growth, share = all_["bytes"] / one["bytes"], alone["seconds"] / all_["seconds"]
    print(
        f".{name} {work:8s} {all_['read'] / 1e9:.2f} GB: peak {one['bytes'] / 2**20:.0f} MiB for "
        f"one shard, {all_['bytes'] / 2**20:.0f} MiB for {TIMES}; {all_['seconds']:.1f} s, reading "
        f"and summarising alone {alone['seconds']:.1f} s ({100 * share:.0f} %)"
    )
    require("the work was done on all sequences", all_["rows"] == TIMES * SHARD_SEQUENCES)
    verdict(f"peak memory grows by at most {MOST_GROWTH - 1:.0%}", growth <= MOST_GROWTH)
    verdict("at most 300 MiB and the statistics", all_["bytes"] <= MOST_BYTES + all_["sums"])
    if work == "fit":
        verdict("at least 60 % of the throughput of reading", share >= LEAST_THROUGHPUT)


def in_child(work: str, pattern: str) -> dict[str, Any]:
    """What a process of its own measured."""
    command = [sys.executable, __file__, work, pattern]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


def measure(work: str, pattern: str) -> None:
    """The child: do the work, print its time and the largest resident size."""
    began = perf_counter()
    source = pa.scan(pattern)
    sums = 8 * Layout.plain(N_DIMS).n_features ** 2
    if work == "summarise":
        rows = summarise(source)
    elif work == "keep":
        rows = len([chunk.read_inputs() for chunk in source.chunks])
    elif work == "fit":
        result = pa.fit(source)
        rows = result.statistics.n_rows if result.statistics is not None else 0
    else:
        rows = pa.certify(source).n_rows
    seconds = perf_counter() - began
    peak = peak_resident()
    print(json.dumps({
        "seconds": seconds, "bytes": peak, "rows": rows, "read": source.n_bytes, "sums": sums,
    }))  # fmt: skip


@single_threaded_blas()
def summarise(source: pa.Source) -> int:
    """Read and summarise all chunks; the number of rows."""
    layout, rows = Layout.plain(source.n_dims), 0
    for chunk in source.chunks:
        content = chunk.read("last")
        for block in SeenSequences(layout, content.batch).blocks():
            rows += block.stop - block.first
    return rows


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) == 3 else main()
