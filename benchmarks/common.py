"""What the benchmark scripts share: fair timing, peak memory, and a verdict line."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

THREADS = 2
PAUSE = 0.25


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
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(function, sender))
    process.start()
    sender.close()
    megabytes = receiver.recv()
    process.join()
    return megabytes


def verdict(claim: str, holds: bool) -> None:
    """Print whether a claim held in this run."""
    print(f"  {'holds ' if holds else 'MISSED'}  {claim}")


def require(agreement: str, holds: bool) -> None:
    """End with an error unless the two sides gave the same answer."""
    print(f"  {'agree ' if holds else 'DIFFER'}  {agreement}")
    if not holds:
        sys.exit(1)


def _measure(function: Callable[[], Any], sender: Any) -> None:
    work = function()
    with threadpool_limits(limits=THREADS):
        # Linux: "5" resets the peak, so that making the data is not counted.
        Path("/proc/self/clear_refs").write_text("5")
        before = _kilobytes("VmRSS")
        work()
        sender.send((_kilobytes("VmHWM") - before) / 1024)


def _kilobytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise LookupError(name)
