"""Values of futures, waited for as long as there are workers; and what is sent, sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from polyattn.cluster.sending import send
from polyattn.cluster.workers import Workers
from polyattn.errors import ClusterFailed
from polyattn.sources.source import Chunk

# What was lost with a worker, or with its scheduler, is begun anew so often.
MOST_ATTEMPTS = 5

# Seconds without news after which it is asked whether anybody is still there.
NEWS_SECONDS = 5.0


class Lost(Exception):
    """What was waited for is gone, and has to be begun anew."""


class Fetching:
    """A thread that waits for values while this one looks whether there are workers."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(1, "polyattn-fetch")

    def value(self, future: Any, look: Callable[[], None] = lambda: None) -> Any:
        """The value of a future, as soon as there is a worker that has it or makes it again.

        look : is called from time to time, and may raise
        Raises ``Lost`` where nobody will make it.
        """
        waiting = self._pool.submit(_gathered, self.workers, future)
        while not wait([waiting], timeout=NEWS_SECONDS).done:
            self.workers.wait_for_worker()
            look()
        is_there, found = waiting.result()
        if not is_there:
            raise Lost
        return found

    def end(self) -> None:
        """Let go of the thread."""
        self._pool.shutdown(wait=False)


def _gathered(workers: Workers, future: Any) -> tuple[bool, Any]:
    """Whether a future was not cancelled, and its value.

    The error of Dask is not handed on: its frames would hold whatever waits here.
    """
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    try:
        return True, workers.client.gather(future, direct=True if workers.is_local else None)
    except (CancelledError, CommClosedError):  # the latter of a scheduler that dies this moment
        return False, None


def give_up(workers: Workers, futures: list[Any]) -> None:
    """Let the scheduler forget what is in flight."""
    if futures and workers.client.status == "running":
        # A scheduler that is gone has nothing left to cancel.
        with suppress(OSError):
            workers.client.cancel(futures, force=True)


def sent_again(workers: Workers, chunks: Sequence[Chunk]) -> list[Any]:
    """What a task takes for the chunks; sent again where a worker dies that receives them."""
    for _ in range(MOST_ATTEMPTS - 1):
        try:
            return send(workers, chunks)
        except OSError:
            workers.wait_for_worker()
    return send(workers, chunks)


def is_lost(workers: Workers, sent: Sequence[Any]) -> bool:
    """Whether nobody has some of what was sent.

    Arrays of a worker that dies as it receives them are not always reported, and waited for.
    """
    there = [each for each in sent if getattr(each, "status", "") == "finished"]
    return bool(there) and not all(workers.client.who_has(there).values())


def as_ours(error: BaseException) -> BaseException:
    """The error of a task; of tasks whose workers died again and again, one that says so."""
    from distributed import KilledWorker

    if not isinstance(error, KilledWorker):
        return error
    return ClusterFailed(
        f"a task was given up after the workers that ran it had died ({error}). Where they ran out "
        "of memory, give them more, or make smaller chunks."
    )
