"""What the benchmark scripts share: fair timing, peak memory, and a verdict line."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

THREADS = 2
PAUSE = 0.25

# A child is measured until it has run so often, or so many seconds in at least two runs.
MOST_RUNS, ENOUGH_SECONDS = 5, 2.0


class Measured(NamedTuple):
    """Seconds of the processor in the fastest and the slowest run; memory added by the first."""

    seconds: float
    slowest: float
    megabytes: float


def best_times(sides: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Seconds of the fastest run of each side; the sides take turns, after one warm-up each."""
    best = dict.fromkeys(sides, float("inf"))
    with threadpool_limits(limits=THREADS):
        for side in sides.values():
            side()
        for _ in range(repeats):
            for name, side in sides.items():
                if len(sides) > 1:
                    # Threads of the other side's BLAS spin for some time before they sleep.
                    time.sleep(PAUSE)
                start = time.perf_counter()
                side()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(function: Callable[[], Any]) -> float:
    """Megabytes that ``function`` adds to a fresh process, imports and its data excluded (Linux).

    ``function()`` must prepare everything and return the callable that is to be measured.
    """
    return _in_child(multiprocessing.get_context("spawn"), _measure, function)


def measured_alone(function: Callable[[], Any]) -> Measured:
    """What ``function`` takes on one thread of a fresh process, its data excluded (Linux).

    ``function()`` must prepare everything and return the callable that is to be measured.  Seconds
    are those of the processor: what other programs take meanwhile is not counted.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "polyattn"])
    return _in_child(context, _measure_runs, function)


def peak_resident() -> int:
    """The largest resident size of this process so far, in bytes (Linux)."""
    return 1024 * _kilobytes("VmHWM")


def verdict(claim: str, holds: bool) -> None:
    """Print whether a claim held in this run."""
    print(f"  {'holds ' if holds else 'MISSED'}  {claim}")


def require(agreement: str, holds: bool) -> None:
    """End with an error unless the two sides gave the same answer."""
    print(f"  {'agree ' if holds else 'DIFFER'}  {agreement}")
    if not holds:
        sys.exit(1)


def _in_child(context: Any, target: Callable[..., None], function: Callable[[], Any]) -> Any:
    """What ``target`` sends from a new process that runs it with ``function``."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(function, sender))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        process.join()
        sys.exit(f"the process that was measured ended with exit code {process.exitcode}")
    process.join()
    return found


def _measure(function: Callable[[], Any], sender: Any) -> None:
    work = function()
    with threadpool_limits(limits=THREADS):
        sender.send(_added_megabytes(work))


def _measure_runs(function: Callable[[], Any], sender: Any) -> None:
    work = function()
    with threadpool_limits(limits=1):
        megabytes = _added_megabytes(work)
        runs: list[float] = []
        while len(runs) < 2 or (len(runs) < MOST_RUNS and sum(runs) < ENOUGH_SECONDS):
            start = time.process_time()
            work()
            runs.append(time.process_time() - start)
    sender.send(Measured(min(runs), max(runs), megabytes))


def _added_megabytes(work: Callable[[], Any]) -> float:
    # Linux: "5" resets the peak, so that making the data is not counted.
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    work()
    return (_kilobytes("VmHWM") - before) / 1024


def _kilobytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise LookupError(name)
