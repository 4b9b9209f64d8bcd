"""Fifty runs of a checkpointed sum over shards, each killed at a random moment: the same bits.

``Moments.update(source, checkpoint=...)`` over .npz shards runs in processes that are killed with
SIGKILL, also while a checkpoint is being written; the same call again goes on, and its sums are
compared, bit for bit, with those of a run that nobody interrupted.
Then failures: a shard given twice, a checkpoint of other data, a truncated shard, a shard that
changes while it is read, a full disk.  Each must be an error that names the file, and nothing may
have been counted.

    python benchmarks/kills.py [--kills 50]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from common import require

import polyattn as pa
from polyattn.certify.digest import digest_source
from polyattn.errors import InvalidInput
from polyattn.files.records import read_record
from polyattn.progress import listening
from polyattn.stats import checkpoint as checkpoints

N_DIMS, N_SHARDS, N_SEQUENCES = 6, 150, 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    n_kills = parser.parse_args().kills
    checkpoints.CHECKPOINT_SECONDS, checkpoints.LARGEST_SHARE = 0.0, np.inf
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [write_shard(place / f"shard-{at:03}.npz", at) for at in range(N_SHARDS)]
        killed_runs(place, paths, n_kills)
        failures(place, paths)


def killed_runs(place: Path, paths: list[Path], n_kills: int) -> None:
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        (place / "whole.state").unlink(missing_ok=True)
        require("a run without a kill ends", finished(place, "whole", paths) == 0)
        times.append(time.perf_counter() - begun)
    seconds, whole = min(times), digest_source(pa.Moments.load(place / "whole.sums"))
    print(f"{N_SHARDS} shards, a checkpoint after each: {seconds:.2f} s without a kill")
    rng, same, n_runs, moments = random.Random(0), 0, 0, Counter()  # noqa: S311
    # A process that ended before its time was not killed, and does not count.
    while moments.total() < n_kills:
        name, n_runs = f"run-{n_runs}", n_runs + 1
        code = finished(place, name, paths, kill_after=rng.uniform(0.0, seconds))
        if code == -signal.SIGKILL:
            moments[reached(place / f"{name}.state")] += 1
        assert finished(place, name, paths) == 0, name
        same += digest_source(pa.Moments.load(place / f"{name}.sums")) == whole
        left = [each.name for each in place.iterdir() if each.name.startswith(".polyattn")]
        assert not left, left
    print("killed " + ", ".join(f"{count}x {moment}" for moment, count in moments.items()))
    require(f"{same} of {n_runs} runs ended in the same bits", same == n_runs)


def finished(place: Path, name: str, paths: list[Path], kill_after: float | None = None) -> int:
    """The exit code of a process that adds up all shards; killed after so many seconds."""
    process = os.fork()
    if process == 0:
        sums = pa.Moments(N_DIMS, 1).update(pa.scan(paths), checkpoint=place / f"{name}.state")
        sums.save(place / f"{name}.sums")
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def reached(path: Path) -> str:
    """How far a killed run was."""
    if not path.exists():
        return "before the first checkpoint"
    done = read_record(path).metadata["n_done"]
    return "after the last checkpoint" if done == N_SHARDS else "on the way"


def failures(place: Path, paths: list[Path]) -> None:
    """Each of them an error that names the file, after which nothing is counted."""
    some, state = paths[:10], place / "state"
    cases: dict[str, tuple[Callable[[pa.Moments], object], str]] = {
        "a shard given twice": (
            lambda sums: sums.update(pa.scan([*some, some[3]])),
            "shard-003.npz' is given twice",
        ),
        "a shard of an earlier call": (
            lambda sums: sums.update(pa.scan([paths[20]])),
            "shard-020.npz', 0..400, is already counted",
        ),
        "a checkpoint of other data": (
            lambda sums: sums.update(pa.scan(some), checkpoint=place / "whole.state"),
            "whole.state' is of other data",
        ),
        "a truncated shard": (
            lambda sums: sums.update(pa.scan([*some[:5], truncated(place, paths[5])])),
            "truncated.npz' is no readable .npz file",
        ),
        "a shard that changes while it is read": (
            lambda sums: changing(sums, place),
            "changing.npz' has changed",
        ),
        "a full disk": (
            lambda sums: with_full_disk(sums, some, state),
            "could not be written (File too large)",
        ),
    }
    before = pa.Moments(N_DIMS, 1).update(pa.scan([paths[20]]))
    for name, (act, words) in cases.items():
        sums, said = before.copy(), "nothing"
        try:
            act(sums)
        except (InvalidInput, OSError) as error:
            said = str(error)
        print(f"{name}: {said.replace(str(place), '...')}")
        require(f"{name} is an error that names the file", words in said)
        require(f"{name}: nothing is counted", sums == before)
    resumed = pa.Moments(N_DIMS, 1).update(pa.scan(some), checkpoint=state)
    require("with room again it goes on", resumed == pa.Moments(N_DIMS, 1).update(pa.scan(some)))


def truncated(place: Path, path: Path) -> Path:
    other = place / "truncated.npz"
    other.write_bytes(path.read_bytes()[:-2000])
    return other


def changing(sums: pa.Moments, place: Path) -> None:
    source = pa.scan([write_shard(place / "changing.npz", 0)])
    write_shard(place / "changing.npz", 1)
    sums.update(source)


def with_full_disk(sums: pa.Moments, paths: list[Path], state: Path) -> None:
    """A checkpoint that fits, and then no file may be larger than a few bytes."""
    try:
        with listening(stop_after_half):
            pa.Moments(N_DIMS, 1).update(pa.scan(paths), checkpoint=state)
    except KeyboardInterrupt:
        print(f"  interrupted after {read_record(state).metadata['n_done']} shards")
    with limited_files(1000):
        sums.update(pa.scan(paths), checkpoint=state)


def stop_after_half(done: int, total: int) -> None:
    if 2 * done > total:
        raise KeyboardInterrupt


@contextmanager
def limited_files(n_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def write_shard(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_SEQUENCES, 8, N_DIMS))
    np.savez(path, X=X, Y=rng.standard_normal((N_SEQUENCES, 1)))
    return path


if __name__ == "__main__":
    main()
