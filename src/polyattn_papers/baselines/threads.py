"""How many threads torch uses while something runs; afterwards it is as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

# Runs that are timed to choose the number of threads.
TRIALS = 5


@contextmanager
def n_threads(count: int) -> Iterator[None]:
    """So many threads within the block."""
    available = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(available)


def fastest_n_threads(run: Callable[[], None]) -> int:
    """One thread or all of them, whichever runs faster now; small steps often prefer one."""
    times = {}
    for count in {torch.get_num_threads(), 1}:
        with n_threads(count):
            run()
            start = time.perf_counter()
            for _ in range(TRIALS):
                run()
            times[count] = time.perf_counter() - start
    return min(times, key=times.__getitem__)
